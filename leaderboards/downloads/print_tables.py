"""Writes a board as text for a paper: a table in LaTeX or in Markdown."""

import re
from collections.abc import Callable, Mapping

from leaderboards.boards.board import Board
from leaderboards.boards.cells import Cell

LATEX = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}"},
        **{"○": r"$\circ$", "▲": r"$\blacktriangle$", "▼": r"$\blacktriangledown$", "–": r"\textendash{}", "−": "$-$"},
    }
)
# What Markdown would read as its own; underscores within a word are none of it.
MARKDOWN = re.compile(r"[\\`*\[\]<>|~&$]|(?<![^\W_])_|_(?![^\W_])")


def board_rows(board: Board) -> list[tuple[str, ...]]:
    """Returns the leading columns: their names, then a row for each policy, each value with what stands under it."""
    columns = [place for place, column in enumerate(board.columns) if column.leads]
    rows = [("policy", *(board.columns[place].name for place in columns))]
    for line in (*board.methods, *board.controls):
        cells = [line.cells[place] for place in columns]
        name = f"{line.name} (adapted)" if board.adapted(line.name) else line.name
        rows.append((name, *map(_in_one_line, cells)))
    return rows


def _in_one_line(cell: Cell) -> str:
    detail = cell.detail.replace("\n", ", ")
    return f"{cell.text} ({detail})" if detail else cell.text


def as_latex(board: Board) -> str:
    """Returns a tabular of the package booktabs, whose signs need amssymb."""
    head, *body = [" & ".join(_latex(text) for text in row) + r" \\" for row in board_rows(board)]
    columns = "l" + "r" * sum(column.leads for column in board.columns)
    parts = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(parts) + "\n"


def as_markdown(board: Board) -> str:
    """Returns a table as GitHub and pandoc read it."""
    rows = [[_markdown(text) for text in row] for row in board_rows(board)]
    rule = ["---", *["---:"] * (len(rows[0]) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in (rows[0], rule, *rows[1:]))


def _latex(text: str) -> str:
    """Escapes a text. A group keeps hyphens from joining to a dash, and a bracket or a star at the beginning of a row
    from being an argument of what ends the row before."""
    escaped = re.sub("(?<=-)-", "{}-", " ".join(text.split()).translate(LATEX))
    return f"{{}}{escaped}" if escaped.startswith(("[", "*")) else escaped


def _markdown(text: str) -> str:
    return MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


WRITERS: Mapping[str, Callable[[Board], str]] = {"tex": as_latex, "md": as_markdown}
