"""Shows why answers are wrong and what reaches them, from the stored routes and records alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from pandas import DataFrame, Series

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import SHARE, Axis, Band, Frame
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.routing.reach import EPSILON, EPSILONS
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.columns import with_levels
from leaderboards.statistics.shares import estimate_share
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import (
    axes_by_kind,
    full_last,
    in_percent,
    listing_of_fields,
    over_levels,
    without_full,
)
from leaderboards.studies.routing import rigidity
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

TABLE = "routes"  # of a store (kvbench.studies.routing)
CELL = ["task", "question_id", "policy", "level_kind", "level", "repeat"]
QUESTION = ["task", "question_id"]
CONTEXT = "context"  # a column: what is resampled
# Share of a context's tokens that may reach an answer, where to be reached tells something.
SELDOM = 0.1
OPACITY = 0.85


class FailureClass(StrEnum):
    """The classes of answers, from below in a stack: *erased* is a failure of storage,
    *unreachable* one of accessibility; *unused*, *confused* and *silent* are failures of use [arXiv
    2603.01426]."""

    RIGHT = "right"
    BEYOND_MODEL = "wrong with the full cache too"
    UNUSED = "reached and unused"
    CONFUSED = "confused"
    SILENT = "silent"
    UNREACHABLE = "unreachable"
    ERASED = "erased"
    NOT_OBSERVED = "not observed"


DEFINED = (FailureClass.RIGHT, FailureClass.CONFUSED)  # by the names of metrics
Shares = dict[FailureClass, Estimate]


def context_names(rows: DataFrame) -> Series:
    """Names the context of each row, which is the same however it is written."""
    named: Series = rows["task"].astype(str) + "/" + rows["draw_id"].astype(str)
    return named


def with_routes(routes: DataFrame, records: DataFrame) -> DataFrame:
    """Joins routes with their records, of questions whose answer stands in the context.
    ``right_with_full`` says whether the full cache answers the question rightly. Answers that
    failed are wrong."""
    of_record = [
        "draw_id",
        "right",
        "answered",
        "hallucination_kind",
        "answer_tokens",
        "ratio",
        "ger",
    ]
    joined = routes.merge(records[[*CELL, *of_record]], on=CELL, validate="one_to_one")
    joined = joined[joined["answer_tokens"] > 0]
    for column in ("right", "answered"):
        joined[column] = joined[column].eq(True)
    joined[CONTEXT] = context_names(joined)
    # Whether the model knows the answer at all decides between a failure of the policy and one of
    # the model.
    full = joined[joined["policy"] == FULL].set_index(QUESTION)
    right_with_full = full["right"].rename("right_with_full")
    # A question that the full cache was not asked has no class.
    return joined.join(right_with_full, on=QUESTION, how="inner").reset_index(drop=True)


def reaches(widths: Series, epsilon: float) -> npt.NDArray[np.bool_]:
    """Tells which widths have at least epsilon in every step, shape (answers,); none that is
    unknown has. Widths are of 32 bits."""
    return np.asarray(widths.astype(np.float32) >= np.float32(epsilon))


def classify(joined: DataFrame, epsilon: float = EPSILON) -> list[FailureClass]:
    """Returns the class of each answer of :func:`with_routes`, with edges of at least epsilon: the
    first that holds. Evidence that other tokens have read during the prefill may be gone from every
    slot and still be reached. What is said counts only where the evidence is reached."""
    reached = reaches(joined["answer_width"], epsilon)
    said = reaches(joined["said_width"], epsilon)
    # The order matters: of what no route leads from, the answer is unreachable where rows are left,
    # and erased where none is.
    holds = {
        FailureClass.RIGHT: joined["right"],
        FailureClass.BEYOND_MODEL: ~joined["right_with_full"].astype(bool),
        FailureClass.NOT_OBSERVED: joined["unobserved"].notna(),
        FailureClass.UNREACHABLE: ~reached & joined["answer_alive"].eq(True),
        FailureClass.ERASED: ~reached,
        FailureClass.SILENT: ~joined["answered"],
        FailureClass.CONFUSED: joined["hallucination_kind"].eq("confused") & said,
    }
    classes = [*holds, FailureClass.UNUSED]
    conditions = list(map(np.asarray, holds.values()))
    numbers = np.select(conditions, range(len(holds)), len(holds))
    return [classes[number] for number in numbers]


def telling_epsilon(joined: DataFrame) -> float:
    """Returns the least epsilon at which few tokens of a context reach an answer under the full
    cache; the greatest where many always do. It follows from the full cache alone, and not from any
    policy's answers."""
    full = joined[(joined["policy"] == FULL) & joined["unobserved"].isna()]
    if full.empty:
        return EPSILONS[-1]
    chances = np.stack(full["chance"].to_list()).mean(axis=0)
    for epsilon, chance in zip(EPSILONS, chances, strict=True):
        # Thresholds ascend, so that the first that few tokens pass is the least.
        if chance <= SELDOM:
            return epsilon
    return EPSILONS[-1]


