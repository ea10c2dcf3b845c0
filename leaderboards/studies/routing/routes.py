"""Shows why answers are wrong and what reaches them, from the stored routes and records alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

import numpy as np
import numpy.typing as npt
from pandas import DataFrame, Series

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Definition
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import SHARE, Axis, Band, Frame
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.routing.reach import EPSILON, EPSILONS
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.columns import with_levels
from leaderboards.statistics.shares import share_of
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import (
    axes_by_kind,
    full_last,
    in_percent,
    listing_of_fields,
    over_levels,
)
from leaderboards.studies.routing import rigidity
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

TABLE = "routes"  # of a store (kvbench.store.observed)
CELL = ["task", "question_id", "policy", "level_kind", "level", "repeat"]
QUESTION = ["task", "question_id"]
CONTEXT = "context"  # a column: what is resampled
SELDOM = (
    0.1  # share of a context's tokens that may reach an answer, where to be reached tells something
)
OPACITY = 0.85


class FailureClass(StrEnum):
    """The classes of answers, from below in a stack: *erased* is a failure of storage, *unreachable* one of
    accessibility; *unused*, *confused* and *silent* are failures of use [arXiv 2603.01426]."""

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
    """Joins routes with their records, of questions whose answer stands in the context. ``right_with_full`` says
    whether the full cache answers the question rightly. Answers that failed are wrong."""
    columns = [
        *CELL,
        "draw_id",
        "right",
        "answered",
        "hallucination_kind",
        "answer_tokens",
        "ratio",
        "ger",
    ]
    joined = routes.merge(records[columns], on=CELL, validate="one_to_one")
    joined = joined[joined["answer_tokens"] > 0]
    for column in ("right", "answered"):
        joined[column] = joined[column].eq(True)
    full = joined[joined["policy"] == FULL].set_index(QUESTION)["right"].rename("right_with_full")
    joined[CONTEXT] = context_names(joined)
    return joined.join(full, on=QUESTION, how="inner").reset_index(drop=True)


def reaches(widths: Series, epsilon: float) -> npt.NDArray[np.bool_]:
    """Tells which widths have at least epsilon in every step; none that is unknown has. Widths are of 32 bits."""
    return np.asarray(widths.astype(np.float32) >= np.float32(epsilon))


def classify(joined: DataFrame, epsilon: float = EPSILON) -> list[FailureClass]:
    """Returns the class of each answer of :func:`with_routes`, with edges of at least epsilon: the first that holds.
    Evidence that other tokens have read during the prefill may be gone from every slot and still be reached. What is
    said counts only where the evidence is reached."""
    reached, said = (reaches(joined[f"{of}_width"], epsilon) for of in ("answer", "said"))
    holds = {
        FailureClass.RIGHT: joined["right"],
        FailureClass.BEYOND_MODEL: ~joined["right_with_full"].astype(bool),
        FailureClass.NOT_OBSERVED: joined["unobserved"].notna(),
        FailureClass.UNREACHABLE: ~reached & joined["answer_alive"].eq(True),
        FailureClass.ERASED: ~reached,
        FailureClass.SILENT: ~joined["answered"],
        FailureClass.CONFUSED: joined["hallucination_kind"].eq("confused") & said,
    }
    found = np.select([*map(np.asarray, holds.values())], range(len(holds)), len(holds))
    classes = [*holds, FailureClass.UNUSED]
    return [classes[number] for number in found]


def telling_epsilon(joined: DataFrame) -> float:
    """Returns the least epsilon at which few tokens of a context reach an answer under the full cache; the greatest
    where many always do. It follows from the full cache alone, and not from any policy's answers."""
    full = joined[(joined["policy"] == FULL) & joined["unobserved"].isna()]
    if full.empty:
        return EPSILONS[-1]
    chances = zip(EPSILONS, np.stack(full["chance"].to_list()).mean(axis=0), strict=True)
    return next((epsilon for epsilon, chance in chances if chance <= SELDOM), EPSILONS[-1])


