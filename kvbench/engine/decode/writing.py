"""Has the treatments of policies change keys and values as a bundle writes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from kvbench.engine.decode.columns import Row
from kvbench.engine.treat.branch import Branch
from policies.declaration.steps import NewRows, States, WriteTreatment


@dataclass(frozen=True)
class _Group:
    """Holds the rows of one policy, which are treated at once."""

    treatment: WriteTreatment
    answers: Mapping[int, int]  # of the treatment, by row of the bundle as first numbered


@dataclass(frozen=True)
class _Part:
    """Tells which rows of a pass are of a group."""

    treatment: WriteTreatment
    answers: Sequence[int]  # of the treatment
    places: torch.Tensor  # int64 (answers,), among the rows of the pass


class Writing:
    """Changes the new rows of a bundle once, before they are written. Most policies leave them as
    the model computes them, and then there is nothing to do."""

    def __init__(
        self, rows: Sequence[Row[Branch]], layers: int, room: int, device: torch.device
    ) -> None:
        """``room``: how many tokens may follow a context."""
        self._layers, self._device = layers, device
        self._end = room + max(row.of.next_position for row in rows)
        by_policy: dict[int, list[int]] = {}
        for number, row in enumerate(rows):
            by_policy.setdefault(id(row.of.treatment.policy), []).append(number)
        self._groups: list[_Group] = []
        for numbers in by_policy.values():
            policy = rows[numbers[0]].of.treatment.policy
            if build := policy.treatment.write_treatment:
                situations = [rows[number].of.treatment.situation for number in numbers]
                answers = {number: answer for answer, number in enumerate(numbers)}
                self._groups.append(_Group(build(situations), answers))
        self._parts: list[_Part] = []

    def begin(self, rows: Sequence[int]) -> None:
        """Announces a pass of these rows, as first numbered."""
        self._parts = []
        for group in self._groups:
            places = [place for place, number in enumerate(rows) if number in group.answers]
            if places:
                answers = [group.answers[rows[place]] for place in places]
                self._parts.append(
                    _Part(group.treatment, answers, torch.tensor(places, device=self._device))
                )

    def changed(
        self, layer: int, tensor: States, states: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Returns what is written of the keys or values of a pass, shape (rows, num_kv_heads,
        places, head_dim). ``positions``: int64 (rows, places)."""
        for part in self._parts:
            places = part.places.to(states.device)
            there = positions.to(states.device).index_select(0, places)
            new = NewRows(
                layer, self._layers, tensor, part.answers, states[places], there, self._end
            )
            # A new tensor, since the states are the network's own.
            states = states.index_copy(0, places, part.treatment.on_write(new))
        return states