def shares(outcomes: Sequence[FailureClass], contexts: Sequence[str]) -> Shares:
    """Returns the share of each class; all together are 1."""
    of_class = {}
    for failure_class in FailureClass:
        flags = [outcome is failure_class for outcome in outcomes]
        of_class[failure_class] = estimate_share(flags, contexts)
    return of_class


@dataclass(frozen=True)
class Reached:
    """Says of a policy at a level how often answers are reached by the tokens of their gold, with
    edges of epsilon; all of questions that the full cache has right."""

    task: str
    policy: str
    level: Level
    epsilon: float
    reached: Estimate
    chance: float  # how often as many tokens would reach it, drawn from the context
    # Reached though none of its rows is left, through tokens that read it in the prefill.
    relayed: Estimate
    right: Estimate  # answers that are right
    width: float  # of the widest route, mean over answers


def reach_curves(joined: DataFrame, epsilon: float) -> Iterator[Reached]:
    """Yields how often answers are reached, by task, policy and level. ``joined``: as of
    :func:`with_routes`."""
    place = EPSILONS.index(epsilon)
    cell = ["task", "policy", "level"]
    # Only questions that the full cache has right: a route to a wrong answer explains nothing of
    # the policy.
    mastered = with_levels(joined[joined["unobserved"].isna() & joined["right_with_full"]])
    for (task, policy, level), group in mastered.groupby(cell, observed=True):
        contexts = group[CONTEXT]
        reached = reaches(group["answer_width"], epsilon)
        alive = group["answer_alive"].eq(True).to_numpy()
        tokens = group["answer_tokens"].to_numpy()
        # Shape (answers, epsilons): the chance that any of so many tokens reaches the answer.
        by_chance = 1 - (1 - np.stack(group["chance"].to_list())) ** tokens[:, None]
        yield Reached(
            str(task),
            str(policy),
            level,
            epsilon,
            reached=estimate_share(reached, contexts),
            chance=float(by_chance[:, place].mean()),
            relayed=estimate_share(reached & ~alive, contexts),
            right=estimate_share(group["right"], contexts),
            width=float(group["answer_width"].astype(float).mean()),
        )


def build_content(study_input: StudyInput) -> StudyContent:
    """Shows the share of each class of answers, and how often answers are reached, with edges of
    the least attention at which to be reached tells something: sections on classes, then those on
    what reaches the answer, by task."""
    joined = with_routes(study_input.tables[TABLE], study_input.records)
    epsilon = telling_epsilon(joined)
    outcomes = classify(joined, epsilon)
    by_task = _shares_by_task(joined, outcomes)
    modes = _measure_modes(study_input, joined, outcomes)
    curves = list(reach_curves(joined, epsilon))
    sections = []
    for task, of_task in by_task.items():
        sections.append(_classes(task, of_task, epsilon))
    if modes:
        sections += [rigidity.build_section(task, modes) for task in by_task]
    for task in dict.fromkeys(reached.task for reached in curves):
        sections.append(_reach(task, curves, epsilon))
    missing = outcomes.count(FailureClass.NOT_OBSERVED)
    rows = [*_rows_of_classes(by_task, epsilon), *_rows_of_modes(modes, epsilon)]
    return StudyContent(
        sections,
        list(_facts(study_input.records, joined, epsilon, missing)),
        [
            Sheet.of("routing-classes", "Classes of failures", rows),
            Sheet.of("routing-reach", "How often answers are reached", [*map(vars, curves)]),
        ],
    )