def shares(outcomes: Sequence[FailureClass], contexts: Sequence[str]) -> Shares:
    """Returns the share of each class; all together are 1."""
    return {
        outcome: share_of([one is outcome for one in outcomes], contexts)
        for outcome in FailureClass
    }


@dataclass(frozen=True)
class Reached:
    """Says of a policy at a level how often answers are reached by the tokens of their gold, with edges of epsilon; all
    of questions that the full cache has right."""

    task: str
    policy: str
    level: Level
    epsilon: float
    reached: Estimate
    chance: float  # how often as many tokens would reach it, drawn from the context
    relayed: Estimate  # reached though none of its rows is left, through tokens that read it in the prefill
    right: Estimate  # answers that are right
    width: float  # of the widest route, mean over answers


def reach_curves(joined: DataFrame, epsilon: float) -> Iterator[Reached]:
    """Yields how often answers are reached, by task, policy and level. ``joined``: as of :func:`with_routes`."""
    mastered = with_levels(joined[joined["unobserved"].isna() & joined["right_with_full"]])
    for (task, policy, level), group in mastered.groupby(
        ["task", "policy", "level"], observed=True
    ):
        by_chance = (
            1
            - (1 - np.stack(group["chance"].to_list()))
            ** group["answer_tokens"].to_numpy()[:, None]
        )
        alive = group["answer_alive"].eq(True).to_numpy()
        width = float(group["answer_width"].astype(float).mean())
        reached = reaches(group["answer_width"], epsilon)
        chance = float(by_chance[:, EPSILONS.index(epsilon)].mean())
        rates = [
            share_of(flags, group[CONTEXT]) for flags in (reached, reached & ~alive, group["right"])
        ]
        yield Reached(
            str(task), str(policy), level, epsilon, rates[0], chance, rates[1], rates[2], width
        )


def build_content(study_input: StudyInput) -> StudyContent:
    """Shows the share of each class of answers, and how often answers are reached, with edges of the least attention
    at which to be reached tells something: sections on classes, then those on what reaches the answer, by task."""
    joined = with_routes(study_input.tables[TABLE], study_input.records)
    epsilon = telling_epsilon(joined)
    outcomes = classify(joined, epsilon)
    groups = with_levels(joined).assign(outcome=outcomes)
    modes = _measure_modes(study_input, joined, [one is FailureClass.ERASED for one in outcomes])
    by_task: dict[str, dict[tuple[str, Level], Shares]] = {}
    rows = []
    for (task, policy, level), group in groups.groupby(
        ["task", "policy", "level"], observed=True, sort=False
    ):
        of_class = shares(group["outcome"].tolist(), group[CONTEXT].tolist())
        by_task.setdefault(str(task), {})[str(policy), level] = of_class
        cell = {"task": str(task), "policy": str(policy), "level": level, "epsilon": epsilon}
        cell["kind"] = "class"
        rows += [
            {**cell, "outcome": str(outcome), "share": share} for outcome, share in of_class.items()
        ]
    rows += _rows_of_modes(modes, epsilon)
    curves = list(reach_curves(joined, epsilon))
    return StudyContent(
        [
            *(_classes(task, found, epsilon) for task, found in by_task.items()),
            *(rigidity.build_section(task, modes) for task in by_task if modes),
            *(_reach(task, curves, epsilon) for task in dict.fromkeys(one.task for one in curves)),
        ],
        list(
            _facts(study_input.records, joined, epsilon, outcomes.count(FailureClass.NOT_OBSERVED))
        ),
        [
            Sheet.of("routing-classes", "Classes of failures", rows),
            Sheet.of("routing-reach", "How often answers are reached", [*map(vars, curves)]),
        ],
    )


