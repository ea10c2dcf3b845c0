"""Writes the results of a run or of a comparison as a table: in LaTeX for a paper, in Markdown for
a memo."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pandas import DataFrame

from leaderboards.aggregate.duels import UNDECIDED
from leaderboards.aggregate.leading_measures import find_lead, find_mark, reasons_by_task
from leaderboards.aggregate.pooled import Pooled
from leaderboards.aggregate.row import ALL_TASKS, KEPT_TOKENS, MODES, OBEYED, RIGHT, SummaryRow
from leaderboards.metrics import Measure
from leaderboards.statistics.text import count_text, range_text
from policies.declaration.levels import UNTREATED, Level, kind_name, name_levels
from policies.declaration.names import CONTROLS, FULL

LATEX = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{
            "<": r"\textless{}",
            ">": r"\textgreater{}",
            "|": r"\textbar{}",
            "`": r"\textasciigrave{}",
        },
        **{"✕": r"$\times$", "±": r"$\pm$", "≥": r"$\geq$", "≤": r"$\leq$", "ρ": r"$\rho$"},
        **{
            "’": "'",
            "‘": "`",
            "“": "``",
            "”": "''",
            "…": r"\ldots{}",
            "→": r"$\to$",
            "χ": r"$\chi$",
        },
        **{
            "○": r"$\circ$",
            "▲": r"$\blacktriangle$",
            "▼": r"$\blacktriangledown$",
            "–": r"\textendash{}",
            "−": "$-$",
        },
    }
)
PACKAGES = r"% needs \usepackage[T1]{fontenc} and \usepackage{booktabs,amssymb,longtable}"
PAGE_ROWS = 45  # that a page of a paper holds
NO_LATIN = re.compile("[^\x20-\u017f]")
# Letters that Markdown would read as a sign: all of some, others at an end of a word, and & where
# it begins an entity.
MARKDOWN_SIGNS = re.compile(r"[\\`*|<]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)")
TESTED = "Student’s t over the contexts of each task, corrected by Holm’s method over"
MARKED = (
    "○: tied, the best of the methods of a column at a level and those that cannot be told from "
    "it{bold} ({tested} the methods of the column). Full cache and controls are not ranked."
)
BOLD = "; in bold: the best, where all others can be told from it"
AGAINST = (
    "{signs} in the {where} at that level, without a sign: not distinguished ({tested} the levels "
    "and opponents of the comparison, controls apart)."
)


@dataclass(frozen=True)
class PrintTable:
    rows: Sequence[Sequence[str]]  # the names of the columns, then the rows
    caption: str
    is_long: bool = False  # it goes on over pages
    bold: Collection[tuple[int, int]] = ()  # row, of which that of the names is 0, and column
    names: int = 1  # columns of words, which begin at the left

    def latex(self) -> str:
        """Writes it behind a comment that names the packages which it needs. What LaTeX has no sign
        for, of names that people gave, stands as its number in Unicode."""
        head, *body = self._written(_latex, r"\textbf{{{}}}")
        numbers = len(head) - self.names
        text: str = DataFrame(body, columns=head).to_latex(
            index=False,
            escape=False,
            column_format="l" * self.names + "r" * numbers,
            longtable=self.is_long,
            caption=_latex(self.caption),
        )
        return f"{PACKAGES}\n{text}"

    def markdown(self) -> str:
        """Writes it as a table between pipes, below its caption."""
        rows = self._written(_markdown, "**{}**")
        numbers = len(self.rows[0]) - self.names
        lines = [_markdown(self.caption), ""]
        for place, cells in enumerate(rows):
            lines.append(f"| {' | '.join(cells)} |")
            if place == 0:
                lines.append(f"|{' :--- |' * self.names}{' ---: |' * numbers}")
        return "\n".join([*lines, ""])

    def _written(self, escape: Callable[[str], str], bold: str) -> list[list[str]]:
        """Returns all rows with their texts escaped, and what is bold in a ``bold`` form."""
        rows = []
        for row, texts in enumerate(self.rows):
            cells = []
            for place, text in enumerate(texts):
                escaped = escape(text)
                if (row, place) in self.bold:
                    escaped = bold.format(escaped)
                cells.append(escaped)
            rows.append(cells)
        return rows


def _markdown(text: str) -> str:
    def escape(sign: re.Match[str]) -> str:
        return "&amp;" if sign[0] == "&" else f"\\{sign[0]}"

    words = " ".join(text.split())
    return MARKDOWN_SIGNS.sub(escape, words) or " "


def _latex(text: str) -> str:
    """Escapes a text. A group keeps hyphens from joining to a dash, and a bracket or a star at the
    beginning of a row from being an argument of what ends the row before."""
    escaped = re.sub("(?<=-)-", "{}-", " ".join(text.split()).translate(LATEX))
    escaped = NO_LATIN.sub(lambda letter: f"U+{ord(letter[0]):04X}", escaped)
    if escaped.startswith(("[", "*")):
        return f"{{}}{escaped}"
    return escaped


def data_sentences(
    rows: Sequence[SummaryRow], task: str, mode: str, model: str, levels: Mapping[str, str]
) -> str:
    """Says of which model, contexts and way of compression the numbers of a task are. ``levels``:
    of difficulty, by task."""
    contexts: list[int] = []
    tasks_of_means: dict[str, None] = {}
    of_mode = []
    for row in rows:
        if row.mode != mode:
            continue
        if task in (row.task, ALL_TASKS):
            of_mode.append(row)
        if row.task == task and row.n:
            contexts.append(row.fewest_contexts)
            tasks_of_means.update(dict.fromkeys(row.mean_of))
    data = count_text(min(contexts, default=0), "context")
    if task == ALL_TASKS:
        data = f"at least {data} of each task"
    data += _length_text(rows)
    for name, level in levels.items():
        if level:
            data += f", {name} at level {level}"
    if task == ALL_TASKS:
        data += f"; means are over {', '.join(tasks_of_means)}"
    notes = ""
    for name, reason in reasons_by_task(of_mode).items():
        notes += f" {name}: {reason}, so that nobody is marked."
    return f"Model {model}; {data}. {MODES[mode]}{notes}"


def _length_text(rows: Sequence[SummaryRow]) -> str:
    """Says how long the contexts are, where that was recorded."""
    lengths = []
    for row in rows:
        tokens = KEPT_TOKENS.value(row)
        if row.policy == FULL and tokens:
            lengths.append(tokens)
    if not lengths:
        return ""
    return f" of {range_text(f'{min(lengths):,.0f}', f'{max(lengths):,.0f}')} tokens"


def result_table(
    rows: Sequence[SummaryRow],
    mode: str,
    adapted: Collection[str],
    source: str,
    compared: Sequence[Pooled] = (),
    every_interval: bool = False,
) -> PrintTable:
    """Returns what leads each task, by level and policy, a column for each task and one for the
    mean over those that the model can do. ``rows``: of all tasks. ``source``: where the numbers are
    from.

    Of a run the best of a column is bold, and ties are marked. ``compared``: of a comparison, the
    mean of tasks at each level; the last column marks what is better or worse than the press, and
    nothing else is marked, as the comparison tests nothing else. ``every_interval``: whether each
    number has its interval, or those of the last column alone."""
    of_mode = [row for row in rows if row.mode == mode]
    by_place: dict[tuple[str, str, Level], SummaryRow] = {}
    levels: set[Level] = set()
    for summary_row in of_mode:
        by_place[summary_row.task, summary_row.policy, summary_row.at] = summary_row
        if summary_row.policy != FULL:
            levels.add(summary_row.at)
    measures = _leading_measures(of_mode)
    unmastered = reasons_by_task(of_mode)
    judged = [measure for task, measure in measures.items() if task not in unmastered]
    signs = _signs(compared, judged)
    # What has one level stands behind all that have several.
    in_order = sorted(levels, key=lambda level: (level == UNTREATED, level))
    names = {**name_levels(in_order), UNTREATED: "one level"}
    body: list[Sequence[str]] = [(kind_name(in_order), "policy", *_headings(measures))]
    bold = set()
    for level, policy in _in_order(of_mode, in_order):
        of_line = [by_place.get((task, policy, level)) for task in measures]
        if not any(of_line):
            continue
        texts = []
        for place, (row, measure) in enumerate(zip(of_line, measures.values(), strict=True)):
            is_last = place == len(measures) - 1
            mark = None if compared else find_mark(row, measure)
            text = "–" if row is None else measure.text(measure.value(row))
            if mark == "best":
                bold.add((len(body), 2 + place))
            if mark == "tie":
                text += " ○"
            elif is_last:
                text += signs.get((policy, level), "")
            if is_last or every_interval:
                text += _interval_text(row, measure)
            texts.append(text)
        name = f"{policy} (adapted)" if policy in adapted else policy
        body.append(("" if policy == FULL else names[level], name, *texts))
    about = "Percent right, or what a heading names, in percent; in brackets the 95 % interval."
    marks = _about_marks(compared, signs, bool(bold), len(judged))
    caption = " ".join(filter(None, (about, marks, source)))
    return PrintTable(body, caption, len(body) > PAGE_ROWS, bold, names=2)


def _headings(measures: Mapping[str, Measure]) -> list[str]:
    headings = []
    for task, measure in measures.items():
        heading = "mean" if task == ALL_TASKS else task
        if measure is not RIGHT:
            heading += f", {measure.title.lower()}"
        headings.append(heading)
    return headings


def _in_order(rows: Sequence[SummaryRow], levels: Sequence[Level]) -> Iterator[tuple[Level, str]]:
    """Yields the levels and policies of the lines: the full cache first, and controls last at each
    level."""
    names = dict.fromkeys(row.policy for row in rows if row.policy != FULL)
    policies = sorted(names, key=lambda policy: policy in CONTROLS)
    yield UNTREATED, FULL
    for level in levels:
        for policy in policies:
            yield level, policy


def _signs(compared: Sequence[Pooled], measures: Sequence[Measure]) -> dict[tuple[str, Level], str]:
    """Returns the sign of each opponent at each level, which says how it is beside the press. The
    column of directives obeyed has none: a comparison judges such a task by what leaks too."""
    if not measures or measures[-1] is OBEYED or len(set(measures)) > 1:
        return {}
    seen_from_there = {"better": " ▼", "worse": " ▲", UNDECIDED: ""}
    return {(row.other, row.level): seen_from_there[row.verdict] for row in compared}


def _about_marks(
    compared: Sequence[Pooled],
    signs: Mapping[tuple[str, Level], str],
    is_bold: bool,
    columns: int,
) -> str:
    """Says which test the marks are of."""
    if not compared:
        bold = BOLD if is_bold else ""
        return MARKED.format(bold=bold, tested=TESTED)
    if not signs:
        return ""
    beside = f"▲, ▼: better, worse than {compared[0].policy}"
    where = "mean of tasks" if columns > 1 else "task"
    return AGAINST.format(signs=beside, where=where, tested=TESTED)


def _interval_text(row: SummaryRow | None, measure: Measure) -> str:
    ends = measure.interval(row) if row else None
    if not ends:
        return ""
    return f" [{', '.join(map(measure.text, ends))}]"


def _leading_measures(rows: Sequence[SummaryRow]) -> dict[str, Measure]:
    """Returns the measure that leads each task, those that the model cannot do first, and last that
    of the mean over tasks where there are several and one measure leads all that it is over."""
    full = {row.task: row for row in rows if row.policy == FULL}
    mean = full.pop(ALL_TASKS, None)
    measures: dict[str, Measure] = {}
    for task in sorted(full, key=lambda task: full[task].not_mastered is None):
        measures[task] = find_lead(full[task]).measures[0]
    counted = mean.mean_of if mean else ()
    shared = {measures[task] for task in counted}
    if len(counted) > 1 and len(shared) == 1:
        measures[ALL_TASKS] = shared.pop()
    return measures
