"""The questions of some branches side by side, as one grid of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

import torch

from kvbench.engine.branch import Branch, Trace

PLACES_AT_ONCE = 64  # as many questions as fit side by side are read together, one at least


@dataclass(frozen=True)
class Columns:
    """The questions of some branches, shape (rows, width): questions end where their column ends.

    ``column``: the column of each place, shape (width,). ``last``: the last place of each column, on the CPU: as an
    index it serves on every device, and a look at it waits for none.
    ``padding``: bool, shape (rows, width). ``shared_ids`` and ``shared_positions``: the tokens that all questions begin
    with and that the grid leaves out, shape (rows, shared).
    """

    last: torch.Tensor
    shared_ids: torch.Tensor
    shared_positions: torch.Tensor
    token_ids: torch.Tensor
    positions: torch.Tensor
    column: torch.Tensor
    padding: torch.Tensor

    @property
    def count(self) -> int:
        return len(self.last)

    @property
    def shared(self) -> slice:
        """The places of what all questions begin with."""
        return slice(0, self.shared_ids.shape[1])

    def ending(self, places: slice) -> torch.Tensor:
        """Bool, the columns that end within these places."""
        return torch.logical_and(self.last >= places.start, self.last < places.stop)

    def portions(self, most: int) -> list[slice]:
        """The places of whole columns in turn, at most ``most`` together unless one column alone is wider."""
        ends = [0]
        for before, last in pairwise([-1, *self.last.tolist()]):
            if ends[-1] <= before and last + 1 - ends[-1] > most:
                ends.append(before + 1)
        return [slice(start, end) for start, end in pairwise([*ends, self.token_ids.shape[1]])]


def make_columns(trace: Trace, branches: Sequence[Branch], device: torch.device) -> Columns:
    """All branches ask as many questions. A column is as wide as its longest question; where all rows ask the same,
    nothing is padded."""
    asked = [[trace.prompt.asks[number].token_ids for number in b.treatment.asks] for b in branches]
    shared = shared_start(asked)
    widths = [max(len(ids) for ids in column) - shared for column in zip(*asked, strict=True)]
    token_ids = torch.zeros(len(branches), sum(widths), dtype=torch.long)
    first = torch.tensor([branch.next_position for branch in branches])[:, None]
    positions = (first + shared).repeat(1, token_ids.shape[1])
    padding = torch.ones_like(token_ids, dtype=torch.bool)
    for row, questions in enumerate(asked):
        end = 0
        for width, ids in zip(widths, questions, strict=True):
            end += width
            own = torch.tensor(ids[shared:])
            token_ids[row, end - len(own) : end] = own
            positions[row, end - len(own) : end] += torch.arange(len(own))
            padding[row, end - len(own) : end] = False
    shared_ids = torch.tensor(asked[0][0][:shared], dtype=torch.long).repeat(len(branches), 1)
    column = torch.arange(len(widths)).repeat_interleave(torch.tensor(widths))
    parts = (shared_ids, first + torch.arange(shared), token_ids, positions, column, padding)
    return Columns(torch.tensor(widths).cumsum(0) - 1, *(part.to(device) for part in parts))


def shared_start(asked: Sequence[Sequence[Sequence[int]]]) -> int:
    """How many tokens all questions of all rows begin with; each has at least one more. A row that asks one question
    shares nothing."""
    if len(asked[0]) == 1:
        return 0
    own = [question[:-1] for questions in asked for question in questions]
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*own, strict=False)))
