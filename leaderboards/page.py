"""The pages of a run: each one file, no remote origin, readable without its script.

The front page has the boards and the mean over tasks; each task has its own page, since together they would be too
heavy to be opened at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from leaderboards.board import Board, Boards
from leaderboards.definitions import DEFINITIONS
from leaderboards.row import ALL_TASKS, FULL, SummaryRow
from leaderboards.sections import distinct, note_of, sections_of, title_of
from leaderboards.style import line_styles
from leaderboards.tables import LISTING
from leaderboards.templating import render

FRONT = "index.html"


@dataclass(frozen=True)
class PlacedBoard:
    """A board on the front page. ``page``: the address of the page of its task, or nothing."""

    identifier: str
    title: str
    note: str
    board: Board
    page: str


@dataclass(frozen=True)
class Entry:
    """One fact about the run: a text, or more facts under a name."""

    name: str
    text: str = ""
    entries: tuple["Entry", ...] = ()


def build_pages(run: Mapping[str, Any], rows: Sequence[SummaryRow], boards: Boards | None = None) -> dict[str, str]:
    """The pages as texts by their file names, the front page first. ``run``: what ``run.json`` holds; all of it is
    shown. The same input gives the same bytes. A single task has no page of its own: it is on the front page."""
    facts = _spread(run)
    tasks = _tasks(rows)
    shared: dict[str, Any] = {
        "model": _model(facts),
        "styles": list(line_styles(rows).values()),
        "listing_columns": LISTING,
    }
    front = render(
        "index.html.j2",
        facts=_facts(rows),
        task_pages={task: quote(task_page(task)) for task in tasks} if len(tasks) > 1 else {},
        boards=_placed(rows, boards or {}),
        sections=sections_of(rows, ALL_TASKS if len(tasks) > 1 else tasks[0]),
        definitions=DEFINITIONS,
        entries=_entries(facts),
        **shared,
    )
    if len(tasks) == 1:
        return {FRONT: front}
    return {FRONT: front} | {
        task_page(task): render("task.html.j2", task=task, sections=sections_of(rows, task), **shared) for task in tasks
    }


def task_page(task: str) -> str:
    """The file name of the page of a task."""
    return f"task-{task}.html"


def _tasks(rows: Sequence[SummaryRow]) -> list[str]:
    return [task for task in distinct(row.task for row in rows) if task != ALL_TASKS]


def _placed(rows: Sequence[SummaryRow], boards: Boards) -> list[PlacedBoard]:
    """The mean over tasks first, which is left out where there is one task, whose equal it would be."""
    tasks = _tasks(rows)
    shown = [
        (mode, task)
        for mode in distinct(row.mode for row in rows)
        for task in ([ALL_TASKS, *tasks] if len(tasks) > 1 else tasks)
        if (mode, task) in boards
    ]
    return [
        PlacedBoard(
            f"board-{number}",
            title_of(rows, task, mode),
            note_of(rows, task, mode),
            boards[mode, task],
            quote(task_page(task)) if task != ALL_TASKS and len(tasks) > 1 else "",
        )
        for number, (mode, task) in enumerate(shown, start=1)
    ]


def _spread(run: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a run at one level: what identifies it lies under ``identity`` in ``run.json``."""
    identity = run.get("identity")
    outside = {name: content for name, content in run.items() if name != "identity" or not isinstance(content, Mapping)}
    return {**outside, **identity} if isinstance(identity, Mapping) else outside


def _model(facts: Mapping[str, Any]) -> str:
    model = facts.get("model")
    return _text(model.get("name") if isinstance(model, Mapping) else model)


def _facts(rows: Sequence[SummaryRow]) -> list[tuple[str, str]]:
    """What was compared, in a few words each, as the rows tell it."""
    tasks = _tasks(rows)
    levels = sorted({row.asked for row in rows if row.policy != FULL})
    span = f"{levels[0]} to {levels[-1]}" if len(levels) > 1 else ""
    kind = levels[0].kind if levels else "ratio"
    questions = sum(row.n for row in rows if row.task != ALL_TASKS)
    return [
        ("Tasks", ", ".join(tasks)),
        ("Mode", ", ".join(distinct(row.mode for row in rows))),
        ("Policies", str(len(distinct(row.policy for row in rows)))),
        (f"Asked {kind}s", span or ", ".join(map(str, levels)) or "–"),
        ("Answers scored", f"{questions:,}"),
    ]


def _entries(value: Mapping[str, Any]) -> tuple[Entry, ...]:
    return tuple(_entry(str(name), content) for name, content in value.items())


def _entry(name: str, content: Any) -> Entry:
    if isinstance(content, Mapping) and content:
        return Entry(name, entries=_entries(content))
    if isinstance(content, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in content):
        return Entry(name, entries=tuple(_list_entry(number, item) for number, item in enumerate(content, start=1)))
    if isinstance(content, list | tuple):
        return Entry(name, ", ".join(_text(item) for item in content) or "none")
    return Entry(name, _text(content))


def _list_entry(number: int, item: Any) -> Entry:
    """An item of a list, under its own name where it has one."""
    if isinstance(item, Mapping) and isinstance(item.get("name"), str):
        rest = {key: content for key, content in item.items() if key != "name"}
        return _entry(item["name"], rest)
    return _entry(str(number), item)


def _text(content: Any) -> str:
    if content is None or content == {}:
        return "–"
    if isinstance(content, bool):
        return "yes" if content else "no"
    return str(content)
