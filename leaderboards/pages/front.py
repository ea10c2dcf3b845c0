"""The pages of a run: each one file, no remote origin, readable without its script.

The front page has the boards and the mean over tasks; each task has its own page, since together they would be too
heavy to be opened at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup

from leaderboards.aggregate.lead import (
    CANNOT,
    CARRIES_OVER,
    QUESTIONS,
    Lead,
    advice,
    is_teaching,
    lead_of,
    leading_measures,
    reasons_by_task,
)
from leaderboards.aggregate.row import (
    ALL_TASKS,
    DELTA_NLL,
    FEW_CONTEXTS,
    HALLUCINATION,
    MODES,
    UNANSWERED,
    WRONG_OF_ANSWERED,
    SummaryRow,
)
from leaderboards.boards.board import Board
from leaderboards.boards.safe_ratio import TOLERATED_LOSS, loss_text
from leaderboards.metrics import Measure
from leaderboards.pages.claims import CLAIMS_PAGE, register_folder
from leaderboards.pages.gallery import HELD, WHOLE, GalleryPlot, kept_share, tradeoff, what_is_kept
from leaderboards.pages.method import TaskEntry, provenance_of
from leaderboards.pages.results import Results, distinct, examples_page, labels_of, task_page
from leaderboards.pages.sections import contexts_text, largest_of, note_of, sections_of, title_of
from leaderboards.pages.uses import Use, UseMatrix, kind_of, safe_ratio_of, use_matrix
from leaderboards.rendering.style import LineStyle, line_styles
from leaderboards.rendering.templating import as_data, render
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.significance import clusters_to_detect
from policies.declaration.levels import UNTREATED, Level, LevelKind
from policies.declaration.names import CONTROLS, FULL

FRONT = "index.html"
SCRIPTS = ("address.js", "page.js", "hover.js")
METHOD = "method.html"
A_LITTLE = 0.5  # percent of the bytes
TRADEOFF_UNIT = Markup(
    'Up: score in percent of the full cache’s<span class="wide">, mean over tasks</span> '
    '(<a href="method.html#board">definition</a>). '
)
EACH_LEVEL = Markup("Across: percent of the full cache’s bytes; a line for each policy, a point for each level")
SHARE_REMOVED = Markup('<span class="wide">Bytes held = 100 % − ratio, unless a policy only masks tokens.</span>')


@dataclass(frozen=True)
class Headline:
    """A sentence, and the address of the figure that shows it."""

    text: str
    link: str


@dataclass(frozen=True)
class First:
    """The first screen of some results."""

    identifier: str
    label: str  # what tells these results from others, if there are any
    kind: LevelKind  # of what policies were asked
    matrix: UseMatrix
    tradeoff: GalleryPlot | None
    findings: Sequence[Headline]


@dataclass(frozen=True)
class PlacedBoard:
    """A board on the front page."""

    identifier: str
    title: str
    note: str
    board: Board
    page: str  # the address of the page of its task, or nothing
    task: str
    leads: str  # what its policies are ranked by, whose area is taken
    few: bool  # whether the contexts are too few for verdicts to be trusted, whose cells are hatched then
    results: Results

    @property
    def choices(self) -> dict[str, str]:
        """Returns what the page's script tells it from the other boards by."""
        one = self.results
        name = title_of(self.task, "")
        return {"model": one.model, "mode": one.mode, "setting": one.setting, "task": self.task, "name": name}


def place_boards(results: Sequence[Results], pages: Mapping[str, str]) -> list[PlacedBoard]:
    shown = [
        (one, label, task)
        for one, label in zip(results, labels_of(results), strict=True)
        for task in one.shown
        if (one.mode, task) in one.boards
    ]
    return [
        PlacedBoard(
            f"board-{number}",
            title_of(task, label),
            note_of(one, task),
            one.boards[one.mode, task],
            pages.get(task, ""),
            task,
            _leads(one, task),
            largest_of(one, task).few_contexts,
            one,
        )
        for number, (one, label, task) in enumerate(shown, start=1)
    ]


