"""Writes a board or a comparison as text for a paper: a table in LaTeX or in Markdown."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from leaderboards.aggregate.comparison.duel import OF_EVERY_TWO, Duel, Verdict
from leaderboards.aggregate.comparison.pooled import Pooled
from leaderboards.aggregate.lead import lead_of
from leaderboards.aggregate.ranking import mark_of
from leaderboards.aggregate.row import ALL_TASKS, FEW_CONTEXTS, RIGHT, SummaryRow
from leaderboards.boards.area import AREA
from leaderboards.boards.board import Board
from leaderboards.boards.cells import TableCell
from leaderboards.boards.safe_ratio import SAFE_HEADINGS
from leaderboards.metrics import Measure
from leaderboards.statistics.significance import p_text
from policies.declaration.levels import UNTREATED, kind_name, names_of
from policies.declaration.names import CONTROLS, FULL

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
TIE = " ○"
ONE_LEVEL = "one level"
MARKED = (
    "In bold the best of the methods of a column at a level, where the paired differences of all others from it leave "
    "out 0; ○: tied, those that cannot be told from the best, and it. Full cache and controls are not ranked."
)


@dataclass(frozen=True)
class PrintTable:
    """A table with what stands at it in a paper."""

    rows: Rows
    caption: str
    is_long: bool = False  # it goes on over pages
    bold: Collection[tuple[int, int]] = ()  # row, of which that of the names is 0, and column


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


def result_table(rows: Sequence[SummaryRow], mode: str, adapted: Collection[str], told: str) -> PrintTable:
    """Returns what leads each task, by level and policy, a column for each task that the model can do and one for their
    mean: the best in bold, ties marked. ``rows``: of all tasks. ``told``: where the numbers are from."""
    of_mode = [row for row in rows if row.mode == mode]
    measures = _columns_of(of_mode)
    by_place = {(row.task, row.policy, row.at): row for row in of_mode}
    policies = sorted(dict.fromkeys(row.policy for row in of_mode), key=lambda policy: policy in CONTROLS)
    levels = sorted({row.at for row in of_mode if row.policy != FULL}, key=lambda level: (level == UNTREATED, level))
    names = {**names_of(levels), UNTREATED: ONE_LEVEL}
    cells = [(UNTREATED, FULL), *((level, policy) for level in levels for policy in policies if policy != FULL)]
    body, bold = [("", "policy", *(_heading(task, measure) for task, measure in measures.items()))], set()
    for level, policy in cells:
        found = [(by_place.get((task, policy, level)), measure) for task, measure in measures.items()]
        if all(row is None for row, _ in found):
            continue
        marks = [mark_of(row, measure) for row, measure in found]
        bold |= {(len(body), 2 + place) for place, mark in enumerate(marks) if mark == "best"}
        texts = [
            "–" if row is None else measure.text(measure.value(row)) + TIE * (mark == "tie")
            for (row, measure), mark in zip(found, marks, strict=True)
        ]
        body.append((names[level] if policy != FULL else "", _with_mark(policy, policy in adapted), *texts))
    body[0] = (kind_name(levels), *body[0][1:])
    return PrintTable(body, f"Percent right, or what a heading names, in percent. {MARKED} {told}", True, bold)


def _columns_of(rows: Sequence[SummaryRow]) -> dict[str, Measure]:
    """Returns the measure that leads each task that the model can do; the mean over tasks where one leads them all."""
    full = {row.task: row for row in rows if row.policy == FULL and not row.not_mastered and row.task != ALL_TASKS}
    measures = {task: lead_of(row).measures[0] for task, row in full.items()}
    shared = set(measures.values())
    return measures | ({ALL_TASKS: shared.pop()} if len(measures) > 1 and len(shared) == 1 else {})


def _heading(task: str, measure: Measure) -> str:
    name = "mean" if task == ALL_TASKS else task
    return name if measure is RIGHT else f"{name}, {measure.title.lower()}"


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
    texts = _texts(table, _latex, r"\textbf{{{}}}")
    head, *body = [" & ".join(row) + r" \\" for row in texts]
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
    texts = _texts(table, _markdown, "**{}**")
    rule = ["---", *["---:"] * (len(table.rows[0]) - 1)]
    lines = [f"| {' | '.join(row)} |" for row in (texts[0], rule, *texts[1:])]
    return "\n".join([*lines, "", f"Table: {_markdown(table.caption)}"]) + "\n"


def _texts(table: PrintTable, write: Callable[[str], str], bold: str) -> list[list[str]]:
    """Writes the cells of a table; ``bold``: the format of a bold one."""
    return [
        [bold.format(write(text)) if (row, column) in table.bold else write(text) for column, text in enumerate(texts)]
        for row, texts in enumerate(table.rows)
    ]


def _latex(text: str) -> str:
    """Escapes a text. A group keeps hyphens from joining to a dash, and a bracket or a star at the beginning of a row
    from being an argument of what ends the row before."""
    escaped = re.sub("(?<=-)-", "{}-", " ".join(text.split()).translate(LATEX))
    escaped = NO_LATIN.sub(lambda letter: f"U+{ord(letter[0]):04X}", escaped)
    return f"{{}}{escaped}" if escaped.startswith(("[", "*")) else escaped


def _markdown(text: str) -> str:
    return MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


WRITERS: Mapping[str, Callable[[PrintTable], str]] = {"tex": as_latex, "md": as_markdown}
