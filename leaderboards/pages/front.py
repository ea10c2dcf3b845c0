"""The pages of a run: each one file, no remote origin, readable without its script.

The front page has the boards and the mean over tasks; each task has its own page, since together
they would be too heavy to be opened at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any

from markupsafe import Markup

from datasets_gen import TASKS
from leaderboards.aggregate.leading_measures import (
    CARRIES_OVER,
    QUESTIONS,
    Lead,
    advice,
    find_lead,
    is_teaching,
    reasons_by_task,
)
from leaderboards.aggregate.row import ALL_TASKS, MODES, SummaryRow
from leaderboards.boards.board import BoardColumn
from leaderboards.pages.gallery import HELD, WHOLE, GalleryPlot, tradeoff, what_is_kept
from leaderboards.pages.in_words import finding
from leaderboards.pages.method import TaskEntry, provenance_facts
from leaderboards.pages.results import Results, distinct, distinct_labels, dtype_names, task_page
from leaderboards.pages.sections import largest_row, make_sections, section_note, section_title
from leaderboards.pages.uses import FACTS_OF_PROMPT, use_for, use_matrix, usual_kind
from leaderboards.rendering.style import LineStyle, line_styles
from leaderboards.rendering.templating import ALONE, Neighbours, as_data, render
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.power import clusters_to_detect, usual_spread
from leaderboards.statistics.safe_ratio import contexts_that_agree
from leaderboards.statistics.text import range_text
from leaderboards.studies.attacks import leak_sections
from leaderboards.studies.parts import examples_page
from policies.declaration.levels import Level, LevelKind
from policies.declaration.names import CONTROLS, FULL

FRONT = "index.html"
SCRIPTS = ("address.js", "page.js", "hover.js")
METHOD = "method.html"
CLAIMS_PAGE = "claims.html"  # of a register, which is linked where it lies
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


def register_folder(model: str) -> str:
    """Names the folder that the register of claims of a model has in the folder of all sites."""
    return f"claims-{PurePath(model).name}"


def place_boards(results: Sequence[Results], pages: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns what the front page has of each board."""
    boards: list[dict[str, Any]] = []
    for of_setting, label in zip(results, distinct_labels(results), strict=True):
        for task in of_setting.shown:
            if (of_setting.mode, task) in of_setting.boards:
                board = _placed_board(of_setting, task, label)
                board["identifier"] = f"board-{len(boards) + 1}"
                board["page"] = pages.get(task, "")
                boards.append(board)
    return boards


def _placed_board(results: Results, task: str, label: str) -> dict[str, Any]:
    choices = {
        "model": results.model,
        "mode": results.mode,
        "setting": results.setting,
        "task": task,
        "name": section_title(task, "", results.rows),
    }
    return {
        "title": section_title(task, label, results.rows),
        "note": section_note(results, task),
        "board": results.boards[results.mode, task],
        "leads": _leads(results, task),  # whose area is taken
        "few": largest_row(results, task).few_contexts,  # its cells are hatched
        "families": results.families,
        "choices": choices,  # by these the page's script tells it from the other boards
    }


def _leads(results: Results, task: str) -> str:
    """Names what leads a task; over all tasks what leads each of those that the mean is over."""
    full = {row.task: row for row in results.rows if row.policy == FULL}
    tasks = results.mastered if task == ALL_TASKS else [task]
    by_lead: dict[Lead, list[str]] = {}
    for name in tasks:
        by_lead.setdefault(find_lead(full.get(name)), []).append(name)
    words = []
    for lead, of_lead in by_lead.items():
        if len(by_lead) == 1 or lead is QUESTIONS:
            words.append(lead.short)
        else:
            words.append(f"{lead.short} in {', '.join(of_lead)}")
    return "; ".join(words)


