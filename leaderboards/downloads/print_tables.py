"""Writes a board or a comparison as text for a paper: a table in LaTeX or in Markdown."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from leaderboards.aggregate.comparison.duel import OF_EVERY_TWO, Duel, Verdict
from leaderboards.aggregate.comparison.pooled import Pooled
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.boards.area import AREA
from leaderboards.boards.board import Board
from leaderboards.boards.cells import TableCell
from leaderboards.boards.safe_ratio import SAFE_HEADINGS
from leaderboards.statistics.significance import p_text

NARROW = (*SAFE_HEADINGS, AREA.heading)

LATEX = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}"},
        **{"✕": r"$\times$", "±": r"$\pm$", "≥": r"$\geq$", "≤": r"$\leq$", "ρ": r"$\rho$"},
        **{"’": "'", "‘": "`", "“": "``", "”": "''", "…": r"\ldots{}", "→": r"$\to$", "χ": r"$\chi$"},
        **{"○": r"$\circ$", "▲": r"$\blacktriangle$", "▼": r"$\blacktriangledown$", "–": r"\textendash{}", "−": "$-$"},
    }
)
PACKAGES = r"% needs \usepackage[T1]{fontenc} and \usepackage{booktabs,amssymb,longtable}"
NO_LATIN = re.compile("[^\x20-\u017f]")
# What Markdown would read as its own; underscores within a word are none of it.
MARKDOWN = re.compile(r"[\\`*\[\]<>|~&$]|(?<![^\W_])_|_(?![^\W_])")


Rows = Sequence[Sequence[str]]  # the names of the columns, then the rows


@dataclass(frozen=True)
class PrintTable:
    """A table with what stands at it in a paper."""

    rows: Rows
    caption: str
    is_long: bool = False  # it goes on over pages


def board_rows(board: Board) -> Rows:
    """Returns the leading columns: their names, then a row for each policy, each value with what stands under it."""
    return _rows_of(board, [place for place, column in enumerate(board.columns) if column.leads], _in_one_line)


def narrow_board_rows(board: Board) -> Rows:
    """Returns what fits one column of a paper: the safe ratio, the area, and the measure that leads at the first level,
    without what stands under them."""
    of_all = [place for place, column in enumerate(board.columns) if column.name in NARROW]
    at_level = [place for place, column in enumerate(board.columns) if column.leads and column.at_level]
    return _rows_of(board, [*of_all, *at_level[:1]], lambda cell: cell.text)


def _rows_of(board: Board, columns: Sequence[int], text: Callable[[TableCell], str]) -> Rows:
    rows = [("policy", *(board.columns[place].name for place in columns))]
    for line in (*board.methods, *board.controls):
        cells = [line.cells[place] for place in columns]
        rows.append((_with_mark(line.name, board.is_adapted(line.name)), *map(text, cells)))
    return rows


def _with_mark(policy: str, adapted: bool) -> str:
    return f"{policy} (adapted)" if adapted else policy


def pooled_rows(pooled: Sequence[Pooled], adapted: Collection[str]) -> Rows:
    """Returns the pooled differences of a comparison, with the intervals of the test, corrected together."""
    head = ("against", "measure", "difference", "p", "verdict", "n", "tasks left out")
    return [
        head,
        *(
            (
                *(_with_mark(one.other, one.other in adapted), one.quantity),
                *(one.points.text(), "–" if one.p is None else p_text(one.p)),
                *(_with_few(one.verdict, one.fewest), one.n, ", ".join(one.left_out) or "none"),
            )
            for one in pooled
        ),
    ]


def cell_rows(duels: Sequence[Duel], adapted: Collection[str]) -> Rows:
    """Returns a row for each opponent, task and level: the differences with the intervals of the test, and the
    verdict."""
    measures = [one for name, one in OF_EVERY_TWO.items() if any(name in duel.contests for duel in duels)]
    return [
        ("against", "task", "level", *(measure.title for measure in measures), "verdict", "n"),
        *(
            (
                *(_with_mark(duel.other, duel.other in adapted), duel.task, str(duel.level)),
                *(duel.contests[one.name].text if one.name in duel.contests else "–" for one in measures),
                *(_with_few(duel.verdict, duel.contexts), str(duel.contexts)),
            )
            for duel in duels
        ),
    ]


def _with_few(verdict: Verdict, contexts: int) -> str:
    return f"{verdict} (few contexts)" if contexts < FEW_CONTEXTS else verdict


def _in_one_line(cell: TableCell) -> str:
    detail = cell.detail.replace("\n", ", ")
    return f"{cell.text} ({detail})" if detail else cell.text


def as_latex(table: PrintTable) -> str:
    """Returns a table that floats, or one that goes on over pages and repeats its head there, behind a comment that
    names the packages which it needs. What LaTeX has no sign for, of names that people gave, stands as its number in
    Unicode."""
    head, *body = [" & ".join(_latex(text) for text in row) + r" \\" for row in table.rows]
    columns = "l" + "r" * (len(table.rows[0]) - 1)
    caption = rf"\caption{{{_latex(table.caption)}}}"
    headed = [r"\toprule", head, r"\midrule"]
    if table.is_long:
        parts = [rf"\begin{{longtable}}{{{columns}}}", rf"{caption} \\", *headed, r"\endfirsthead", *headed]
        parts += [r"\endhead", r"\bottomrule", r"\endfoot", *body, r"\end{longtable}"]
    else:
        parts = [r"\begin{table}", r"\centering", caption, rf"\begin{{tabular}}{{{columns}}}", *headed, *body]
        parts += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join([PACKAGES, *parts]) + "\n"


def as_markdown(table: PrintTable) -> str:
    """Returns a table as GitHub and pandoc read it; pandoc takes the line below it for its caption."""
    texts = [[_markdown(text) for text in row] for row in table.rows]
    rule = ["---", *["---:"] * (len(table.rows[0]) - 1)]
    lines = [f"| {' | '.join(row)} |" for row in (texts[0], rule, *texts[1:])]
    return "\n".join([*lines, "", f"Table: {_markdown(table.caption)}"]) + "\n"


def _latex(text: str) -> str:
    """Escapes a text. A group keeps hyphens from joining to a dash, and a bracket or a star at the beginning of a row
    from being an argument of what ends the row before."""
    escaped = re.sub("(?<=-)-", "{}-", " ".join(text.split()).translate(LATEX))
    escaped = NO_LATIN.sub(lambda letter: f"U+{ord(letter[0]):04X}", escaped)
    return f"{{}}{escaped}" if escaped.startswith(("[", "*")) else escaped


def _markdown(text: str) -> str:
    return MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


WRITERS: Mapping[str, Callable[[PrintTable], str]] = {"tex": as_latex, "md": as_markdown}
