"""The pages of a run: each one file, no remote origin, readable without its script.

The front page has the boards and the mean over tasks; each task has its own page, since together
they would be too heavy to be opened at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from markupsafe import Markup

from datasets_gen import TASKS
from leaderboards.aggregate.lead import (
    CARRIES_OVER,
    QUESTIONS,
    Lead,
    advice,
    is_teaching,
    lead_of,
    reasons_by_task,
)
from leaderboards.aggregate.row import ALL_TASKS, MODES, SummaryRow
from leaderboards.pages.claims import CLAIMS_PAGE, register_folder
from leaderboards.pages.gallery import HELD, WHOLE, GalleryPlot, tradeoff, what_is_kept
from leaderboards.pages.in_words import finding
from leaderboards.pages.method import TaskEntry, provenance_of
from leaderboards.pages.results import Results, distinct, dtypes_of, labels_of, task_page
from leaderboards.pages.sections import largest_of, note_of, sections_of, title_of
from leaderboards.pages.uses import FACTS_OF_PROMPT, kind_of, use_matrix, use_of
from leaderboards.rendering.style import LineStyle, line_styles
from leaderboards.rendering.templating import as_data, render
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.intervals import contexts_that_agree
from leaderboards.statistics.significance import clusters_to_detect, usual_spread
from leaderboards.statistics.text import range_text
from leaderboards.studies.attacks import leak_sections
from leaderboards.studies.parts import examples_page
from policies.declaration.levels import Level, LevelKind
from policies.declaration.names import CONTROLS, FULL

FRONT = "index.html"
SCRIPTS = ("address.js", "page.js", "hover.js")
METHOD = "method.html"
A_LITTLE = 0.5  # percent of the bytes
FACTS_ALONE = "Facts of a system prompt: at this level no directive and no attack is asked"
TRADEOFF_UNIT = Markup(
    'Up: score in percent of the full cache’s<span class="wide">, mean over tasks</span> '
    '(<a href="method.html#board">definition</a>). '
)
EACH_LEVEL = Markup(
    "Across: percent of the full cache’s bytes; a line for each policy, a point for each level"
)
SHARE_REMOVED = Markup(
    '<span class="wide">Bytes held = 100 % − ratio, unless a policy only masks tokens.</span>'
)


def place_boards(results: Sequence[Results], pages: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns what the front page has of each board."""
    boards: list[dict[str, Any]] = []
    for one, label in zip(results, labels_of(results), strict=True):
        for task in (task for task in one.shown if (one.mode, task) in one.boards):
            setting = {"model": one.model, "mode": one.mode, "setting": one.setting}
            board = {
                "identifier": f"board-{len(boards) + 1}",
                "title": title_of(task, label, one.rows),
                "note": note_of(one, task),
                "board": one.boards[one.mode, task],
                "page": pages.get(task, ""),
                "leads": _leads(one, task),  # whose area is taken
                "few": largest_of(one, task).few_contexts,  # its cells are hatched
                "families": one.families,
                # By these the page's script tells it from the other boards.
                "choices": {**setting, "task": task, "name": title_of(task, "", one.rows)},
            }
            boards.append(board)
    return boards


def _leads(results: Results, task: str) -> str:
    """Names what leads a task; over all tasks what leads each of those that the mean is over."""
    full = {row.task: row for row in results.rows if row.policy == FULL}
    by_lead: dict[Lead, list[str]] = {}
    for one in results.mastered if task == ALL_TASKS else [task]:
        by_lead.setdefault(lead_of(full.get(one)), []).append(one)
    named = {
        lead: f" in {', '.join(tasks)}" for lead, tasks in by_lead.items() if lead is not QUESTIONS
    }
    return "; ".join(
        lead.short + (named.get(lead, "") if len(by_lead) > 1 else "") for lead in by_lead
    )


def page_renderers(
    results: Sequence[Results], entries: Sequence[TaskEntry] = ()
) -> dict[str, Callable[[], str]]:
    """Returns by file name a function for each page that renders it, that of the front page first.
    A single task has no page of its own: it is on the front page. ``entries``: what is known of the
    tasks."""
    tasks = distinct(task for one in results for task in one.tasks)
    pages = {task: task_page(task) for task in tasks} if len(tasks) > 1 else {}
    rows = [row for one in results for row in one.rows]
    shared: dict[str, Any] = {
        "model": ", ".join(distinct(one.model for one in results)),
        "styles": line_styles(rows),
    }
    # by task its pages, each with what tells its results from others
    examples: dict[str, list[tuple[str, str]]] = {}
    for number, (one, label) in enumerate(zip(results, labels_of(results), strict=True), start=1):
        for task in one.tasks:
            examples.setdefault(task, []).append((label, examples_page(task, number)))
    front = partial(
        _front_page,
        results,
        facts=_facts(results, rows, tasks),
        task_pages=pages,
        shown=ALL_TASKS if pages else tasks[0],
        teaching=CARRIES_OVER if any(is_teaching(one.model) for one in results) else "",
        examples=[
            (_labelled(task, label), page)
            for task, of_task in examples.items()
            for label, page in of_task
        ],
        **shared,
    )
    renderers: dict[str, Callable[[], str]] = {FRONT: front}
    known = {entry.name: entry for entry in entries}
    around = [None, *pages.items(), None]
    for (task, page), before, after in zip(pages.items(), around, around[2:], strict=False):
        more = {
            "entry": known.get(task),
            "previous": before,
            "next": after,
            "examples": examples[task],
        }
        instead = FACTS_ALONE if use_of(task, rows) == FACTS_OF_PROMPT else ""
        renderers[page] = partial(_task_page, results, task, instead=instead, **more, **shared)
    return renderers


def _labelled(title: str, label: str) -> str:
    return f"{title}, {label}" if label else title