def _shares_by_task(
    joined: DataFrame, outcomes: Sequence[FailureClass]
) -> dict[str, dict[tuple[str, Level], Shares]]:
    """Returns the shares of the classes by task, then by policy and level."""
    by_task: dict[str, dict[tuple[str, Level], Shares]] = {}
    answers = with_levels(joined).assign(outcome=outcomes)
    groups = answers.groupby(["task", "policy", "level"], observed=True, sort=False)
    for (task, policy, level), group in groups:
        of_class = shares(group["outcome"].tolist(), group[CONTEXT].tolist())
        by_task.setdefault(str(task), {})[str(policy), level] = of_class
    return by_task


def _rows_of_classes(
    by_task: Mapping[str, Mapping[tuple[str, Level], Shares]], epsilon: float
) -> Iterator[dict[str, object]]:
    """Yields the rows of the download that are classes."""
    for task, of_task in by_task.items():
        for (policy, level), of_class in of_task.items():
            cell = {"task": task, "policy": policy, "level": level, "epsilon": epsilon}
            for outcome, share in of_class.items():
                yield {**cell, "kind": "class", "outcome": str(outcome), "share": share}


def _measure_modes(
    study_input: StudyInput, joined: DataFrame, outcomes: Sequence[FailureClass]
) -> list[rigidity.TwoModes]:
    """Returns how often answers are erased and rigid; nothing of a run that observed no
    attention."""
    attention = study_input.tables.get(rigidity.TABLE)
    if attention is None or attention.empty:
        return []
    erased = [outcome is FailureClass.ERASED for outcome in outcomes]
    answers = rigidity.with_rigidity(joined, attention, CELL).assign(erased=erased)
    return list(rigidity.two_modes(with_levels(answers)))


def _rows_of_modes(
    modes: Sequence[rigidity.TwoModes], epsilon: float
) -> Iterator[dict[str, object]]:
    """Yields the rows of the download that are no classes: they overlap these, and enter no sum."""
    for mode in modes:
        cell = {"task": mode.task, "policy": mode.policy, "level": mode.level, "epsilon": epsilon}
        agree = mode.heads_agree_if_right
        yield {**cell, "kind": "mode", "outcome": rigidity.RIGID, "share": mode.rigid}
        yield {**cell, "kind": "mode", "outcome": rigidity.AGREE_IF_RIGHT, "share": agree}


def find_unreachable(study_input: StudyInput) -> Series:
    """Tells by :data:`CELL` which answers no route leads to though rows of theirs are left; of
    those observed."""
    joined = with_routes(study_input.tables[TABLE], study_input.records)
    outcomes = classify(joined, telling_epsilon(joined))
    values = [outcome is FailureClass.UNREACHABLE for outcome in outcomes]
    flags = Series(values, index=joined.set_index(CELL).index)
    return flags[joined["unobserved"].isna().to_numpy()]


def _facts(
    records: DataFrame, joined: DataFrame, epsilon: float, missing: int
) -> Iterator[tuple[str, str]]:
    contexts = _count_contexts(records)
    observed = _count_contexts(joined)
    counts = []
    for task in joined["task"].unique():
        counts.append(f"{observed[task]} of {contexts[task]} of {task}")
    yield "Contexts observed", ", ".join(counts)
    yield "Not observed", f"{missing} of {len(joined)} answers" if missing else "nothing"
    yield "Least attention in each step", f"{epsilon:g}"


def _count_contexts(rows: DataFrame) -> Series:
    """Counts the contexts of each task."""
    counts: Series = rows[["task", "draw_id"]].drop_duplicates()["task"].value_counts()
    return counts


