"""Gathers the figures of a run: the curves of its pages, the trade-off, small multiples, maps over
layers, and distributions over contexts and answers. Every number is that of a row, a profile or a
record that pages show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from pandas import DataFrame

from leaderboards.aggregate.arguments import Arguments, adapted_presses
from leaderboards.aggregate.leading_measures import first_shown
from leaderboards.aggregate.row import ALL_TASKS, GER, WRONG_OF_ANSWERED, SummaryRow, is_told
from leaderboards.boards.profiles import Profile, Profiles
from leaderboards.downloads.sheets import file_name
from leaderboards.metrics import Measure
from leaderboards.pages.gallery import GalleryPlot, gallery, tradeoff
from leaderboards.paper.pictures import Box, Distribution, Panel, PaperFigure
from leaderboards.rendering.style import LineStyle, line_styles, named_styles, with_adapted
from leaderboards.rendering.templating import HeatMap, Tile
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import Study, StudyContent
from policies.declaration.levels import UNTREATED, Level, name_levels
from policies.declaration.names import CONTROLS, RANDOM

Styles = Mapping[str, LineStyle]
MAPS_BESIDE = 4  # maps of policies in a row, on paper that is wide enough
OUTCOMES_BESIDE = 3  # panels with boxes of three outcomes at each level, which need more room
GRID_MEASURES = 3  # of a grid of tasks and measures
RIGHT_ANSWER, WRONG, SILENT = OUTCOMES = ("right", "wrong", "silent")
ONE_LEVEL = "one level"


def figures_of_run(
    rows: Sequence[SummaryRow], records: DataFrame, presses: Sequence[Arguments]
) -> Iterator[PaperFigure]:
    """Yields all figures, those of one task and mode after the other. ``presses``: how policies
    were built."""
    profiles = Profiles.of(records, rows)
    levels = with_levels(records)
    for mode in dict.fromkeys(row.mode for row in rows):
        of_mode = [row for row in rows if row.mode == mode]
        styles = with_adapted(line_styles(rows), adapted_presses(presses))
        curves: dict[str, list[GalleryPlot]] = {}
        for task in dict.fromkeys(row.task for row in of_mode):
            of_task = [press for press in presses if task in (press.task, ALL_TASKS)]
            styles_of_task = with_adapted(line_styles(rows), adapted_presses(of_task))
            curves[task] = gallery(of_mode, task, mode, styles_of_task)
            yield from _curves(curves[task], task, mode)
            rows_of_task = [row for row in of_mode if row.task == task]
            yield from _maps_of_layers(rows_of_task, task, mode)
            # Contexts and answers are of one task each.
            if task != ALL_TASKS:
                yield from _differences(
                    profiles.board_profiles(mode, task), task, mode, styles_of_task
                )
                at_task = (levels["task"] == task) & (levels["mode"] == mode)
                yield from _evicted_by_outcome(levels[at_task], rows_of_task)
        yield from _tradeoff(of_mode, mode, styles)
        yield from _small_multiples(of_mode, curves, mode)


def figures_of_study(study: Study, content: StudyContent) -> Iterator[PaperFigure]:
    """Yields the pictures and maps of a study as its page has them."""
    for part in content.parts:
        for number, (title, picture) in enumerate(part.printable, start=1):
            stem = f"{study.name}-{file_name(part.identifier)}-{number}"
            yield PaperFigure.of(study.name, stem, title, picture)


def _curves(plots: Sequence[GalleryPlot], task: str, mode: str) -> Iterator[PaperFigure]:
    for plot in plots:
        stem = _stem(plot.identifier, task, mode)
        yield PaperFigure.of(plot.name, stem, plot.plot.heading, plot.plot.drawing)


def _stem(name: str, task: str, mode: str) -> str:
    return f"{name}-{file_name(task)}-{file_name(mode)}"


def _where(task: str, mode: str) -> str:
    return f"{'mean over tasks' if task == ALL_TASKS else task}, {mode}"


def _tradeoff(rows: Sequence[SummaryRow], mode: str, styles: Styles) -> Iterator[PaperFigure]:
    tasks = list(dict.fromkeys(row.task for row in rows if row.task != ALL_TASKS))
    task, mean_of = next(iter(tasks), ALL_TASKS), tuple(tasks)
    for row in rows:
        if row.task == ALL_TASKS:
            task, mean_of = ALL_TASKS, tuple(row.mean_of)
            break
    plot = tradeoff(rows, mean_of, styles)
    if not isinstance(plot, Blank):
        stem = _stem("tradeoff", task, mode)
        heading = f"{plot.heading}: {_where(task, mode)}"
        yield PaperFigure.of("tradeoff", stem, heading, plot.drawing)


def _small_multiples(
    rows: Sequence[SummaryRow], curves: Mapping[str, Sequence[GalleryPlot]], mode: str
) -> Iterator[PaperFigure]:
    """Yields a grid for each kind of level, whose rows are tasks and whose columns are measures:
    what leads most tasks, then what is wrong of what is answered, and GER."""
    tasks = [task for task in curves if task != ALL_TASKS]
    if len(tasks) < 2:
        return
    measures = _measures_of_grid(rows, tasks)
    kinds: dict[str, None] = {}
    for of_task in curves.values():
        kinds.update(dict.fromkeys(plot.kind for plot in of_task))
    for kind in kinds:
        by_place: dict[str, dict[str, GalleryPlot]] = {}
        for task in tasks:
            by_place[task] = {plot.name: plot for plot in curves[task] if plot.kind == kind}
        shown = []
        for measure in measures:
            # A grid has no holes: only what each task has.
            if all(measure.name in of_task for of_task in by_place.values()):
                shown.append(measure)
        shown = shown[:GRID_MEASURES]
        if not shown:
            continue
        panels = []
        for task, plots in by_place.items():
            for measure in shown:
                panels.append(_panel(plots[measure.name], task, measure))
        stem = _stem(f"tasks-{kind}" if kind else "tasks", ALL_TASKS, mode)
        heading = f"Tasks and measures, {mode}"
        yield PaperFigure("tasks", stem, heading, tuple(panels), columns=len(shown))


def _measures_of_grid(rows: Sequence[SummaryRow], tasks: Sequence[str]) -> list[Measure]:
    leading: list[Measure] = []
    for task in tasks:
        leading += first_shown(task, [row for row in rows if row.task == task])
    # What leads most tasks first; a stable sort leaves the others in the order of the tasks.
    in_order = sorted(leading, key=leading.count, reverse=True)
    return list(dict.fromkeys((*in_order, WRONG_OF_ANSWERED, GER)))


def _panel(plot: GalleryPlot, task: str, measure: Measure) -> Panel:
    """Makes a panel whose title says what its vertical axis is."""
    drawing = plot.plot.drawing
    frame = replace(drawing.frame, vertical=replace(drawing.frame.vertical, title=""))
    return Panel(f"{task}: {measure.title}, {measure.unit}", replace(drawing, frame=frame))


def _maps_of_layers(rows: Sequence[SummaryRow], task: str, mode: str) -> Iterator[PaperFigure]:
    """Yields a map for each policy that removes tokens: GER within each layer alone, over the
    levels."""
    if not is_told(GER, rows):
        return
    by_policy: dict[str, dict[Level, tuple[float, ...]]] = {}
    for row in _removing(rows):
        if row.ger_by_layer:
            by_policy.setdefault(row.policy, {})[row.at] = row.ger_by_layer
    panels = []
    for policy, by_level in by_policy.items():
        panels.append(Panel(policy, _map_of_layers(by_level)))
    if panels:
        heading = f"GER of each layer taken alone: {_where(task, mode)}"
        stem = _stem("ger-layers", task, mode)
        yield PaperFigure("ger-layers", stem, heading, tuple(panels), columns=MAPS_BESIDE)


def _removing(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Selects the rows of treatments that remove tokens, those of methods before those of
    controls."""
    methods, controls = [], []
    for row in rows:
        if row.at == UNTREATED or row.removes_nothing:
            continue
        if row.policy in CONTROLS:
            controls.append(row)
        else:
            methods.append(row)
    return [*methods, *controls]