def _leads(results: Results, task: str) -> str:
    """Names what leads a task; over all tasks what leads each of those that the mean is over."""
    full = {row.task: row for row in results.rows if row.policy == FULL}
    by_lead: dict[Lead, list[str]] = {}
    for one in results.mastered if task == ALL_TASKS else [task]:
        by_lead.setdefault(lead_of(full.get(one)), []).append(one)
    return "; ".join(
        f"{lead.short} in {', '.join(tasks)}" if lead is not QUESTIONS and len(by_lead) > 1 else lead.short
        for lead, tasks in by_lead.items()
    )


def page_renderers(results: Sequence[Results], entries: Sequence[TaskEntry] = ()) -> dict[str, Callable[[], str]]:
    """Returns by file name a function for each page that renders it, that of the front page first. A single task has
    no page of its own: it is on the front page. ``entries``: what is known of the tasks."""
    tasks = distinct(task for one in results for task in one.tasks)
    pages = {task: task_page(task) for task in tasks} if len(tasks) > 1 else {}
    rows = [row for one in results for row in one.rows]
    styles = line_styles(rows)
    shared: dict[str, Any] = {
        "model": ", ".join(distinct(one.model for one in results)),
        "styles": styles,
    }
    examples = _examples_pages(results)
    front = partial(
        _front_page,
        results,
        facts=_facts(results, rows, tasks),
        task_pages=pages,
        shown=ALL_TASKS if pages else tasks[0],
        teaching=CARRIES_OVER if any(is_teaching(one.model) for one in results) else "",
        examples=[
            (f"{task}, {label}" if label else task, page)
            for task, of_task in examples.items()
            for label, page in of_task
        ],
        **shared,
    )
    renderers: dict[str, Callable[[], str]] = {FRONT: front}
    known = {entry.name: entry for entry in entries}
    around = [None, *pages.items(), None]
    for (task, page), before, after in zip(pages.items(), around, around[2:], strict=False):
        more = {"entry": known.get(task), "previous": before, "next": after, "examples": examples[task]}
        renderers[page] = partial(_task_page, results, task, **more, **shared)
    return renderers


def _examples_pages(results: Sequence[Results]) -> dict[str, list[tuple[str, str]]]:
    """Lists by task the pages of its examples, each behind what tells its results from others of the site."""
    pages: dict[str, list[tuple[str, str]]] = {}
    for number, (one, label) in enumerate(zip(results, labels_of(results), strict=True), start=1):
        for task in one.tasks:
            pages.setdefault(task, []).append((label, examples_page(task, number)))
    return pages


def _front_page(
    results: Sequence[Results],
    shown: str,
    styles: Mapping[str, LineStyle],
    task_pages: Mapping[str, str],
    **values: Any,
) -> str:
    boards = place_boards(results, task_pages)
    return render(
        "index.html.j2",
        styles=styles,
        task_pages=task_pages,
        firsts=[
            _first(one, number, label, styles, task_pages)
            for number, (one, label) in enumerate(zip(results, labels_of(results), strict=True), start=1)
        ],
        boards=boards,
        legend=list({(one.name, one.meaning): one for board in boards for one in board.board.columns}.values()),
        studies=[
            (f"{title}, {label}" if label else title, page)
            for label, one in zip(labels_of(results), results, strict=True)
            for title, page in one.studies.items()
        ],
        modes=[MODES[mode].removesuffix(".") + f" (mode {mode})." for mode in distinct(one.mode for one in results)],
        enough=clusters_to_detect(TOLERATED_LOSS),
        claims=[CLAIMS_PAGE, *(f"../{register_folder(one.model)}/{CLAIMS_PAGE}" for one in results)],
        scripts=(*SCRIPTS, "board.js"),
        board_data=as_data([{"id": board.identifier, **board.choices} for board in boards]),
        sections=sections_of(results, shown),
        **values,
    )


