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
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


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
    style: Callable[[Any], str] = lambda _: ""
    right: bool = False  # numbers stand at the right
    # takes the room that the other columns leave, and is broken between words
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
    def of_sheet(cls, name: str, sheet: "Sheet", view: RenderableType | None) -> Self:
        """Makes a table whose rows for programs are those of a download."""
        return cls(name, [Column(column) for column in sheet.columns], sheet.rows, view=view)

    @property
    def is_empty(self) -> bool:  # people see nothing of it
        return self.view is None and not (self.rows or self.title or self.caption)

    def plain(self) -> list[dict[str, Any]]:
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.view is not None:
            yield self.view
            return
        if self.title:
            yield Text(_with_folded_paths(self.title, options.max_width), "italic")
        rows = self.plain()
        for group in dict.fromkeys(row.get(self.grouped_by) for row in rows):
            if self.grouped_by:
                yield Text(str(group), "bold")
            yield self._table(
                [row for row in rows if row.get(self.grouped_by) == group], options.max_width
            )
        if self.caption:
            yield Text(_with_folded_paths(self.caption, options.max_width), "dim")

    def _table(self, rows: Sequence[dict[str, Any]], width: int) -> Table:
        """Makes a table in which no word is broken: all columns but those of sentences keep their
        width."""
        shown = [column for column in self.columns if column.shown]
        titles = [
            (column.name if column.title is None else column.title) if self.headed else ""
            for column in shown
        ]
        texts = [[column.text(row[column.name]) for row in rows] for column in shown]
        widths = [max(map(len, [title, *of])) for title, of in zip(titles, texts, strict=True)]
        flexible = [
            number for number, column in enumerate(shown) if column.of_sentences or column.cut
        ]
        room = (
            width
            - sum(widths)
            - GAP * (len(widths) - 1)
            + sum(widths[number] for number in flexible)
        )
        for done, number in enumerate(sorted(flexible, key=lambda number: widths[number])):
            widths[number] = min(widths[number], max(NARROWEST, room // (len(flexible) - done)))
            room -= widths[number]
        # which has a character between columns itself
        frame = box.SIMPLE_HEAD if self.headed else None
        table = Table(box=frame, show_header=self.headed, padding=(0, GAP - self.headed, 0, 0))
        table.pad_edge = table.show_edge = False
        for column, title, of, most in zip(shown, titles, texts, widths, strict=True):
            if column.of_sentences:
                of[:] = [_with_folded_paths(text, most) for text in of]
            if column.cut:
                of[:] = [
                    textwrap.shorten(text, most, placeholder=" …", break_on_hyphens=False)
                    for text in of
                ]
            table.add_column(
                title,
                justify="right" if column.right else "left",
                no_wrap=not column.of_sentences,
                overflow="fold",
                max_width=most,
            )
        for row, *cells in zip(rows, *texts, strict=True):
            styles = (column.style(row[column.name]) for column in shown)
            table.add_row(*map(Text, cells, styles))
        return table