def _map_of_layers(by_level: Mapping[Level, Sequence[float]]) -> HeatMap:
    levels = sorted(by_level)
    names = name_levels(levels)
    layers = max(map(len, by_level.values()))
    rows = []
    for layer in range(layers):
        tiles = tuple(_tile(by_level[level], layer) for level in levels)
        rows.append((str(layer), tiles))
    columns = tuple(names[level] for level in levels)
    return HeatMap("GER by layer", "layer", columns, tuple(rows), levels[0].declared.axis, "GER")


def _tile(shares: Sequence[float], layer: int) -> Tile | None:
    if layer >= len(shares):
        return None
    share = shares[layer]
    return Tile(f"{share:.2f}", "", share)


def _differences(
    profiles: Mapping[str, Profile], task: str, mode: str, styles: Styles
) -> Iterator[PaperFigure]:
    """Yields for each kind of level how the difference from the full cache is spread over contexts,
    in points of what leads the task: a loss is negative."""
    by_kind: dict[str, list[Profile]] = {}
    for policy, profile in profiles.items():
        if not _is_compared(policy) or isinstance(profile.leads, Blank):
            continue
        highest = profile.levels[-1]
        # A box over ratios and one over rates have no axis in common.
        by_kind.setdefault("" if highest == UNTREATED else highest.kind, []).append(profile)
    for kind, members in by_kind.items():
        boxes = _boxes(members, styles)
        across = members[0].levels[-1].declared.axis if kind else ONE_LEVEL
        picture = Distribution(across, "difference from the full cache, points", boxes)
        if len(by_kind) > 1:
            name = f"differences-{kind or 'one-level'}"
        else:
            name = "differences"
        heading = f"Difference from the full cache, by context: {_where(task, mode)}"
        yield PaperFigure.of("differences", _stem(name, task, mode), heading, picture)


