"""Metrics (columns of the records), the measures that a board makes of them, and their
definitions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import isinf
from typing import Any, Literal, Protocol, Self, TypeVar

from numpy.typing import NDArray
from pydantic import BaseModel, create_model

from leaderboards.metrics.inputs import Answer, Kept, Outcome
from leaderboards.statistics.bootstrap import FloatArray


@dataclass(frozen=True)
class Definition:
    """A paragraph that says what one number, or a few that belong together, mean."""

    name: str
    text: str
    formula: str = ""  # plain text, where it says more exactly what is computed
    source: str = ""  # the paper or standard that the number comes from
    columns: tuple[str, ...] = ()  # the columns of downloads and records that it explains
    chapter: str = ""  # the identifier of the chapter in which a metric's definition stands


@dataclass(frozen=True)
class Chapter:
    """Definitions that belong together."""

    identifier: str
    title: str
    definitions: tuple[Definition, ...]


def definitions_in(
    chapter: str, declared: Iterable[tuple[Definition, tuple[str, ...]]]
) -> tuple[Definition, ...]:
    """Returns the definitions that stand in a chapter, each once, with the columns that they are
    declared for."""
    columns: dict[Definition, dict[str, None]] = {}
    for definition, explained in declared:
        if definition.chapter == chapter:
            columns.setdefault(definition, {}).update(dict.fromkeys(explained))
    definitions = []
    for definition, names in columns.items():
        definitions.append(replace(definition, columns=tuple(names)))
    return tuple(definitions)


Interval = tuple[float, float]
Better = Literal["higher", "lower"]


class Over(Enum):
    """The questions of a cell that a measure is taken over. A board goes through them in this
    order."""

    ALL = "all questions"
    GOLDS = "all questions, if each has gold answers; else those that have, without attacks"
    STATEMENTS = (
        "the questions with gold answers, without attacks, which ask for nothing that the text says"
    )
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
PLAIN = Scale(1, 1, None)
POINTS = Scale(100, 1, None)  # a difference of shares, written in points


@dataclass(frozen=True)
class Heading:
    """A column of the board, which writes shares in whole percent."""

    name: str
    meaning: str
    # Whether it stands there once, at the first level shown, instead of at each level shown.
    single: bool = False


@dataclass(frozen=True)
class Measure:
    """A column of the summary: what a metric comes to in a cell.

    It is a mean over questions, or a ratio of two sums where it has ``weights``. Both may look at
    what the full cache answers to the same questions."""

    field: (
        str  # the column of a row; the ends of an interval are the columns ``*_low`` and ``*_high``
    )
    over: Over
    scale: Scale = SHARE_IN_PERCENT
    name: str = ""  # in addresses, marks and keys of a page; by default the field with hyphens
    title: str = ""  # of its curve and table, if it has one
    unit: str = ""  # the unit shown
    better: Better | None = None  # None for a measure by which nothing is ranked
    has_interval: bool = False  # over contexts; a measure with a curve always has
    by_layer: bool = False  # whether it is a number for each layer
    # The columns of the records that it reads, if that is not the one called as the row's.
    columns: tuple[str, ...] = ()
    values: Callable[[Sample], FloatArray] | None = (
        None  # a number for each question, NaN where there is none
    )
    # What the sum of the values is divided by, if not their count.
    weights: Callable[[Sample], FloatArray] | None = None
    of_mean: Callable[[FloatArray], FloatArray] | None = (
        None  # a rising function that makes it of the mean
    )
    undefined: str = ""  # the reason that stands where there is nothing to divide by
    paired: bool = False  # whether they look at what the full cache answers to the same questions
    curve: bool = False  # whether it has a curve; where an end is better it may have marks
    table: bool = False  # whether it has a table of policies and levels
    board: Heading | None = None  # its column on the board
    heading: str = ""  # of its column in the table of every measure, if it stands there
    writer: Callable[[float], str] | None = None  # how that table writes it, if not as everywhere

    def __post_init__(self) -> None:
        # A frozen class lets nobody set a field, not even itself.
        object.__setattr__(self, "name", self.name or self.field.replace("_", "-"))
        object.__setattr__(self, "has_interval", self.has_interval or self.curve)

    @property
    def reads(self) -> tuple[str, ...]:
        """Lists the columns of the records that it is computed from."""
        return self.columns or (self.field,)

    @property
    def row_columns(self) -> tuple[str, ...]:
        """Lists the columns of a row that it fills: its own, and those of its interval if it has
        one."""
        if not self.has_interval:
            return (self.field,)
        return self.field, f"{self.field}_low", f"{self.field}_high"

    @property
    def factor(self) -> float:
        """Returns what the unit of the row is multiplied by to be shown."""
        return self.scale.factor

    @property
    def digits(self) -> int:
        """Returns the digits behind the point that are shown."""
        return self.scale.digits

    @property
    def top(self) -> float | None:
        """Returns the highest possible value in the unit shown; None where there is none."""
        return self.scale.top

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Returns the ends, in the unit of the row, between which every value lies; None where
        nothing bounds it."""
        # A difference of shares is bounded although no value of it is the best.
        if self.scale is POINTS:
            return -1.0, 1.0
        if self.top is None:
            return None
        return 0.0, self.top / self.factor

    @property
    def is_share(self) -> bool:
        """Tells whether its numbers are shares of a whole."""
        return self.scale in (SHARE, SHARE_IN_PERCENT)

    def value(self, row: object) -> float | None:
        """Returns the number of a row, in the unit of the row."""
        number: float | None = getattr(row, self.field)
        return number

    def interval(self, row: object) -> Interval | None:
        """Returns the ends of the interval of a row, in the unit of the row; None where it has
        none."""
        # A measure without an interval has no such columns.
        low = getattr(row, f"{self.field}_low", None)
        high = getattr(row, f"{self.field}_high", None)
        if low is None or high is None:
            return None
        return low, high

    def text(self, number: float | None) -> str:
        """Returns a number of the row as it is shown; a dash for None."""
        if number is None:
            return "–"
        return f"{number * self.factor:z.{self.digits}f}"