def _first(
    results: Results, number: int, label: str, styles: Mapping[str, LineStyle], pages: Mapping[str, str]
) -> First:
    identifier, matrix = f"first-{number}", use_matrix(results)
    plot = tradeoff(results.rows, results.mastered, styles, identifier)
    kind = kind_of(results)
    if not kind.removes and not isinstance(plot, Blank) and all(spot.x > WHOLE - A_LITTLE for spot in plot.spots):
        plot = Blank("faults free nothing")
    return First(
        identifier,
        label,
        kind,
        matrix,
        None
        if isinstance(plot, Blank)
        else GalleryPlot(
            "tradeoff",
            f"{what_is_kept(results.rows, results.mastered).capitalize()} over {HELD}",
            TRADEOFF_UNIT + (SHARE_REMOVED if kind.removes else EACH_LEVEL),
            plot,
        ),
        findings_of(results, matrix, f"section-{number}", pages),
    )


def _task_page(results: Sequence[Results], task: str, **values: Any) -> str:
    return render("task.html.j2", SCRIPTS, task=task, sections=sections_of(results, task), **values)


def _states(results: Results) -> list[str]:
    """Tells how runs ended that are not complete: what stands on the boards is then in doubt."""
    return [
        f"{folder}: {run.get('reason') or run['status']}"
        for folder, run in results.runs.items()
        if run.get("status", "complete") != "complete"
    ]


def _facts(results: Sequence[Results], rows: Sequence[SummaryRow], tasks: Sequence[str]) -> list[tuple[str, str]]:
    """Tells what was compared, in a few words each, and when, by which commit and on which machine."""
    levels_of_kinds: dict[LevelKind, set[Level]] = {}
    for row in rows:
        if row.policy != FULL:
            levels_of_kinds.setdefault(row.at.declared, set()).add(row.at)
    names = {row.policy for row in rows}
    return [
        ("Tasks" if len(tasks) > 1 else "Task", str(len(tasks)) if len(tasks) > 1 else tasks[0]),
        ("Mode", ", ".join(distinct(one.mode for one in results))),
        ("Policies", f"{len(names - {*CONTROLS})} methods and {len(names & {*CONTROLS})} controls"),
        *(
            (f"Asked {kind.plural}", " to ".join(map(str, dict.fromkeys((min(levels), max(levels))))))
            for kind, levels in levels_of_kinds.items()
        ),
        ("Answers scored", f"{sum(row.n for row in rows if row.task != ALL_TASKS):,}"),
        *provenance_of([run for one in results for run in one.runs.values()]),
        *(("Not complete", state) for one in results for state in _states(one)),
    ]


def findings_of(results: Results, matrix: UseMatrix, section: str, pages: Mapping[str, str]) -> list[Headline]:
    """Tells the most that is safe, and how the best policy goes wrong; fewer where there is nothing to tell. Where the
    model can do no task, it says this alone. ``section``: the identifier of the section of these results on each page.
    ``pages``: the file name of the page of each task that is not on the front page."""

    def figure(task: str, measure: Measure) -> str:
        return f"{pages.get(task, '')}#{section}-{measure.name}-figure"

    whole = ALL_TASKS if len(results.tasks) > 1 else results.tasks[0]
    reasons = reasons_by_task(results.rows)
    if all(task in reasons for task in results.tasks):
        below = "; ".join(f"{task}: {reasons[task].removeprefix(f'{CANNOT}: ')}" for task in results.tasks)
        text = f"The model masters no task here, so its scores say nothing about policies ({below})."
        return [Headline(f"{text} {advice(results.tasks)}", figure(whole, DELTA_NLL))]
    if most := _most(results, matrix):
        task = most.use.tasks[0]
        full = next(row for row in results.rows if (row.task, row.policy) == (task, FULL))
        found = [Headline(_shown(results, most), figure(task, leading_measures(full)[0]))]
    else:
        nothing = _nothing(results, matrix)
        found = [Headline(nothing, "#safe")] if nothing else []
    wrong = _wrong(results, whole)
    return [*found, *([Headline(wrong, figure(whole, WRONG_OF_ANSWERED))] if wrong else [])]


@dataclass(frozen=True)
class Safest:
    """The policy that is safe up to the highest ratio for a use."""

    policy: str
    use: Use
    ratio: float


