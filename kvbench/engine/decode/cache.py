"""Gives access to the rows that answers read, apart from the attention that reads them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from kvbench.engine.decode.bundle import Bundle
from kvbench.engine.treat.branch import Branch
from policies import ABSENT, UNKNOWN, CacheRows


@dataclass(frozen=True)
class _Layout:
    """Tells where the rows of some answers stand in the storage of the layers that hold as many
    rows of the context.

    A host that goes on to fill a tensor for each layer makes a GPU wait at each: all of it is moved
    once to the device."""

    of_context: torch.Tensor  # bool (answers, 1, rows): the row is of the context
    newer: torch.Tensor  # int64 (answers, rows): how many of the context are newer
    positions: torch.Tensor  # int64 (answers, 1, rows), of the rows that are not of the context
    places: torch.Tensor  # int64 (answers, 1, rows), in the storage
    branches: torch.Tensor  # int64 (answers,): the branch of each answer
    rows: torch.Tensor  # int64 (answers, 1, 1), of the bundle


class BundleRows(CacheRows):
    """Finds the rows of some answers in the storage of a bundle. It hides how a batch stores them:
    padding, the questions of other columns and rows that have moved. It is valid until the next
    pass.

    Once a question is read, only rows that ask one can be written to: others share what is kept of
    the context."""

    def __init__(
        self,
        bundle: Bundle,
        branches: Sequence[Branch],
        places: Sequence[tuple[int, int]],
        answers: Sequence[int],
        question_read: bool,
    ) -> None:
        """``places``: by answer, its row as first numbered, and its column. ``question_read``: its
        rows are there."""
        self._bundle, self.answers = bundle, answers
        by_branch = {id(branch): branch for branch in branches}
        self._branches = list(by_branch.values())
        numbers = dict(zip(by_branch, range(len(by_branch)), strict=True))
        # Which of them, by answer.
        self._branch = torch.tensor([numbers[id(branch)] for branch in branches])
        # Before any question is read, nothing of the row belongs to one of them alone.
        self._shared = question_read and bundle.columns.count > 1
        columns, width = bundle.columns, bundle.columns.token_ids.shape[1]
        # (steps, columns): the places of the answers so far, behind those of the questions.
        steps = torch.arange(width, max(width, bundle.grown)).view(-1, columns.count)
        behind = []
        for number, column in places:
            # The shared start counts as kept: its places lie before the end of what is kept.
            of_answer = [torch.arange(-bundle.shared_kept, 0)]
            if question_read:
                question = (columns.column == column) & ~columns.padding[number]
                of_answer += [question.nonzero()[:, 0].cpu(), steps[:, column]]
            behind.append(torch.cat(of_answer))
        self._rows = torch.tensor([bundle.row_numbers.index(number) for number, _ in places])
        # Behind the kept context: places counted from the end of what is kept, and positions.
        first = [branch.next_position for branch in branches]
        # One column more in front: there is one to gather from where nothing stands behind the
        # context.
        self._behind = F.pad(pad_sequence(behind, batch_first=True, padding_side="left"), (1, 0))
        self._lengths = torch.tensor([len(of_answer) for of_answer in behind])
        width = self._behind.shape[1]
        self._positions = (
            torch.tensor(first)[:, None] + torch.arange(width) - (width - self._lengths)[:, None]
        )
        self._gathered: dict[int, tuple[torch.Tensor, tuple[torch.Tensor, ...]]] = {}
        self._layouts: dict[tuple[tuple[int, ...], int, torch.device], _Layout] = {}

    @property
    def layers(self) -> int:
        return len(self._bundle.keys)

    def lengths(self, layer: int) -> torch.Tensor:
        context = torch.tensor([branch.layers[layer].tokens.shape[1] for branch in self._branches])
        return (context[self._branch] + self._lengths).to(self._bundle.keys[layer].device)

    def tokens(self, layer: int) -> torch.Tensor:
        return self._find(layer)[0]

    def keys(self, layer: int) -> torch.Tensor:
        return self._bundle.keys[layer][self._find(layer)[1]]

    def values(self, layer: int) -> torch.Tensor:
        return self._bundle.values[layer][self._find(layer)[1]]

    def write(
        self,
        layer: int,
        keys: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
        rows: torch.Tensor | None = None,
    ) -> None:
        """Writes as :meth:`CacheRows.write` says. Raises :class:`ValueError` where questions share
        the rows: what is written for one of them would reach the others."""
        if self._shared:
            raise ValueError(
                "questions share the kept rows of this branch: only a policy with a step treatment "
                "writes"
            )
        tokens, index = self._find(layer)
        present = tokens != ABSENT
        chosen = (present if rows is None else present & rows).nonzero(as_tuple=True)
        answers, heads, places = chosen
        stored = index[0][answers, 0, 0], heads, index[2][answers, 0, places]
        for storage, states in (
            (self._bundle.keys[layer], keys),
            (self._bundle.values[layer], values),
        ):
            if states is not None:
                storage[stored] = states[chosen].to(storage.dtype)

    def _find(self, layer: int) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Returns the tokens of a layer's rows, and an index of them into the storage: by row, head
        and place."""
        if layer not in self._gathered:
            storage = self._bundle.keys[layer]
            device, heads = storage.device, storage.shape[1]
            contexts = [branch.layers[layer].tokens.T for branch in self._branches]
            key = tuple(map(len, contexts)), self._bundle.front + self._bundle.kept[layer], device
            if key not in self._layouts:  # most layers hold as many rows as another
                self._layouts[key] = self._lay_out(*key)
            layout = self._layouts[key]
            context = pad_sequence(
                contexts, batch_first=True, padding_value=ABSENT, padding_side="left"
            ).mT.to(device)
            # Of a layer that keeps nothing.
            context = F.pad(context, (int(context.shape[2] == 0), 0), value=ABSENT)
            wide = context.shape[2]
            # Counted from the newest, as the rows of the context are padded in front.
            index = (wide - 1 - layout.newer).clamp(0, wide - 1)[:, None].expand(-1, heads, -1)
            context = context[layout.branches].gather(2, index)
            context = context.masked_fill(~(layout.newer < wide)[:, None], ABSENT)
            tokens = torch.where(layout.of_context, context, layout.positions)
            by_head = torch.arange(heads, device=device)[:, None]
            self._gathered[layer] = (tokens, (layout.rows, by_head, layout.places))
        return self._gathered[layer]

    def _lay_out(self, counts: Sequence[int], end: int, device: torch.device) -> _Layout:
        """Lays out the rows of layers on a device. ``counts``: of the kept rows, by branch.
        ``end``: where they end."""
        lengths = torch.tensor(counts)[self._branch] + self._lengths
        # By row of an answer, how many of its rows are newer: the last has none.
        newest = torch.arange(int(lengths.max()) - 1, -1, -1)
        # Less than none are if it stands behind the context.
        newer = newest - self._lengths[:, None]
        behind = (self._behind.shape[1] - 1 - newest).clamp(min=0).expand_as(newer)
        # Both counted from where what is kept ends.
        in_context = -1 - newer - self._bundle.shared_kept
        places = torch.where(newer >= 0, in_context, self._behind.gather(1, behind)) + end
        # Of a row that is absent the place means nothing; it only has to lie in the storage.
        places = places.clamp(min=0)[:, None]
        return _Layout(
            of_context=(newer >= 0)[:, None].to(device),
            newer=newer.to(device),
            positions=self._positions.gather(1, behind)[:, None].to(device),
            places=places.to(device),
            branches=self._branch.to(device),
            rows=self._rows[:, None, None].to(device),
        )


