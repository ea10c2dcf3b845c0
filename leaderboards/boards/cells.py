"""Declares the cells and lines of tables on pages: boards, tables of a measure, heat maps and comparisons."""

from dataclasses import dataclass
from typing import Literal, Self

from leaderboards.aggregate.comparison.duel import UNDECIDED, Verdict
from leaderboards.aggregate.lead import CANNOT
from leaderboards.aggregate.over_tasks import NONE_MASTERED
from leaderboards.aggregate.ranking import Mark

SIGNS: dict[str, str] = {"better": "▲", "worse": "▼", UNDECIDED: "", "": ""}
NOT_MEASURED = "not measured"
NOT_RUN_SIGN, NOT_MASTERED_SIGN = "–", "∅"


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
        return cls(reason=reason or NOT_MEASURED, detail=short)

    @property
    def key(self) -> str:
        """Returns what the table is sorted by in six digits, or nothing where the text says so much itself."""
        sort = "" if self.sort is None else f"{self.sort:.6g}"
        return "" if sort == self.text else sort

    @property
    def dash(self) -> str:
        """Returns what stands in the cell if it is blank."""
        return blank_sign(self.reason)

    @property
    def sign(self) -> str:
        """Returns what tells the tone to those who do not see colours."""
        return SIGNS[self.tone]


def blank_sign(reason: str) -> str:
    """Returns the sign of a blank cell: what the model cannot do is told from what was not run."""
    return NOT_MASTERED_SIGN if CANNOT in reason or reason == NONE_MASTERED else NOT_RUN_SIGN


def heat_of(value: float, highest: float) -> float:
    """Returns the share of the highest value, by which a cell is coloured."""
    return round(value / highest, 3) if highest > 0 else 0.0


@dataclass(frozen=True)
class TableRow:
    """A row of a table."""

    name: str  # of its policy or task
    cells: tuple[TableCell, ...]
