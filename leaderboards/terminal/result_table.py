"""A result table holds values for programs, and how people see them in a terminal."""

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from leaderboards.downloads.sheets import Sheet  # which imports pandas

GAP = 2  # characters between two columns
NARROWEST = 13  # characters of a column of sentences


def cell_text(value: Any) -> str:
    """Writes a value as a table shows it; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def _no_style(value: Any) -> str:
    return ""


def _with_folded_paths(text: str, width: int) -> str:
    """Breaks words that are wider than their column behind slashes: a path then has no broken
    name."""
    part = rf"\S{{1,{width}}}$|\S{{1,{width - 1}}}/|\S+"  # the end, if it fits, or up to a slash
    return re.sub(rf"\S{{{width + 1},}}", lambda word: "\n".join(re.findall(part, word[0])), text)


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, and how its values are shown."""

    name: str
    title: str | None = None  # above the column, instead of the name
    text: Callable[[Any], str] = cell_text
    style: Callable[[Any], str] = _no_style
    right: bool = False  # numbers stand at the right
    # Takes the room that the other columns leave, and is broken between words.
    of_sentences: bool = False
    cut: bool = False  # one line, ended by … behind the last word that fits
    shown: bool = True  # one that is not shown is for programs alone


@dataclass(frozen=True)
class ResultTable:
    """A table of plain values; one ``view`` or the table itself is what people see."""

    name: str  # that of its rows for programs
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    caption: str = ""
    headed: bool = True  # with the titles of the columns
    grouped_by: str = ""  # a column whose values stand as headings above their rows
    view: RenderableType | None = None

    @classmethod
    def from_sheet(cls, name: str, sheet: "Sheet", view: RenderableType | None) -> Self:
        """Makes a table whose rows for programs are those of a download."""
        return cls(name, [Column(column) for column in sheet.columns], sheet.rows, view=view)

    @property
    def is_empty(self) -> bool:
        """Tells whether people see nothing of it: an empty view leaves it to programs alone."""
        if self.view is None:
            return not (self.rows or self.title or self.caption)
        return self.view == ""

    def plain(self) -> list[dict[str, Any]]:
        """Returns the rows for programs, each by the names of the columns."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.view is not None:
            yield self.view
            return
        width = options.max_width
        if self.title:
            yield Text(_with_folded_paths(self.title, width), "italic")
        groups: dict[Any, list[dict[str, Any]]] = {}
        for row in self.plain():
            groups.setdefault(row.get(self.grouped_by), []).append(row)
        for group, rows in groups.items():
            if self.grouped_by:
                yield Text(str(group), "bold")
            yield self._table(rows, width)
        if self.caption:
            yield Text(_with_folded_paths(self.caption, width), "dim")

    def _table(self, rows: Sequence[dict[str, Any]], width: int) -> Table:
        """Makes a table in which no word is broken: all columns but those of sentences keep their
        width."""
        shown = [column for column in self.columns if column.shown]
        texts, widths = [], []
        for column in shown:
            texts_of_column = [column.text(row[column.name]) for row in rows]
            texts.append(texts_of_column)
            widths.append(max(map(len, [self._heading(column), *texts_of_column])))
        _narrow(shown, widths, width)
        # It has a character between columns itself.
        frame = box.SIMPLE_HEAD if self.headed else None
        table = Table(box=frame, show_header=self.headed, padding=(0, GAP - self.headed, 0, 0))
        table.pad_edge = table.show_edge = False
        for place, column in enumerate(shown):
            texts[place] = _fitted(column, texts[place], widths[place])
            table.add_column(
                self._heading(column),
                justify="right" if column.right else "left",
                no_wrap=not column.of_sentences,
                overflow="fold",
                max_width=widths[place],
            )
        # As Text, since rich would read brackets in a plain value as marks of style.
        for row, *cells in zip(rows, *texts, strict=True):
            styles = (column.style(row[column.name]) for column in shown)
            table.add_row(*map(Text, cells, styles))
        return table

    def _heading(self, column: Column) -> str:
        if not self.headed:
            return ""
        return column.name if column.title is None else column.title


def _narrow(columns: Sequence[Column], widths: list[int], width: int) -> None:
    """Gives the columns that can be narrower the room that the others leave, the narrowest
    first."""
    flexible = [place for place, column in enumerate(columns) if column.of_sentences or column.cut]
    room = width - sum(widths) - GAP * (len(widths) - 1)
    room += sum(widths[place] for place in flexible)
    # What the narrowest does not need goes to the wider ones.
    flexible.sort(key=lambda place: widths[place])
    for done, place in enumerate(flexible):
        share = room // (len(flexible) - done)
        widths[place] = min(widths[place], max(NARROWEST, share))
        room -= widths[place]


def _fitted(column: Column, texts: list[str], width: int) -> list[str]:
    """Returns the texts of a column, folded or cut where they are wider."""
    if column.of_sentences:
        texts = [_with_folded_paths(text, width) for text in texts]
    if column.cut:
        texts = [
            textwrap.shorten(text, width, placeholder=" …", break_on_hyphens=False)
            for text in texts
        ]
    return texts
