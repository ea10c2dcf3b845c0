"""Puts the questions of some rows, or their right answers, side by side in one grid of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Generic, TypeVar

import torch

from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.plan import Treatment
from kvbench.prompts.prompt import Prompt

Of = TypeVar("Of", Branch, Treatment)


@dataclass(frozen=True)
class Row(Generic[Of]):
    """Describes one row of a batch.

    All questions of a branch share one row, which holds the kept keys once. A branch whose cache is
    treated between steps has a row for each question, since what is done to the context for one
    question must not reach another; so has one whose numbers may be infinite or NaN."""

    of: Of
    questions: tuple[int, ...]  # their numbers in the prompt
    even: bool  # every head reads as many tokens in every layer
    # Bytes of its keys and values, and of those of its copy: every head that its press compresses
    # taken to read as many as the longest, with room for questions and answers
    size: int
    steps: int = 1  # the places that each answer may take
    # A copy of it passes the right answer of its question token by token, from where the question
    # has been read.
    paired: bool = False
    trace: Trace | None = None  # that its branch was cut from; none of what is only planned

    @property
    def read_trace(self) -> Trace:
        assert self.trace is not None
        return self.trace

    def question_ids(self, prompt: Prompt) -> list[tuple[int, ...]]:
        return [prompt.questions[number].token_ids for number in self.questions]

    def gold_ids(self, prompt: Prompt) -> list[tuple[int, ...]]:
        return [prompt.questions[number].gold_ids for number in self.questions]


def shared_start(questions: Sequence[Sequence[Sequence[int]]]) -> int:
    """Counts the tokens that all questions begin with; each has one more. A row of one question
    shares nothing."""
    if len(questions[0]) == 1:
        return 0
    # Without its last token: each question needs one of its own to get logits from.
    beginnings = [question[:-1] for question in chain.from_iterable(questions)]
    count = 0
    for tokens in zip(*beginnings, strict=False):
        if len(set(tokens)) > 1:
            break
        count += 1
    return count


PLACES_AT_ONCE = 64  # as many questions as fit side by side are read together, one at least


@dataclass(frozen=True)
class TokenColumns:
    """Holds sequences of tokens side by side, one row of them for each row of a bundle."""

    # The last place of each column, on the CPU: as an index it serves on every device, and a look
    # at it waits for none.
    last: torch.Tensor
    token_ids: torch.Tensor  # shape (rows, width), like positions and padding
    positions: torch.Tensor
    column: torch.Tensor  # of each place, shape (width,)
    padding: torch.Tensor  # bool

    @property
    def count(self) -> int:
        return len(self.last)

    def ending(self, places: slice) -> torch.Tensor:
        """Tells which columns end among some places: bool (columns,), on the CPU."""
        return torch.logical_and(self.last >= places.start, self.last < places.stop)

    def slices(self, width: int) -> list[slice]:
        """Returns the places of whole columns in turn, at most ``width`` together unless one column
        alone is wider."""
        edges = [0]
        column_start = 0
        for last in self.last.tolist():
            # A column wider than that stands alone and is not cut, since its places see each other.
            is_alone = edges[-1] == column_start
            if not is_alone and last + 1 - edges[-1] > width:
                edges.append(column_start)
            column_start = last + 1
        edges.append(self.token_ids.shape[1])
        return [slice(start, end) for start, end in pairwise(edges)]


@dataclass(frozen=True)
class QuestionColumns(TokenColumns):
    """Holds questions; each one ends where its column ends."""

    # The tokens that all questions begin with and that the grid leaves out: (rows, shared).
    shared_ids: torch.Tensor
    shared_positions: torch.Tensor  # likewise

    @property
    def shared(self) -> slice:
        """Returns the places of the tokens that all questions begin with."""
        return slice(0, self.shared_ids.shape[1])


@dataclass(frozen=True)
class GoldColumns(TokenColumns):
    """Holds right answers without their last token, which nothing follows; each one begins where
    its column begins."""

    targets: torch.Tensor  # the token that follows each place, shape (rows, width)
    order: torch.Tensor  # which token of its right answer that is, likewise


def make_columns(
    trace: Trace, rows: Sequence[Row[Branch]], device: torch.device
) -> QuestionColumns:
    """Puts the questions of rows side by side; all rows have the same number of questions. A column
    is as wide as its longest question; where all rows have the same questions, nothing is
    padded."""
    questions = [row.question_ids(trace.prompt) for row in rows]
    shared = shared_start(questions)
    first = [row.of.next_position for row in rows]
    endings, starts = [], []
    for position, of_row in zip(first, questions, strict=True):
        endings.append([ids[shared:] for ids in of_row])
        starts.append([position + shared] * len(of_row))
    grid = _Grid(endings, at_end=True)
    shared_ids = torch.tensor(questions[0][0][:shared], dtype=torch.long).repeat(len(rows), 1)
    shared_positions = torch.tensor(first)[:, None] + torch.arange(shared)
    parts = (*grid.parts(starts), shared_ids, shared_positions)
    return QuestionColumns(grid.last, *(part.to(device) for part in parts))


def make_gold_columns(
    trace: Trace, rows: Sequence[Row[Branch]], device: torch.device, gold: bool = True
) -> GoldColumns:
    """Puts right answers side by side; empty without ``gold``, and where a copy of a row passes
    them step by step."""
    inputs: list[list[tuple[int, ...]]] = []
    targets: list[list[tuple[int, ...]]] = []
    starts = []
    for row in rows:
        golds = row.gold_ids(trace.prompt)
        if row.paired or not gold:
            # The columns stay, though they are empty: answers are numbered by them.
            golds = [()] * len(golds)
        inputs.append([ids[:-1] for ids in golds])
        targets.append([ids[1:] for ids in golds])
        starts.append([row.of.next_position + len(ids) for ids in row.question_ids(trace.prompt)])
    # Both leave one token out, the last or the first, and so lie at the same places.
    grid = _Grid(inputs, at_end=False)
    target_ids = _Grid(targets, at_end=False).token_ids
    parts = (*grid.parts(starts), target_ids, grid.offsets + 1)
    return GoldColumns(grid.last, *(part.to(device) for part in parts))


class _Grid:
    """Puts sequences side by side, shape (rows, width); a column is as wide as its longest
    sequence, which stands at the column's end or at its start."""

    def __init__(self, sequences: Sequence[Sequence[Sequence[int]]], at_end: bool) -> None:
        """``sequences``: by row and column."""
        self._widths = [max(map(len, column)) for column in zip(*sequences, strict=True)]
        self._at_end = at_end
        widths = torch.tensor(self._widths)
        self.last = widths.cumsum(0) - 1
        self.column = torch.arange(len(widths)).repeat_interleave(widths)
        token_ids, places = [], []
        for row in sequences:
            token_ids.append(self._join(row, 0))
            # -1 marks padding: the number of a token in its sequence is 0 or more.
            places.append(self._join([range(len(ids)) for ids in row], -1))
        self.token_ids = torch.tensor(token_ids, dtype=torch.long)
        offsets = torch.tensor(places, dtype=torch.long)
        self.offsets, self.padding = offsets.clamp(min=0), offsets < 0

    def parts(self, starts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, ...]:
        """Returns token ids, positions, columns and padding. ``starts``: by row and column, the
        first position."""
        positions = torch.tensor(starts)[:, self.column] + self.offsets
        return self.token_ids, positions, self.column, self.padding

    def _join(self, row: Sequence[Sequence[int]], filler: int) -> list[int]:
        joined: list[int] = []
        for width, numbers in zip(self._widths, row, strict=True):
            padding = [filler] * (width - len(numbers))
            joined += [*padding, *numbers] if self._at_end else [*numbers, *padding]
        return joined