class PlainRows(CacheRows):
    """Shows the rows that a press goes on cutting in a cache of its own: it alone knows which
    tokens are left."""

    answers: Sequence[int] = (0,)

    def __init__(self, cache: DynamicCache) -> None:
        self._layers: Sequence[Any] = cache.layers

    @property
    def layers(self) -> int:
        return len(self._layers)

    def lengths(self, layer: int) -> torch.Tensor:
        return torch.tensor([self._states(layer)[0].shape[2]])

    def tokens(self, layer: int) -> torch.Tensor:
        keys = self._states(layer)[0]
        return torch.full(keys.shape[:3], UNKNOWN, device=keys.device)

    def keys(self, layer: int) -> torch.Tensor:
        # A copy, as CacheRows promises: a treatment may compute in place.
        return self._states(layer)[0].clone()

    def values(self, layer: int) -> torch.Tensor:
        return self._states(layer)[1].clone()

    def write(
        self,
        layer: int,
        keys: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
        rows: torch.Tensor | None = None,
    ) -> None:
        for stored, states in zip(self._states(layer), (keys, values), strict=True):
            if states is None:
                continue
            if rows is not None:
                states = torch.where(rows[..., None], states, stored)
            stored.copy_(states)

    def _states(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._layers[layer].keys, self._layers[layer].values