def _classes(task: str, cells: Mapping[tuple[str, Level], Shares], epsilon: float) -> StudySection:
    styles = named_styles([*map(str, FailureClass)])
    pictures: list[Picture] = []
    for policy in dict.fromkeys(policy for policy, _ in cells):
        if policy != FULL:
            pictures += _stacks(task, policy, cells, styles)
    rows = []
    for policy, level in sorted(cells, key=lambda cell: (cell[0] != FULL, *cell)):
        of_class = cells[policy, level]
        percent = [in_percent(of_class[outcome]) for outcome in FailureClass]
        rows.append((policy, str(level), *percent))
    columns = ("policy", "level", *map(str, FailureClass))
    listing = Listing("Answers of each class, percent", columns, tuple(rows))
    text = (
        "Each answer to a question whose answer stands in the context is in one class, stacked "
        "over the asked level, from the full cache on. Every step of a route takes at least "
        f"{epsilon:g} of some head’s attention."
    )
    title = f"Why answers are wrong: {task}"
    shown = tuple(styles.values())
    return StudySection(f"classes-{task}", title, text, shown, tuple(pictures), details=(listing,))


def _reach(task: str, curves: Sequence[Reached], epsilon: float) -> StudySection:
    of_task: list[Reached] = []
    reached_at: dict[tuple[str, Level], Estimate] = {}
    relayed_at: dict[tuple[str, Level], Estimate] = {}
    for reached in curves:
        if reached.task == task:
            of_task.append(reached)
            reached_at[reached.policy, reached.level] = reached.reached
            relayed_at[reached.policy, reached.level] = reached.relayed
    styles = full_last(policy for policy, _ in reached_at)
    title = f"Reached, routes of at least {epsilon:g}"
    relayed_title = "Reached, though none of it is left"
    note = "share of answers"
    pictures = (
        *over_levels(reached_at, styles, title, note, f"{title}/{task}"),
        *over_levels(relayed_at, styles, relayed_title, note, f"{relayed_title}/{task}"),
    )
    listing = listing_of_fields(
        "Of the questions that the full cache has right, percent; width: a share",
        of_task,
        {"chance": ".0%", "width": ".2f"},
        leave_out=("task", "epsilon"),
    )
    text = (
        "Of the questions that the full cache has right: how often a route leads from the gold "
        "answer’s tokens to the place where the answer is written, and from as many tokens drawn "
        "from the context."
    )
    shown = without_full(styles)
    heading = f"What reaches the answer: {task}"
    return StudySection(f"reach-{task}", heading, text, shown, pictures, details=(listing,))


def _stacks(
    task: str,
    policy: str,
    cells: Mapping[tuple[str, Level], Shares],
    styles: Mapping[str, LineStyle],
) -> Iterator[Picture]:
    """Draws the classes of one policy over its levels of each kind."""
    levels = [level for name, level in cells if name == policy]
    for ending, axis in axes_by_kind(levels).items():
        places = _places(policy, cells, axis)
        yield _stack(f"{policy}{ending}", policy, task, places, styles, axis)


def _places(
    policy: str, cells: Mapping[tuple[str, Level], Shares], axis: Axis
) -> dict[float, Shares]:
    """Returns the shares of a policy by their place on an axis, from the full cache on."""
    places = {}
    for (name, level), of_class in cells.items():
        if name == policy and level in axis:
            places[level.value] = of_class
    if not places:  # it has one level, which is the same at each of the others
        return dict.fromkeys(axis.ends, cells[policy, UNTREATED])
    if axis.origin is not None and (FULL, UNTREATED) in cells:
        places[axis.origin] = cells[FULL, UNTREATED]
    return places


def _stack(
    title: str,
    policy: str,
    task: str,
    places: Mapping[float, Shares],
    styles: Mapping[str, LineStyle],
    axis: Axis,
) -> Picture:
    """Draws the classes of one policy over the levels of an axis. ``title``: tells pictures of the
    policy apart."""
    across = tuple(sorted(places))
    heights = np.zeros((len(across), len(FailureClass)))
    for row, place in enumerate(across):
        for column, outcome in enumerate(FailureClass):
            heights[row, column] = places[place][outcome].mean
    tops = np.cumsum(heights, axis=1)
    marks = []
    for style, top, height in zip(styles.values(), tops.T, heights.T, strict=True):
        if height.any():
            below = tuple(top - height)
            marks.append(Band.between(style, across, below, tuple(top), OPACITY))
    words = f"{policy}: classes of answers over the {axis.title}, {task}"
    frame = Frame(axis, Axis.around("", SHARE))
    drawing = Drawing(frame, tuple(marks), words, f"classes/{task}/{title}")
    return Picture(title, "share of answers", drawing)
