"""Makes the sections of a page: one task, or the mean over tasks, of some results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboards.aggregate.leading_measures import (
    QUESTIONS,
    RANKED,
    TEXT,
    find_lead,
    find_mark,
    first_shown,
    leading_first,
)
from leaderboards.aggregate.row import (
    ALL_TASKS,
    DELTA_NLL,
    GER,
    KEPT_TOKENS,
    KV_BYTES,
    REALISED_RATIO,
    SLOT_COVERAGE,
    SummaryRow,
    is_told,
    share_as_count,
)
from leaderboards.boards.declaration import TableCell, TableRow
from leaderboards.metrics import TABLES, Measure
from leaderboards.metrics.declaration import size_text
from leaderboards.pages.gallery import CAUTIONS, gallery
from leaderboards.pages.results import Results, distinct_labels, tasks_by_count
from leaderboards.pages.uses import with_use
from leaderboards.rendering.style import LineStyle, line_styles, with_adapted
from leaderboards.statistics.text import count_text, ends_text, interval_text
from leaderboards.studies.attacks import leak_sections
from leaderboards.studies.parts import examples_at, examples_page
from policies.declaration.levels import UNTREATED, Level, kind_title, name_levels
from policies.declaration.names import CONTROLS, FULL

NOT_RUN = "not run"
BAR_HEIGHT = 10


@dataclass(frozen=True)
class Table:
    measure: Measure
    beside: str  # what stands under each value
    title: str  # of the columns
    columns: tuple[str, ...]
    reference: TableRow | None  # the full cache, which has one cell for all levels
    methods: tuple[TableRow, ...]
    controls: tuple[TableRow, ...]
    one_level: tuple[TableRow, ...]  # of what has no levels, as int4: one cell each
    notes: tuple[str, ...]

    @property
    def ranked(self) -> bool:
        """Tells whether the best of a column is marked."""
        return self.measure in RANKED

    @property
    def caution(self) -> str:
        """Says what the measure must not be read as."""
        return CAUTIONS.get(self.measure, "")


def make_sections(results: Sequence[Results], task: str) -> list[dict[str, Any]]:
    """Makes a section for each of the results that show the task; lines and heat are those of the
    whole site."""
    rows: list[SummaryRow] = []
    for of_setting in results:
        rows += of_setting.rows
    styles = line_styles(rows)
    highest = {}
    for measure in TABLES:
        # Over all sections of the site, so that one shade is the same number in each.
        highest[measure.name] = max(measure.value(row) or 0.0 for row in rows)
    sections = []
    labels = distinct_labels(results)
    for number, (of_setting, label) in enumerate(zip(results, labels, strict=True), start=1):
        if task in of_setting.shown:
            title = section_title(task, label, of_setting.rows)
            sections.append(_section(of_setting, number, task, title, styles, highest))
    return sections


def section_title(task: str, label: str, rows: Sequence[SummaryRow]) -> str:
    """Names a section or board. ``rows``: of the results that it is of."""
    title = "All tasks" if task == ALL_TASKS else with_use(task, rows)
    if label:
        return f"{title}, {label}"
    return title


def rows_on(task: str, results: Results) -> list[SummaryRow]:
    """Selects the rows of a task."""
    return [row for row in results.rows if row.task == task]


def largest_row(results: Results, task: str) -> SummaryRow:
    """Returns the row of a task with the most questions."""
    # A cell that was cut short has fewer than the task.
    return max(rows_on(task, results), key=lambda row: row.n)


def section_note(results: Results, task: str) -> str:
    """Says how many questions and contexts a task has, and what a reader has to know of it."""
    largest = largest_row(results, task)
    is_mean = task == ALL_TASKS
    lead = QUESTIONS if is_mean else find_lead(largest)
    size = f"Each cell has {count_text(largest.n, lead.unit)}"
    if lead is not TEXT:
        size += f" about {contexts_text(results, task)}"
    sentences = [size]
    if largest.not_mastered:
        sentences.insert(0, _why_withheld(results, task, largest.not_mastered))
    elif is_mean:
        sentences.insert(0, _about_mean(results))
    levels = []
    for name, level in results.levels.items():
        if is_mean or name == task:
            levels.append(f"{level} in {name}")
    if levels:
        sentences.append(f"Level of difficulty: {', '.join(levels)}")
    if largest.chance is not None:
        sentences.append(f"Right by a guess without the text {largest.chance:.1f} %")
    if largest.obeyed_by_silence is not None:
        obeyed = f"{largest.obeyed_by_silence:.0f} % of the directives"
        sentences.append(f"“I don’t know” obeys {obeyed}")
    if largest.few_contexts:
        contexts = count_text(largest.fewest_contexts, "context")
        warning = f"With as few as {contexts} of a task, intervals may be too narrow"
        if not largest.not_mastered:
            warning += " and verdicts too sure: their cells are hatched"
        sentences.append(warning)
    return " ".join(f"{sentence}." for sentence in sentences)


def _why_withheld(results: Results, task: str, reason: str) -> str:
    beginning = reason[:1].upper() + reason[1:]
    text = f"{beginning}: numbers are shown, ranks and verdicts are withheld"
    if is_told(DELTA_NLL, rows_on(task, results)):
        text += "; the rise of the right answer’s NLL, which moves before answers do, comes first"
    return text


def _about_mean(results: Results) -> str:
    """Says which tasks a mean is over."""
    text = f"Unweighted mean over {len(results.mastered)} of {len(results.tasks)} tasks"
    left_out = [name for name in results.tasks if name not in results.mastered]
    if left_out:
        names = ", ".join(left_out)
        text += f", without {names}, which the model cannot do with the full cache"
    return text


def contexts_text(results: Results, task: str) -> str:
    """Writes how many contexts there are, over several tasks those of each."""
    whole = count_text(largest_row(results, task).contexts, "context")
    if task != ALL_TASKS:
        return whole
    counts = {}
    for name in results.mastered or results.tasks:
        counts[name] = largest_row(results, name).contexts
    parts = []
    for count, tasks in tasks_by_count(counts).items():
        each = "each " if len(tasks) > 1 else ""
        parts.append(f"{count} {each}of {', '.join(tasks)}")
    return f"{whole}: {'; '.join(parts)}"


def _section(
    results: Results,
    number: int,
    task: str,
    title: str,
    styles: Mapping[str, LineStyle],
    highest: Mapping[str, float],
) -> dict[str, Any]:
    rows_of_task = rows_on(task, results)
    board = results.boards.get((results.mode, task))
    # A press may be adapted on one task, whose contexts are short, and not on another.
    styles = with_adapted(styles, board.adapted if board else ())
    shown = dict.fromkeys(styles[row.policy] for row in rows_of_task)
    in_order = sorted(shown, key=lambda style: style.control)
    examples = "" if task == ALL_TASKS else examples_page(task, number)
    identifier = f"section-{number}"
    pictures = gallery(results.rows, task, results.mode, styles, identifier)
    if task == ALL_TASKS:
        pictures = [picture for picture in pictures if picture.leads]
    leading = first_shown(task, rows_of_task)[:1]
    tables = []
    for measure in leading_first(TABLES, task, rows_of_task):
        of_measure = highest[measure.name]
        if measure in leading:
            tables.append(measure_table(rows_of_task, measure, of_measure, examples))
        elif is_told(measure, rows_of_task):
            tables.append(measure_table(rows_of_task, measure, of_measure))
    return {
        "identifier": identifier,
        "title": title,
        "note": section_note(results, task),
        "leaks": leak_sections([cell for cell in results.attacks if cell.task == task]),
        "styles": {style.policy: style for style in in_order},
        "pictures": pictures,
        "tables": tables,
    }


def measure_table(
    rows: Sequence[SummaryRow], measure: Measure, highest: float, examples: str = ""
) -> Table:
    """Makes the table of one task and mode, whose ``rows`` these are. ``highest``: the value of
    full heat. ``examples``: the name of the page of examples, if there is one."""
    has_levels = {row.policy for row in rows if row.at != UNTREATED}
    levels_shown: set[Level] = set()
    by_place: dict[tuple[str, Level], SummaryRow] = {}
    for summary_row in rows:
        by_place[summary_row.policy, summary_row.at] = summary_row
        if summary_row.policy in has_levels:
            levels_shown.add(summary_row.at)
    levels = sorted(levels_shown)
    names = name_levels(levels)
    notes: dict[str, list[str]] = {}
    reference: TableRow | None = None
    methods: list[TableRow] = []
    controls: list[TableRow] = []
    one_level: list[TableRow] = []
    for policy in dict.fromkeys(row.policy for row in rows):
        places = {UNTREATED: policy}
        if policy in has_levels:
            places = {level: f"{policy} at {name}" for level, name in names.items()}
        cells = []
        for level, where in places.items():
            row = by_place.get((policy, level))
            cells.append(_cell(row, measure, highest, notes, where, examples))
        line = TableRow(policy, tuple(cells))
        if policy == FULL:
            reference = line
        if policy in has_levels and policy in CONTROLS:
            controls.append(line)
        elif policy in has_levels:
            methods.append(line)
        elif policy != FULL:
            one_level.append(line)
    beside, _ = BESIDE.get(measure.name, ("95 % interval", None))
    return Table(
        measure=measure,
        beside=beside,
        title=kind_title(levels) if levels else "",
        columns=tuple(names.values()),
        reference=reference,
        methods=tuple(methods),
        controls=tuple(controls),
        one_level=tuple(one_level),
        notes=tuple(f"{reason} ({_shortened(where)})" for reason, where in notes.items()),
    )


def _cell(
    row: SummaryRow | None,
    measure: Measure,
    highest: float,
    notes: dict[str, list[str]],
    where: str,
    examples: str,
) -> TableCell:
    value = None if row is None else measure.value(row)
    if row is None or value is None:
        reason = NOT_RUN
        if row is not None:
            reason = row.reason or f"no {measure.title} was recorded"
        notes.setdefault(reason, []).append(where)
        # Footnotes are numbered in the order in which their reasons first appear.
        return TableCell(reason=reason, note=list(notes).index(reason) + 1)
    layers = row.ger_by_layer or () if measure is GER else ()
    return TableCell(
        text=share_as_count(row, measure) or measure.text(value),
        detail=_detail(row, measure),
        heat=round(value / highest, 3) if highest > 0 else 0.0,
        sort=value,
        mark=find_mark(row, measure),
        bars=_bars(layers),
        layers=len(layers),
        # Of each table they would be a fifth of the page.
        examples=examples_at(examples, row.policy, row.at) if examples else "",
    )


def _detail(row: SummaryRow, measure: Measure) -> str:
    if measure.name in BESIDE:
        _, write_beside = BESIDE[measure.name]
        return write_beside(row)
    if share_as_count(row, measure):
        return ""
    digits = 0 if measure.factor > 1 else measure.digits
    interval = measure.interval(row)
    if measure.top is None:  # a difference, whose ends have signs
        return ends_text(interval, measure.factor, digits)
    return interval_text(interval, measure.factor, digits)


def _size(row: SummaryRow) -> str:
    tokens = KEPT_TOKENS.value(row)
    if tokens is None:
        return "–"
    return f"{tokens:.0f}, {size_text(KV_BYTES.value(row))}"


def _coverage(row: SummaryRow) -> str:
    coverage = SLOT_COVERAGE.value(row)
    if coverage is None:
        return "–"
    return f"{coverage:.2f}"


# Under each value of a table, where that is not its interval: what it is, and how it is written.
BESIDE: Mapping[str, tuple[str, Callable[[SummaryRow], str]]] = {
    GER.name: (
        "slot coverage of the evidence; the bars are the GER of each layer taken alone",
        _coverage,
    ),
    REALISED_RATIO.name: ("mean tokens read in a head, mean bytes held for one context", _size),
}


def _shortened(places: Sequence[str], longest: int = 12) -> str:
    shown = ", ".join(places[:longest])
    rest = len(places) - longest
    if rest > 0:
        shown += f" and {rest} more"
    return shown


def _bars(layers: Sequence[float]) -> str:
    """Draws a small bar chart as an SVG path, whose strokes are the bars."""
    path = ""
    for layer, share in enumerate(layers):
        if share > 0:
            height = round(BAR_HEIGHT * (1 - share), 1)
            path += f"M{layer} {BAR_HEIGHT}V{height:g}"
    return path