def _measure_modes(
    study_input: StudyInput, joined: DataFrame, erased: Sequence[bool]
) -> list[rigidity.TwoModes]:
    """Returns how often answers are erased and rigid; nothing of a run that observed no attention."""
    attention = study_input.tables.get(rigidity.TABLE)
    if attention is None or attention.empty:
        return []
    answers = rigidity.with_rigidity(joined, attention, CELL).assign(erased=erased)
    return list(rigidity.two_modes(with_levels(answers)))


def _rows_of_modes(
    modes: Sequence[rigidity.TwoModes], epsilon: float
) -> Iterator[dict[str, object]]:
    """Yields the rows of the download that are no classes: they overlap these, and enter no sum."""
    for one in modes:
        cell = {
            "task": one.task,
            "policy": one.policy,
            "level": one.level,
            "epsilon": epsilon,
            "kind": "mode",
        }
        yield {**cell, "outcome": rigidity.RIGID, "share": one.rigid}
        yield {**cell, "outcome": rigidity.AGREE_IF_RIGHT, "share": one.heads_agree_if_right}


def find_unreachable(study_input: StudyInput) -> Series:
    """Tells by :data:`CELL` which answers no route leads to though rows of theirs are left; of those observed."""
    joined = with_routes(study_input.tables[TABLE], study_input.records)
    outcomes = classify(joined, telling_epsilon(joined))
    flags = Series(
        [one is FailureClass.UNREACHABLE for one in outcomes], index=joined.set_index(CELL).index
    )
    return flags[joined["unobserved"].isna().to_numpy()]


def _facts(
    records: DataFrame, joined: DataFrame, epsilon: float, missing: int
) -> Iterator[tuple[str, str]]:
    contexts, observed = (
        table[["task", "draw_id"]].drop_duplicates()["task"].value_counts()
        for table in (records, joined)
    )
    counts = (
        f"{observed[task]} of {contexts[task]} of {task}" for task in dict.fromkeys(joined["task"])
    )
    yield "Contexts observed", ", ".join(counts)
    yield "Not observed", f"{missing} of {len(joined)} answers" if missing else "nothing"
    yield "Least attention in each step", f"{epsilon:g}"


def _classes(task: str, found: Mapping[tuple[str, Level], Shares], epsilon: float) -> StudySection:
    styles = named_styles([*map(str, FailureClass)])
    policies = [policy for policy in dict.fromkeys(policy for policy, _ in found) if policy != FULL]
    rows = tuple(
        (policy, str(level), *(in_percent(of_class[outcome]) for outcome in FailureClass))
        for (policy, level), of_class in sorted(
            found.items(), key=lambda item: (item[0][0] != FULL, *item[0])
        )
    )
    return StudySection(
        f"classes-{task}",
        f"Why answers are wrong: {task}",
        "Each answer to a question whose answer stands in the context is in one class, stacked over the asked level, "
        f"from the full cache on. Every step of a route takes at least {epsilon:g} of some head’s attention.",
        tuple(styles.values()),
        tuple(chain.from_iterable(_stacks(task, policy, found, styles) for policy in policies)),
        details=(
            Listing(
                "Answers of each class, percent", ("policy", "level", *map(str, FailureClass)), rows
            ),
        ),
    )


def _reach(task: str, curves: Sequence[Reached], epsilon: float) -> StudySection:
    told = [one for one in curves if one.task == task]
    styles = full_last(one.policy for one in told)

    def over(title: str, estimate: Callable[[Reached], Estimate]) -> tuple[Picture, ...]:
        cells = {(one.policy, one.level): estimate(one) for one in told}
        return over_levels(cells, styles, title, "share of answers", f"{title}/{task}")

    listing = listing_of_fields(
        "Of the questions that the full cache has right, percent; width: a share",
        told,
        {"chance": ".0%", "width": ".2f"},
        leave_out=("task", "epsilon"),
    )
    return StudySection(
        f"reach-{task}",
        f"What reaches the answer: {task}",
        "Of the questions that the full cache has right: how often a route leads from the gold answer’s tokens to the "
        "place where the answer is written, and from as many tokens drawn from the context.",
        tuple(style for name, style in styles.items() if name != FULL),
        (
            *over(f"Reached, routes of at least {epsilon:g}", lambda one: one.reached),
            *over("Reached, though none of it is left", lambda one: one.relayed),
        ),
        details=(listing,),
    )