def page_renderers(
    results: Sequence[Results],
    entries: Sequence[TaskEntry] = (),
    neighbours: Neighbours = ALONE,
) -> dict[str, Callable[[], str]]:
    """Returns by file name a function for each page that renders it, that of the front page first.
    A single task has no page of its own: it is on the front page. ``entries``: what a reader has to
    know of the tasks."""
    rows = _all_rows(results)
    names = dict[str, None]()  # of the tasks, in the order of the settings
    for of_setting in results:
        names.update(dict.fromkeys(of_setting.tasks))
    tasks = list(names)
    pages = dict[str, str]()
    if len(tasks) > 1:
        pages = {task: task_page(task) for task in tasks}
    models = distinct(of_setting.model for of_setting in results)
    shared: dict[str, Any] = {
        "model": ", ".join(models),
        "styles": line_styles(rows),
        "neighbours": neighbours,
    }
    examples = _examples_by_task(results)
    links = []
    for task, of_task in examples.items():
        for label, page in of_task:
            links.append((_labelled(task, label), page))
    teaches = any(map(is_teaching, models))
    front = partial(
        _front_page,
        results,
        facts=_facts(results, rows, tasks),
        task_pages=pages,
        shown=ALL_TASKS if pages else tasks[0],
        teaching=CARRIES_OVER if teaches else "",
        examples=links,
        **shared,
    )
    renderers: dict[str, Callable[[], str]] = {FRONT: front}
    entry_by_task = {entry.name: entry for entry in entries}
    # With nothing at both ends, before the first page and behind the last.
    around = [None, *pages.items(), None]
    for place, (task, page) in enumerate(pages.items()):
        is_of_facts = use_for(task, rows) == FACTS_OF_PROMPT
        renderers[page] = partial(
            _task_page,
            results,
            task,
            entry=entry_by_task.get(task),
            previous=around[place],
            next=around[place + 2],
            examples=examples[task],
            instead=FACTS_ALONE if is_of_facts else "",
            **shared,
        )
    return renderers


def _all_rows(results: Sequence[Results]) -> list[SummaryRow]:
    rows: list[SummaryRow] = []
    for of_setting in results:
        rows += of_setting.rows
    return rows


def _examples_by_task(results: Sequence[Results]) -> dict[str, list[tuple[str, str]]]:
    """Returns for each task its pages of examples, each with what tells its results from others."""
    examples: dict[str, list[tuple[str, str]]] = {}
    labels = distinct_labels(results)
    for number, (of_setting, label) in enumerate(zip(results, labels, strict=True), start=1):
        for task in of_setting.tasks:
            examples.setdefault(task, []).append((label, examples_page(task, number)))
    return examples


def _labelled(title: str, label: str) -> str:
    if label:
        return f"{title}, {label}"
    return title


def _contexts_needed(rows: Sequence[SummaryRow], loss: float) -> str:
    """Writes how many contexts tell a loss of so many points: the fewer questions a context has,
    the more."""
    needed = set()
    for row in rows:
        if row.policy == FULL and row.task != ALL_TASKS and row.contexts:
            needed.add(clusters_to_detect(loss, usual_spread(row.n / row.contexts)))
    if not needed:
        return "many"
    return range_text(f"{min(needed):,}", f"{max(needed):,}")


def _front_page(
    results: Sequence[Results],
    shown: str,
    styles: Mapping[str, LineStyle],
    task_pages: Mapping[str, str],
    **values: Any,
) -> str:
    boards = place_boards(results, task_pages)
    labels = distinct_labels(results)
    tolerance = results[0].tolerance
    firsts, studies, parts = [], [], []
    for number, (of_setting, label) in enumerate(zip(results, labels, strict=True), start=1):
        firsts.append(_first(of_setting, number, label, styles))
        for title, page in of_setting.studies.items():
            studies.append((_labelled(title, label), page))
        for part in of_setting.sections:
            # A title of a section may say already which results it is of.
            is_named = label in part.title.lower()
            parts.append(replace(part, title=_labelled(part.title, "" if is_named else label)))
    described = []
    for mode in distinct(of_setting.mode for of_setting in results):
        described.append(f"{MODES[mode].removesuffix('.')} (mode {mode}).")
    spread = usual_spread(TASKS["long_context"].questions_per_context)
    agreeing, detecting = (
        contexts_that_agree(tolerance / 100),
        clusters_to_detect(tolerance, spread),
    )
    claims = [CLAIMS_PAGE]
    for of_setting in results:
        claims.append(f"../{register_folder(of_setting.model)}/{CLAIMS_PAGE}")
    return render(
        "index.html.j2",
        styles=styles,
        task_pages=task_pages,
        firsts=firsts,
        boards=boards,
        legend=_legend(boards),
        studies=studies,
        modes=described,
        tolerance=f"{tolerance:g}",
        detect=_contexts_needed(_all_rows(results), tolerance),
        enough=max(agreeing, detecting),
        claims=claims,
        scripts=(*SCRIPTS, "board.js"),
        board_data=as_data([{"id": board["identifier"], **board["choices"]} for board in boards]),
        sections=make_sections(results, shown),
        parts=parts,
        **values,
    )