def _contexts_needed(rows: Sequence[SummaryRow], loss: float) -> str:
    """Writes how many contexts tell a loss of so many points: the fewer questions a context has,
    the more."""
    asked = {
        row.n / row.contexts
        for row in rows
        if row.policy == FULL and row.task != ALL_TASKS and row.contexts
    }
    needed = sorted({clusters_to_detect(loss, usual_spread(questions)) for questions in asked})
    return range_text(f"{needed[0]:,}", f"{needed[-1]:,}") if needed else "many"


def _front_page(
    results: Sequence[Results],
    shown: str,
    styles: Mapping[str, LineStyle],
    task_pages: Mapping[str, str],
    **values: Any,
) -> str:
    boards, labels, tolerance = (
        place_boards(results, task_pages),
        labels_of(results),
        results[0].tolerance,
    )
    return render(
        "index.html.j2",
        styles=styles,
        task_pages=task_pages,
        firsts=[
            _first(one, number, label, styles)
            for number, (one, label) in enumerate(zip(results, labels, strict=True), start=1)
        ],
        boards=boards,
        legend=list(
            {
                (one.name, one.meaning): one for board in boards for one in board["board"].columns
            }.values()
        ),
        studies=[
            (_labelled(title, label), page)
            for label, one in zip(labels, results, strict=True)
            for title, page in one.studies.items()
        ],
        modes=[
            MODES[mode].removesuffix(".") + f" (mode {mode})."
            for mode in distinct(one.mode for one in results)
        ],
        tolerance=f"{tolerance:g}",
        detect=_contexts_needed([row for one in results for row in one.rows], tolerance),
        enough=max(
            contexts_that_agree(tolerance / 100),
            clusters_to_detect(
                tolerance, usual_spread(TASKS["long_context"].questions_per_context)
            ),
        ),
        claims=[
            CLAIMS_PAGE,
            *(f"../{register_folder(one.model)}/{CLAIMS_PAGE}" for one in results),
        ],
        scripts=(*SCRIPTS, "board.js"),
        board_data=as_data([{"id": board["identifier"], **board["choices"]} for board in boards]),
        sections=sections_of(results, shown),
        parts=[
            replace(part, title=_labelled(part.title, "" if label in part.title.lower() else label))
            for label, one in zip(labels, results, strict=True)
            for part in one.sections
        ],
        **values,
    )


def _first(
    results: Results, number: int, label: str, styles: Mapping[str, LineStyle]
) -> dict[str, Any]:
    """Returns what the first screen of some results has; without a trade-off where nothing is
    freed, as by faults."""
    identifier, kind, picture = f"first-{number}", kind_of(results), None
    plot = tradeoff(results.rows, results.mastered, styles, identifier)
    if not isinstance(plot, Blank) and (
        kind.removes or any(spot.x <= WHOLE - A_LITTLE for spot in plot.spots)
    ):
        title = f"{what_is_kept(results.rows, results.mastered).capitalize()} over {HELD}"
        unit = TRADEOFF_UNIT + (SHARE_REMOVED if kind.removes else EACH_LEVEL)
        picture = GalleryPlot("tradeoff", title, unit, plot)
    matrix = use_matrix(results)
    return {
        "identifier": identifier,
        "label": label,
        "finding": finding(results, matrix),
        "kind": kind,
        "dtypes": dtypes_of(results.runs.values()),
        "matrix": matrix,
        "tradeoff": picture,
        "warning": nothing_mastered(results),
        "leaks": leak_sections(results.attacks),
    }


def _task_page(results: Sequence[Results], task: str, **values: Any) -> str:
    dtypes = dtypes_of(run for one in results for run in one.runs.values())
    return render(
        "task.html.j2",
        SCRIPTS,
        task=task,
        dtypes=dtypes,
        sections=sections_of(results, task),
        **values,
    )


def _facts(
    results: Sequence[Results], rows: Sequence[SummaryRow], tasks: Sequence[str]
) -> list[tuple[str, str]]:
    """Tells what was compared, in a few words each, and when, by which commit and on which
    machine."""
    levels_of_kinds: dict[LevelKind, set[Level]] = {}
    for row in rows:
        if row.policy != FULL:
            levels_of_kinds.setdefault(row.at.declared, set()).add(row.at)
    names = {row.policy for row in rows}
    runs = {folder: run for one in results for folder, run in one.runs.items()}
    unfinished = {
        folder: run for folder, run in runs.items() if run.get("status", "complete") != "complete"
    }
    return [
        ("Tasks" if len(tasks) > 1 else "Task", str(len(tasks)) if len(tasks) > 1 else tasks[0]),
        ("Mode", ", ".join(distinct(one.mode for one in results))),
        ("Policies", f"{len(names - {*CONTROLS})} methods and {len(names & {*CONTROLS})} controls"),
        *(
            (f"Asked {kind.plural}", range_text(min(levels), max(levels)))
            for kind, levels in levels_of_kinds.items()
        ),
        ("Answers scored", f"{sum(row.n for row in rows if row.task != ALL_TASKS):,}"),
        *provenance_of(list(runs.values())),
        *(
            ("Not complete", f"{folder}: {run.get('reason') or run['status']}")
            for folder, run in unfinished.items()
        ),
    ]


def nothing_mastered(results: Results) -> str:
    """Says of which tasks the model has so little that nobody is judged there, where it can do
    none, and what to run instead; empty where it can do one."""
    reasons = reasons_by_task(results.rows)
    if any(task not in reasons for task in results.tasks):
        return ""
    below = "; ".join(f"{task}: {reasons[task]}" for task in results.tasks)
    text = (
        f"The model masters no task here ({below}): numbers are shown, ranks and verdicts are "
        "withheld."
    )
    return f"{text} {advice(reasons)}"
