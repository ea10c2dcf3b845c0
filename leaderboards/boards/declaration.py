"""Declares derived measures, which are what a policy comes to over all its levels, and the cells of
tables on pages."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Generic, Literal, Self, TypeVar

from leaderboards.aggregate.arguments import Arguments
from leaderboards.aggregate.duels import UNDECIDED, Verdict
from leaderboards.aggregate.pooled import Pooled
from leaderboards.boards.profiles import Profile
from leaderboards.metrics import Better
from leaderboards.metrics.declaration import Definition
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.rank import Mark
from leaderboards.statistics.safe_ratio import TOLERATED_LOSS
from policies.declaration.levels import LevelKind

SIGNS: dict[str, str] = {"better": "▲", "worse": "▼", UNDECIDED: "", "": ""}
NOT_MEASURED = "not measured"
BLANK_SIGN = "–"
Value = TypeVar("Value")
OfBoard = Callable[["BoardProfiles"], Mapping[str, Value]]


@dataclass(frozen=True)
class TableCell:
    """A text, and how a page shows it."""

    text: str = "–"
    detail: str = ""  # stands under the text, such as an interval
    sort: float | None = None  # a table is sorted by it; None in a blank cell
    reason: str = ""  # says why the cell is blank
    heat: float = 0.0  # 0 to 1, of the highest value on the page
    tone: Verdict | Literal[""] = ""
    mark: Mark | None = None  # whether its policy is the best in its column
    note: int | None = None  # the number of the footnote that says why it is blank
    bars: str = ""  # the outline of a bar for each layer, as an SVG path
    layers: int = 0  # how many bars there are
    examples: str = ""  # the address of the examples of the cell

    @classmethod
    def blank(cls, reason: str | None, short: str = "") -> Self:
        """Makes a cell without a value. ``short``: stands under its dash."""
        return cls(reason=reason or NOT_MEASURED, detail=short)

    @property
    def is_blank(self) -> bool:
        """Tells whether it has a reason in the place of a text; a text without a number to sort by
        may stand there."""
        return self.sort is None and bool(self.reason)

    @property
    def dash(self) -> str:
        """Returns what stands in the place of a text."""
        return BLANK_SIGN

    @property
    def key(self) -> str:
        """Returns what the table is sorted by in six digits, or nothing where the text says so much
        itself."""
        if self.sort is None:
            return ""
        key = f"{self.sort:.6g}"
        return "" if key == self.text else key

    @property
    def sign(self) -> str:
        """Returns the sign that tells the tone to those who do not see colours."""
        return SIGNS[self.tone]


@dataclass(frozen=True)
class TableRow:
    name: str  # of its policy or task
    cells: tuple[TableCell, ...]


def blank_reasons(columns: Sequence[str], lines: Iterable[TableRow]) -> list[str]:
    """Says why cells are blank, each reason once with its columns: the title of a cell is nowhere
    on a phone."""
    columns_by_reason: dict[str, dict[str, None]] = {}
    for line in lines:
        for column, cell in zip(columns, line.cells, strict=True):
            if cell.is_blank:
                columns_by_reason.setdefault(cell.reason, {})[column] = None
    return [
        f"{BLANK_SIGN} in {', '.join(names)}: {reason}"
        for reason, names in columns_by_reason.items()
    ]


@dataclass(frozen=True, eq=False)
class BoardProfiles:
    """The policies of one board by name, each over its levels, on the same contexts."""

    profiles: Mapping[str, Profile]
    # What each ran with, by task.
    presses: Mapping[str, Sequence[Arguments]] = field(default_factory=dict)
    against: Mapping[tuple[str, str], Pooled] = field(default_factory=dict)  # by policy and control
    tolerance: float = TOLERATED_LOSS  # the loss in points below which a level is safe


@dataclass(frozen=True)
class DerivedMeasure(Generic[Value]):
    """Declares a derived measure: its column on the board, its columns of the download and its
    definition."""

    # Of its value in a standing, and of the column ``<name>_reason``, which says why it is blank.
    name: str
    better: Better | None
    line: str  # what it is, in one line
    definition: Definition  # what it is, in a paragraph
    of_board: OfBoard[Value]  # computes it for every policy of a board: a value, or a Blank
    # Over all tasks it is this of its values by task; without such a function it is ``of_board`` of
    # their mean.
    over_tasks: Callable[[Mapping[str, Value]], Value] | None = field(default=None, kw_only=True)
    # The columns of the download, and the attribute of the value that each holds.
    columns: Mapping[str, str]
    heading: str  # of its column on the board
    cell: Callable[[Any], TableCell]  # its cell there
    # The heading on a board with levels of these kinds, if it is not the same on every board.
    heading_of: Callable[[Sequence[LevelKind]], str] | None = None
    parts: tuple[Definition, ...] = ()  # what else its columns need to be understood
    # Why a value has no verdict; empty where it has one.
    withheld: Callable[[Any], str] = lambda value: ""

    @property
    def definitions(self) -> tuple[tuple[Definition, tuple[str, ...]], ...]:
        """Returns its definitions, each with the columns of the download that it defines."""
        columns = (*self.columns, f"{self.name}_reason")
        parts = [(part, ()) for part in self.parts]
        return (self.definition, columns), *parts

    def board_cell(self, value: Value) -> TableCell:
        """Returns the cell of a board for a value, or a blank one."""
        if isinstance(value, Blank):
            return TableCell.blank(value.reason, value.short)
        cell = self.cell(value)
        if self.better == "lower":  # the best sorts highest
            return replace(cell, sort=-(cell.sort or 0))
        return cell

    def download(self, value: Value) -> dict[str, Any]:
        """Returns the columns of a download, unrounded; None where there is no number."""
        columns: dict[str, Any] = dict.fromkeys(self.columns)
        reason = f"{self.name}_reason"
        if isinstance(value, Blank):
            return {**columns, reason: value.reason}
        for column, path in self.columns.items():
            number = attrgetter(path)(value)
            if not isinstance(number, Blank):
                columns[column] = number
        return {**columns, reason: self.withheld(value) or None}


def for_each_policy(of_profile: Callable[[Profile], Value]) -> OfBoard[Value]:
    """Computes a measure that looks at one policy alone for all policies of a board."""

    def compute(board: BoardProfiles) -> dict[str, Value]:
        return {policy: of_profile(profile) for policy, profile in board.profiles.items()}

    return compute
