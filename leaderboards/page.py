"""The page of a run: one file, no remote origin, readable without its script."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from leaderboards.board import Board, Boards
from leaderboards.definitions import DEFINITIONS
from leaderboards.figures import curve_figure
from leaderboards.measures import CURVES, TABLES, Measure
from leaderboards.row import ALL_TASKS, FULL, SummaryRow
from leaderboards.style import LineStyle, line_styles
from leaderboards.tables import LISTING, Table, listing, measure_table
from leaderboards.templating import render

# Of 4, 8 and 12 contexts, intervals of 95 % hold the truth in 82, 88 and 91 % of simulated runs.
ENOUGH_CONTEXTS = 12


@dataclass(frozen=True)
class Curve:
    measure: Measure
    drawing: Markup


@dataclass(frozen=True)
class Section:
    """All that the page says about one task in one mode."""

    identifier: str
    title: str
    note: str
    styles: tuple[LineStyle, ...]
    curves: tuple[Curve, ...]
    board: Board | None
    tables: tuple[Table, ...]
    listing: list[tuple[str, ...]]


@dataclass(frozen=True)
class Entry:
    """One fact about the run: a text, or more facts under a name."""

    name: str
    text: str = ""
    entries: tuple["Entry", ...] = ()


def build_page(run: Mapping[str, Any], rows: Sequence[SummaryRow], boards: Boards | None = None) -> str:
    """The page as text. ``run``: what ``run.json`` holds; all of it is shown. The same input gives the same bytes."""
    facts = _spread(run)
    return render(
        "index.html.j2",
        model=_model(facts),
        facts=_facts(rows),
        styles=line_styles(rows).values(),
        sections=_sections(rows, boards or {}),
        definitions=DEFINITIONS,
        entries=_entries(facts),
        listing_columns=LISTING,
    )


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
    tasks = [task for task in _distinct(row.task for row in rows) if task != ALL_TASKS]
    levels = sorted({row.asked for row in rows if row.policy != FULL})
    span = f"{levels[0]} to {levels[-1]}" if len(levels) > 1 else ""
    kind = levels[0].kind if levels else "ratio"
    questions = sum(row.n for row in rows if row.task != ALL_TASKS)
    return [
        ("Tasks", ", ".join(tasks)),
        ("Mode", ", ".join(_distinct(row.mode for row in rows))),
        ("Policies", str(len(_distinct(row.policy for row in rows)))),
        (f"Asked {kind}s", span or ", ".join(map(str, levels)) or "–"),
        ("Answers scored", f"{questions:,}"),
    ]


def _sections(rows: Sequence[SummaryRow], boards: Boards) -> list[Section]:
    """The mean over tasks first, then each task; it is left out where there is one task, whose equal it would be."""
    tasks = [task for task in _distinct(row.task for row in rows) if task != ALL_TASKS]
    modes = _distinct(row.mode for row in rows)
    shown = [(mode, task) for mode in modes for task in ([ALL_TASKS, *tasks] if len(tasks) > 1 else tasks)]
    highest = {
        measure.name: max((value for row in rows if (value := measure.value(row)) is not None), default=0.0)
        for measure in TABLES
    }
    sections = []
    for number, (mode, task) in enumerate(shown, start=1):
        if any(row.task == task and row.mode == mode for row in rows):
            name = "All tasks" if task == ALL_TASKS else task
            title = f"{name}, {mode}" if len(modes) > 1 else name
            board = boards.get((mode, task))
            sections.append(_section(rows, task, mode, f"section-{number}", title, highest, board))
    return sections


def _section(
    rows: Sequence[SummaryRow],
    task: str,
    mode: str,
    identifier: str,
    title: str,
    highest: Mapping[str, float],
    board: Board | None,
) -> Section:
    own = [row for row in rows if row.task == task and row.mode == mode]
    styles = line_styles(rows)
    most = max(own, key=lambda row: row.n)
    note = f"{_counted(most.n, 'question')} about {_counted(most.contexts, 'context')} in each cell"
    if most.chance is not None:
        note += f"; who guesses without the text reaches an F1 of {most.chance:.1f}"
    if task != ALL_TASKS and most.contexts < ENOUGH_CONTEXTS:
        note += "; with so few contexts, intervals are too narrow and verdicts too sure"
    return Section(
        identifier=identifier,
        title=title,
        note=f"Unweighted mean over the tasks; {note}" if task == ALL_TASKS else note,
        # As in the tables: methods, then controls.
        styles=tuple(sorted((styles[policy] for policy in _distinct(row.policy for row in own)), key=_is_control)),
        curves=tuple(Curve(measure, Markup(curve_figure(rows, task, mode, measure))) for measure in CURVES),
        board=board,
        tables=tuple(measure_table(own, measure, styles, highest[measure.name]) for measure in TABLES),
        listing=listing(own),
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _is_control(style: LineStyle) -> bool:
    return style.control


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


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