def _is_compared(policy: str) -> bool:
    """Tells whether a policy has boxes: of controls, which have one colour, chance alone stands
    beside methods."""
    return policy not in CONTROLS or policy == RANDOM


def _boxes(profiles: Sequence[Profile], styles: Styles) -> tuple[Box, ...]:
    """Makes a box for each policy and level; where two measures lead the task, of their mean in
    each context."""
    treated: set[Level] = set()
    for profile in profiles:
        treated.update(profile.levels[1:])
    levels = sorted(treated)
    names = {**name_levels(levels), UNTREATED: ONE_LEVEL}
    boxes = []
    for level in levels:
        for profile in profiles:
            if level in profile.levels[1:]:
                # From place 1 on: place 0 is the full cache, which has the same level as what is
                # untreated by design.
                place = profile.levels.index(level, 1)
                values = differences_by_context(profile, place)
                boxes.append(Box(names[level], styles[profile.policy], values))
    return tuple(boxes)


def differences_by_context(profile: Profile, place: int) -> tuple[float, ...]:
    """Returns for each context of a task by how many points a level is better than the full
    cache."""
    if isinstance(profile.leads, Blank):
        return ()
    # Of one task alone, as contexts of several are no common set.
    (measures,) = profile.leads
    # The contexts that have all measures: a mean of one of them would be of something else.
    shared = measures[0].there
    for measure in measures[1:]:
        shared = shared & measure.there
    gains = np.zeros(int(shared.sum()))
    for measure in measures:
        gains += measure.heights[place, shared] - measure.heights[0, shared]
    return tuple((gains / len(measures)).tolist())


def _evicted_by_outcome(answers: DataFrame, rows: Sequence[SummaryRow]) -> Iterator[PaperFigure]:
    """Yields a panel for each policy: GER of the answers that are right, wrong and silent, level by
    level."""
    if not is_told(GER, rows):
        return
    task, mode = rows[0].task, rows[0].mode
    judged = answers[answers["ger"].notna() & answers["right"].notna()]
    policies = dict.fromkeys(row.policy for row in _removing(rows))
    panels = []
    for policy in filter(_is_compared, policies):
        of_policy = judged[judged["policy"] == policy]
        boxes = outcome_boxes(of_policy)
        if boxes:
            across = of_policy["level"].iloc[0].declared.axis
            panels.append(Panel(policy, Distribution(across, "GER", boxes, (0, 1))))
    if panels:
        heading = f"GER of right, wrong and silent answers: {_where(task, mode)}"
        stem = _stem("ger-outcome", task, mode)
        yield PaperFigure("ger-outcome", stem, heading, tuple(panels), columns=OUTCOMES_BESIDE)


def outcome_boxes(answers: DataFrame) -> tuple[Box, ...]:
    """Makes the boxes of one policy. ``answers``: with a GER, and levels as of
    :func:`with_levels`."""
    styles = named_styles(OUTCOMES)
    right, answered = answers["right"] == 1, answers["answered"].eq(True)
    outcomes = {RIGHT_ANSWER: right, WRONG: ~right & answered, SILENT: ~right & ~answered}
    levels = sorted(set(answers["level"]))
    names = name_levels(levels)
    boxes = []
    for level in levels:
        for outcome, holds in outcomes.items():
            values = answers.loc[holds & (answers["level"] == level), "ger"]
            if len(values):
                boxes.append(Box(names[level], styles[outcome], tuple(map(float, values))))
    return tuple(boxes)