def _stacks(
    task: str,
    policy: str,
    found: Mapping[tuple[str, Level], Shares],
    styles: Mapping[str, LineStyle],
) -> Iterator[Picture]:
    """Draws the classes of one policy over its levels of each kind."""
    for ending, axis in axes_by_kind(level for name, level in found if name == policy).items():
        yield _stack(task, policy, found, styles, axis, ending)


def _stack(
    task: str,
    policy: str,
    found: Mapping[tuple[str, Level], Shares],
    styles: Mapping[str, LineStyle],
    axis: Axis,
    ending: str,
) -> Picture:
    """Draws the classes of one policy over the levels of an axis, from the full cache on. ``ending``: of its title,
    which tells pictures of the policy apart."""
    own = {
        level.value: of_class
        for (name, level), of_class in found.items()
        if name == policy and level in axis
    }
    if not own:  # it has one level, which is the same at each of the others
        own = dict.fromkeys(axis.ends, found[policy, UNTREATED])
    elif axis.origin is not None and (FULL, UNTREATED) in found:
        own[axis.origin] = found[FULL, UNTREATED]
    places = tuple(sorted(own))
    heights = np.array([[own[place][outcome].mean for outcome in FailureClass] for place in places])
    tops = np.cumsum(heights, axis=1)
    marks = tuple(
        Band.between(style, places, tuple(top - height), tuple(top), OPACITY)
        for style, top, height in zip(styles.values(), tops.T, heights.T, strict=True)
        if height.any()
    )
    title = f"{policy}: classes of answers over the {axis.title}, {task}"
    drawing = Drawing(
        Frame(axis, Axis.around("", SHARE)), marks, title, f"classes/{task}/{policy}{ending}"
    )
    return Picture(f"{policy}{ending}", "share of answers", drawing)


DEFINITIONS = (
    Definition(
        "Class of an answer",
        "The first of these that holds, of questions whose answer stands in the context. Right. Wrong with the full "
        "cache too. Not observed: the press has a prefill of its own, merges or rewrites rows, or goes on cutting "
        "while it answers, or it failed. Erased: no row of the gold answer’s tokens is left in any layer and head, and "
        "no route leads from them. Unreachable: rows are left, and no route leads from them. With a route: silent, if "
        "the answer is empty or an abstention; confused, if it is a value that the context states for something else "
        "and a route leads from there too; else reached and unused. Routes have at least the attention there with "
        "which no more than a tenth of a context’s tokens reach the answer under the full cache. They end where the "
        "answer’s first token is written: of a gold of many tokens, such as a number of seven digits, one may be "
        "reached and the rest lost, which rows put back tell from a failure of use.",
        "right + wrong with the full cache too + not observed + erased + unreachable + silent + confused + "
        "reached and unused = all answers",
        "storage, accessibility and use after arXiv 2603.01426",
    ),
    Definition(
        "Reached, and by chance",
        "Nodes are tokens before and behind each layer. A layer leads from a token to one that gives it at least "
        "epsilon of some head’s attention, and from each token to itself. Context reads context as in the uncompressed "
        "prefill; the question and the first token of the answer read the context only where a row is left. An answer "
        "is reached if a path leads from a token of the gold to the last token of the question, or to the first token "
        "of the answer, behind the last layer. By chance: 1 − (1 − c)^n, where c is the share of the context’s tokens "
        "that reach the answer and n the tokens of the gold. Relayed: reached although no row of the gold is left. "
        "Width: the least attention in the widest path; mean over answers.",
        "reached(ε) ⇔ max over paths of min over edges ≥ ε",
        "after arXiv 2603.01426, which gives no algorithm",
    ),
)