def _most(results: Results, matrix: UseMatrix) -> Safest | None:
    """Finds the highest ratio of a method in some use; of several that share it, the one that keeps most there."""
    rows = {(row.task, row.policy, row.at): row for row in results.rows}
    kind = kind_of(results).name
    candidates = []
    for line in matrix.methods:
        for use, cell in zip(matrix.uses, line.cells, strict=True):
            ratio = cell.sure  # without what may be chance
            if ratio and cell.kind == kind:
                shares = [kept_share(rows, task, line.name, Level(kind, ratio)) for task in use.tasks]
                kept = min((share for share in shares if share is not None), default=0.0)
                candidates.append(((ratio, kept), Safest(line.name, use, ratio)))
    return max(candidates, key=lambda one: one[0])[1] if candidates else None


def _nothing(results: Results, matrix: UseMatrix) -> str:
    """Says that nothing is shown to be safe, where anything was measured."""
    cells = [cell for line in matrix.methods for cell in line.cells]
    if all(cell.sort is None for cell in cells):
        return ""
    chance = ": what seems to be safe may be chance" if any(cell.may_be_chance for cell in cells) else ""
    if all(use.few for use in matrix.uses):
        return f"Too few contexts ({matrix.contexts}; {FEW_CONTEXTS} at least) to call anything safe{chance}."
    return f"No policy is shown safe for anything at any {kind_of(results).name} that was asked{chance}."


def _shown(results: Results, safest: Safest) -> str:
    """Tells up to where a policy is shown to be safe, on how many contexts of which length, and the losses that were
    tested there, with their intervals."""
    use, kind = safest.use, kind_of(results).name
    fewest = min(use.tasks, key=lambda task: largest_of(results, task).fewest_contexts)
    adapted = " (adapted)" if safest.policy in _adapted(results, use) else ""
    losses = []
    for task in use.tasks:
        safe = safe_ratio_of(results, task, safest.policy)
        of_policy = (row.at for row in results.rows if (row.task, row.policy) == (task, safest.policy))
        levels = sorted({*of_policy} - {UNTREATED}, key=lambda level: level.amount)
        if not isinstance(safe, Blank):
            loss = safe.losses[levels.index(Level(kind, safest.ratio))]
            interval = (
                "" if loss.low is None or loss.high is None else f" ({loss_text(loss.low)} to {loss_text(loss.high)})"
            )
            losses.append(f"{loss_text(loss.mean)} points{interval}{f' in {task}' if len(use.tasks) > 1 else ''}")
    return (
        f"{safest.policy}{adapted} is shown safe here for {use.with_tasks} up to {kind} {safest.ratio:g}, on "
        f"{contexts_text(results, fewest)}{f' of {use.length}' if use.length else ''}: it loses {', '.join(losses)}."
    )


def _adapted(results: Results, use: Use) -> set[str]:
    """Finds the policies that ran with other arguments than their papers' on the tasks of a use."""
    boards = [results.boards[results.mode, task] for task in use.tasks if (results.mode, task) in results.boards]
    return {policy for board in boards for policy in board.presses if board.is_adapted(policy)}


def _wrong(results: Results, task: str) -> str:
    """Tells how often what the first policy of the board still answers is wrong, at the last level at which it
    answers anything in each task."""
    board = results.boards.get((results.mode, task))
    if board is None or not board.methods:
        return ""
    policy = board.methods[0].name
    rows = {(row.policy, row.at): row for row in results.rows if row.task == task}
    full = rows.get((FULL, UNTREATED))
    known = {at: row for (name, at), row in rows.items() if name == policy and WRONG_OF_ANSWERED.value(row) is not None}
    if full is None or WRONG_OF_ANSWERED.value(full) is None or not known:
        return ""
    level = max(known, key=lambda level: level.amount)

    def beside(measure: Measure) -> str:
        one, other = (f"{measure.factor * (measure.value(row) or 0):.0f} %" for row in (known[level], full))
        return f"{one} (full cache {other})"

    return (
        f"{'' if level == UNTREATED else f'At {level.where}, '}{policy} leaves {beside(UNANSWERED)} of the questions "
        f"unanswered. Of its answers {beside(WRONG_OF_ANSWERED)} are wrong. Of all questions it answers "
        f"{beside(HALLUCINATION)} wrongly."
    )