def build_matrix(results: Sequence[Results]) -> str:
    """Returns the matrix of the first page as a page of its own, for a notebook: without a script,
    in light and in dark."""
    styles = line_styles(_all_rows(results))
    firsts = []
    labels = distinct_labels(results)
    for number, (of_setting, label) in enumerate(zip(results, labels, strict=True), start=1):
        firsts.append(_first(of_setting, number, label, styles))
    return render(
        "notebook.html.j2",
        (),
        styles=styles,
        model=", ".join(distinct(of_setting.model for of_setting in results)),
        firsts=firsts,
        tolerance=f"{results[0].tolerance:g}",
    )


def _legend(boards: Sequence[Mapping[str, Any]]) -> list[BoardColumn]:
    """Lists the columns of all boards, each once."""
    columns: dict[tuple[str, str], BoardColumn] = {}
    for board in boards:
        for column in board["board"].columns:
            columns[column.name, column.meaning] = column
    return list(columns.values())


def _first(
    results: Results, number: int, label: str, styles: Mapping[str, LineStyle]
) -> dict[str, Any]:
    """Returns what the first screen of some results has."""
    identifier = f"first-{number}"
    matrix = use_matrix(results)
    return {
        "identifier": identifier,
        "label": label,
        "finding": finding(results, matrix),
        "kind": usual_kind(results),
        "dtypes": dtype_names(results.runs.values()),
        "matrix": matrix,
        "tradeoff": _tradeoff(results, identifier, styles),
        "warning": nothing_mastered(results),
        "leaks": leak_sections(results.attacks),
    }


def _tradeoff(
    results: Results, identifier: str, styles: Mapping[str, LineStyle]
) -> GalleryPlot | None:
    """Draws the trade-off, but where nothing is freed, as by faults."""
    plot = tradeoff(results.rows, results.mastered, styles, identifier)
    if isinstance(plot, Blank):
        return None
    removes = usual_kind(results).removes
    # Only where nothing is meant to be freed: an eviction that frees nothing is worth showing as an
    # upright line.
    if not removes and all(spot.x > WHOLE - A_LITTLE for spot in plot.spots):
        return None
    kept = what_is_kept(results.rows, results.mastered)
    unit = TRADEOFF_UNIT + (SHARE_REMOVED if removes else EACH_LEVEL)
    return GalleryPlot("tradeoff", f"{kept.capitalize()} over {HELD}", unit, plot)


def _task_page(results: Sequence[Results], task: str, **values: Any) -> str:
    runs: list[Mapping[str, Any]] = []
    for of_setting in results:
        runs += of_setting.runs.values()
    return render(
        "task.html.j2",
        SCRIPTS,
        task=task,
        dtypes=dtype_names(runs),
        sections=make_sections(results, task),
        **values,
    )


def _facts(
    results: Sequence[Results], rows: Sequence[SummaryRow], tasks: Sequence[str]
) -> list[tuple[str, str]]:
    """Tells what was compared, in a few words each, and when, by which commit and on which
    machine."""
    policies = set()
    answers = 0
    for row in rows:
        policies.add(row.policy)
        if row.task != ALL_TASKS:
            answers += row.n
    controls = policies & {*CONTROLS}
    methods = policies - controls
    subject = ("Task", tasks[0])
    if len(tasks) > 1:
        subject = ("Tasks", str(len(tasks)))
    facts = [
        subject,
        ("Mode", ", ".join(distinct(of_setting.mode for of_setting in results))),
        ("Policies", f"{len(methods)} methods and {len(controls)} controls"),
    ]
    levels_of_kinds: dict[LevelKind, set[Level]] = {}
    for row in rows:
        if row.policy != FULL:
            levels_of_kinds.setdefault(row.at.declared, set()).add(row.at)
    for kind, levels in levels_of_kinds.items():
        facts.append((f"Asked {kind.plural}", range_text(min(levels), max(levels))))
    facts.append(("Answers scored", f"{answers:,}"))
    runs: dict[str, Mapping[str, Any]] = {}
    for of_setting in results:
        runs |= of_setting.runs
    facts += provenance_facts(list(runs.values()))
    for folder, run in runs.items():
        if run.get("status", "complete") != "complete":
            facts.append(("Not complete", f"{folder}: {run.get('reason') or run['status']}"))
    return facts


def nothing_mastered(results: Results) -> str:
    """Says of which tasks the model has so little that nobody is judged there, where it can do
    none, and what to run instead; empty where it can do one."""
    reasons = reasons_by_task(results.rows)
    if any(task not in reasons for task in results.tasks):
        return ""
    below = "; ".join(f"{task}: {reasons[task]}" for task in results.tasks)
    withheld = "numbers are shown, ranks and verdicts are withheld"
    return f"The model masters no task here ({below}): {withheld}. {advice(reasons)}"