@dataclass(frozen=True)
class Metric:
    """Everything that follows from a metric: records, summary, board, curves, downloads and pages
    read it from here.

    A metric that neither an answer, nor how it ended, nor what is kept tells is measured by whoever
    runs the model."""

    name: str  # the column of the records
    # Of its values: float, int, bool, bytes, a list or a literal; where there is none, the column
    # is null.
    type: Any
    line: str  # what it is, in one line
    definition: Definition  # what it is, in a paragraph; metrics that belong together share one
    unit: str = "rate"
    better: Better | None = None
    bounds: tuple[float, float] | None = None  # between which every value lies
    # What computes it: from what is stored of an answer, from what the cache had kept, from how the
    # answer ended.
    of_answer: Callable[[Answer], object] | None = None
    of_kept: Callable[[Kept], object] | None = None
    of_outcome: Callable[[Outcome], object] | None = None
    measures: tuple[Measure, ...] = ()  # what it comes to in a cell

    @property
    def range(self) -> tuple[float, float] | None:
        """Returns the ends between which every value lies, those of a truth value among them; None
        where nothing bounds it."""
        if self.type is bool:
            return 0.0, 1.0
        # A likelihood has a lower end alone, which bounds no interval.
        if self.bounds is None or isinf(self.bounds[1]):
            return None
        return self.bounds

    @property
    def follows_from_store(self) -> bool:
        """Tells whether it follows from the stored records of a run, so that those of an earlier
        version can get it."""
        return self.of_answer is not None or self.of_outcome is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """Lists the columns that its definition explains."""
        columns = [self.name]
        for measure in self.measures:
            columns += measure.row_columns
        return tuple(columns)


Model = TypeVar("Model", bound=BaseModel)


def with_columns(columns: Mapping[str, Any]) -> Callable[[type[Model]], type[Model]]:
    """Returns a decorator that adds columns to a class, which stays as closed as it is.
    ``columns``: as for :func:`pydantic.create_model`, each a type and the value where there is
    none."""

    def extend(base: type[Model]) -> type[Model]:
        return create_model(
            base.__name__,
            __base__=base,
            __module__=base.__module__,
            __doc__=base.__doc__,
            **columns,
        )

    return extend


UNITS = ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB"))


def size_text(count: float | None) -> str:
    """Returns a number of bytes in decimal units, with three digits or more; a dash for none.

    >>> size_text(1_234_567)
    '1.23 MB'
    """
    if count is None:
        return "–"
    for power, unit in UNITS:
        if count >= 10**power:
            size = count / 10**power
            if size < 10:
                digits = 2
            elif size < 100:
                digits = 1
            else:
                digits = 0
            return f"{size:,.{digits}f} {unit}"
    return f"{count:.0f} B"
