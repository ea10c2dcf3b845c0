"""Declares measures: a measure is the number that a board makes of a metric, how it is taken, and how it is written."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from leaderboards.errors import MetricError
from leaderboards.metrics.declaration.definition import with_interval

FloatArray = NDArray[np.float64]
Interval = tuple[float, float]
Better = Literal["higher", "lower"]


class Over(Enum):
    """The questions of a cell that a measure is taken over. A board goes through them in this order."""

    ALL = "all questions"
    GOLDS = "all questions, if each has gold answers"
    STATEMENTS = "the same without attacks, which ask for nothing that the text says"
    CONCERNED = "the questions that have a value, such as attacks or questions with directives"
    CONTEXTS = "all contexts: each weighs the same, however many questions it has"
    CACHE = "all questions, unless the policy rewrites the cache"
    ANSWERABLE = "the answerable questions, unless the policy rewrites the cache"


class Sample(Protocol):
    """Columns of some records. All arrays have the shape (questions,)."""

    def __getitem__(self, column: str) -> NDArray[Any]: ...

    @property
    def full(self) -> Self:
        """Returns the full cache's records of the same questions, in the same order."""


@dataclass(frozen=True)
class Scale:
    """Writes the numbers of one kind. The unit shown is the unit of the row times ``factor``."""

    factor: float
    digits: int
    top: float | None  # the highest possible value in the unit shown, if there is one


PERCENT = Scale(1, 1, 100)  # of a row in percent
SHARE = Scale(1, 3, 1)  # of a row in shares, written as a share
SHARE_IN_PERCENT = Scale(100, 1, 100)  # of a row in shares, written in percent
POINTS = Scale(100, 1, None)  # a difference of shares, written in points


@dataclass(frozen=True)
class Heading:
    """A column of the board, which writes shares in whole percent."""

    name: str
    meaning: str
    single: bool = False  # whether it stands there once, at the first level shown, instead of at each level shown


@dataclass(frozen=True)
class Measure:
    """A column of the summary: what a metric comes to in a cell.

    It is a mean over questions, or a ratio of two sums where it has ``weights``. Both may look at what the full cache
    answers to the same questions.
    """

    name: str  # in addresses, marks and keys of a page
    field: str  # the column of a row; the ends of an interval are the columns ``*_low`` and ``*_high``
    over: Over
    scale: Scale
    title: str = ""  # of its curve and table, if it has one
    unit: str = ""  # the unit shown
    better: Better | None = None  # None for a measure by which nothing is ranked
    has_interval: bool = False  # by a cluster bootstrap over contexts
    by_layer: bool = False  # whether it is a number for each layer
    columns: tuple[
        str, ...
    ] = ()  # the columns of the records that it reads, if that is not the one called as the row's
    values: Callable[[Sample], FloatArray] | None = None  # a number for each question, NaN where there is none
    weights: Callable[[Sample], FloatArray] | None = (
        None  # what the sum of the values is divided by, if not their count
    )
    of_mean: Callable[[FloatArray], FloatArray] | None = None  # a rising function that makes it of the mean
    undefined: str = ""  # the reason that stands where there is nothing to divide by
    paired: bool = False  # whether they look at what the full cache answers to the same questions
    curve: bool = False  # whether it has a curve, which needs an interval; where an end is better it may have marks
    table: bool = False  # whether it has a table of policies and levels
    board: Heading | None = None  # its column on the board
    heading: str = ""  # of its column in the table of every measure, if it stands there
    writer: Callable[[float], str] | None = None  # how that table writes it, if not as everywhere

    def __post_init__(self) -> None:
        if self.curve and not self.has_interval:
            raise MetricError(f"the measure '{self.name}' has a curve and no interval: set has_interval=True")

    @property
    def reads(self) -> tuple[str, ...]:
        """Lists the columns of the records that it is computed from."""
        return self.columns or (self.field,)

    @property
    def names(self) -> tuple[str, ...]:
        """Lists the headings and columns that stand for it."""
        headings = (self.title, self.heading, self.board.name if self.board else "")
        return (*filter(None, headings), *self.row_columns)

    @property
    def row_columns(self) -> tuple[str, ...]:
        return with_interval(self.field) if self.has_interval else (self.field,)

    @property
    def factor(self) -> float:
        return self.scale.factor

    @property
    def digits(self) -> int:
        return self.scale.digits

    @property
    def top(self) -> float | None:
        return self.scale.top

    @property
    def is_share(self) -> bool:
        return self.scale in (SHARE, SHARE_IN_PERCENT)

    def value(self, row: object) -> float | None:
        """Returns the number of a row, in the unit of the row."""
        number: float | None = getattr(row, self.field)
        return number

    def interval(self, row: object) -> Interval | None:
        low, high = (getattr(row, f"{self.field}_{end}", None) for end in ("low", "high"))
        return None if low is None or high is None else (low, high)

    def text(self, number: float | None) -> str:
        """Returns a number of the row as it is shown; a dash for None."""
        return "–" if number is None else f"{number * self.factor:z.{self.digits}f}"
