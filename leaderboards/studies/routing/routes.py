"""Shows why answers are wrong and what reaches them, from the stored routes and records alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from pandas import DataFrame, Series

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration.definition import Definition, estimates
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import SHARE, Axis, Band, Frame
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.routing.failures import AnswerFacts, FailureClass, outcome_of
from leaderboards.routing.reach import EPSILON, EPSILONS
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import Picture, StudyInput, StudySection
from leaderboards.studies.parts import (
    curve,
    estimate_of,
    exactly,
    full_last,
    in_percent,
    line_of,
    listing_of,
    over_levels,
)
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

TABLE = "routes"  # of a store (kvbench.store.observed)
CELL = ["task", "question_id", "policy", "level_kind", "level", "repeat"]
QUESTION = ["task", "question_id"]
CONTEXT = "context"  # a column: what is resampled
# The columns of a board, and the classes of their answers: with a route, whatever is said instead.
USES = (FailureClass.SILENT, FailureClass.CONFUSED, FailureClass.UNUSED)
SELDOM = 0.1  # share of a context's tokens that may reach an answer, where to be reached tells something
OPACITY = 0.85
DEFINED = (FailureClass.RIGHT, FailureClass.CONFUSED)  # by the names of metrics
# From below in a stack. Colours go by the order of STYLED.
STACKED = (
    *(FailureClass.RIGHT, FailureClass.BEYOND_MODEL, FailureClass.UNUSED, FailureClass.CONFUSED, FailureClass.SILENT),
    *(FailureClass.UNREACHABLE, FailureClass.ERASED, FailureClass.NOT_OBSERVED),
)
STYLED = (
    *(FailureClass.UNUSED, FailureClass.ERASED, FailureClass.RIGHT, FailureClass.CONFUSED),
    *(FailureClass.UNREACHABLE, FailureClass.SILENT, FailureClass.NOT_OBSERVED, FailureClass.BEYOND_MODEL),
)
GOLD, ANY = "the gold answer", "as many tokens, drawn"
Shares = dict[FailureClass, Estimate]


def contexts_of(rows: DataFrame) -> Series:
    """Names the context of each row, which is the same however it is written."""
    named: Series = rows["task"].astype(str) + "/" + rows["draw_id"].astype(str)
    return named


def with_routes(routes: DataFrame, records: DataFrame) -> DataFrame:
    """Joins routes with their records, of questions whose answer stands in the context. ``right_with_full`` says
    whether the full cache answers the question rightly. Answers that failed are wrong."""
    columns = [*CELL, "draw_id", "right", "answered", "hallucination_kind", "answer_tokens", "ratio"]
    joined = routes.merge(records[columns], on=CELL, validate="one_to_one")
    joined = joined[joined["answer_tokens"] > 0]
    for column in ("right", "answered"):
        joined[column] = joined[column].eq(True)
    full = joined[joined["policy"] == FULL].set_index(QUESTION)["right"].rename("right_with_full")
    joined[CONTEXT] = contexts_of(joined)
    return joined.join(full, on=QUESTION, how="inner").reset_index(drop=True)


def reaches(widths: Series, epsilon: float) -> npt.NDArray[np.bool_]:
    """Tells which widths have at least epsilon in every step; none that is unknown has. Widths are of 32 bits."""
    return np.asarray(widths.astype(np.float32) >= np.float32(epsilon))


def classify(joined: DataFrame, epsilon: float = EPSILON) -> list[FailureClass]:
    """Returns the class of each answer of :func:`with_routes`: of what becomes of the tokens of the gold answer, with
    edges of at least epsilon."""
    reached, said = (reaches(joined[f"{of}_width"], epsilon) for of in ("answer", "said"))
    confused = (joined["hallucination_kind"] == "confused").to_numpy() & said
    columns = zip(
        joined["right"],
        joined["right_with_full"],
        joined["answer_alive"].eq(True),
        reached,
        ~joined["answered"],
        confused,
        joined["unobserved"].isna(),
        strict=True,
    )
    return [outcome_of(AnswerFacts(*map(bool, row))) for row in columns]


def chances(joined: DataFrame) -> dict[float, float]:
    """Returns by epsilon the share of a context's tokens that reach an answer under the full cache, whatever they
    say; nothing where none of its answers was observed."""
    full = joined[(joined["policy"] == FULL) & joined["unobserved"].isna()]
    if full.empty:
        return {}
    return dict(zip(EPSILONS, np.stack(full["chance"].to_list()).mean(axis=0).tolist(), strict=True))


def telling_epsilon(joined: DataFrame) -> float:
    """Returns the least epsilon at which few tokens of a context reach an answer under the full cache; the greatest
    where many always do. It follows from the full cache alone, and not from any policy's answers."""
    return next((epsilon for epsilon, chance in chances(joined).items() if chance <= SELDOM), EPSILONS[-1])


def shares(outcomes: Sequence[FailureClass], contexts: Sequence[str]) -> Shares:
    """Returns the share of each class; all together are 1. Contexts are resampled."""
    return {outcome: estimate_of([one is outcome for one in outcomes], contexts) for outcome in FailureClass}


@dataclass(frozen=True)
class Reached:
    """Says of a policy at a level how often answers are reached by the tokens of their gold, with edges of epsilon.

    ``chance``: how often as many tokens would, drawn from the context. ``relayed``: how often the gold is reached
    although none of its rows is left, through tokens that read it in the prefill. ``right``: the answers that are
    right. ``width``: of the widest route, mean over answers. All of questions that the full cache has right.
    """

    task: str
    policy: str
    level: Level
    epsilon: float
    reached: Estimate
    chance: float
    relayed: Estimate
    right: Estimate
    width: float


def reach_curves(joined: DataFrame, epsilons: Sequence[float] = EPSILONS) -> Iterator[Reached]:
    """Yields how often answers are reached, by task, policy, level and epsilon. ``joined``: as of
    :func:`with_routes`."""
    mastered = with_levels(joined[joined["unobserved"].isna() & joined["right_with_full"]])
    for (task, policy, level), group in mastered.groupby(["task", "policy", "level"], observed=True):
        by_chance = 1 - (1 - np.stack(group["chance"].to_list())) ** group["answer_tokens"].to_numpy()[:, None]
        alive = group["answer_alive"].eq(True).to_numpy()
        width = float(group["answer_width"].astype(float).mean())
        for epsilon in epsilons:
            reached = reaches(group["answer_width"], epsilon)
            chance = float(by_chance[:, EPSILONS.index(epsilon)].mean())
            rates = [estimate_of(flags, group[CONTEXT]) for flags in (reached, reached & ~alive, group["right"])]
            yield Reached(str(task), str(policy), level, epsilon, rates[0], chance, rates[1], rates[2], width)


class ReachedAnswers:
    """Holds the share of each class of answers, and how often answers are reached, with edges of the least attention
    at which to be reached tells something."""

    def __init__(self, given: StudyInput) -> None:
        joined = with_routes(given.tables[TABLE], given.records)
        self.epsilon = telling_epsilon(joined)
        self._chance = chances(joined).get(self.epsilon)
        outcomes = classify(joined, self.epsilon)
        missing = outcomes.count(FailureClass.NOT_OBSERVED)
        self._missing = f"{missing} of {len(outcomes)} answers" if missing else "nothing"
        self._joined, self._records = joined, given.records
        classified = with_levels(joined).assign(outcome=outcomes)
        groups = classified.groupby(["task", "policy", "level"], observed=True, sort=False)
        self.shares: dict[tuple[str, str, Level], Shares] = {
            (str(task), str(policy), level): shares(group["outcome"].tolist(), group[CONTEXT].tolist())
            for (task, policy, level), group in groups
        }
        self.curves = list(reach_curves(joined))

    def facts(self) -> Iterator[tuple[str, str]]:
        contexts, observed = (
            table[["task", "draw_id"]].drop_duplicates()["task"].value_counts()
            for table in (self._records, self._joined)
        )
        counts = (f"{observed[task]} of {contexts[task]} of {task}" for task in dict.fromkeys(self._joined["task"]))
        yield "Contexts observed", ", ".join(counts)
        yield "Not observed", self._missing
        yield "Least attention in each step", f"{self.epsilon:g}"

    def parts(self) -> list[StudySection]:
        """Returns the sections on classes, then those on what reaches the answer, one for each task."""
        tasks = dict.fromkeys(task for task, _, _ in self.shares)
        return [*map(self._classes, tasks), *map(self._reach, dict.fromkeys(one.task for one in self.curves))]

    def sheets(self) -> list[Sheet]:
        rows = [
            {"task": task, "policy": policy, "level": level, "epsilon": self.epsilon, "outcome": str(outcome)}
            | {"share": one}
            for (task, policy, level), of_class in self.shares.items()
            for outcome, one in of_class.items()
        ]
        return [
            Sheet.of("routing-classes", "Classes of failures", rows),
            Sheet.of("routing-reach", "How often answers are reached", [*map(vars, self.curves)]),
        ]

    def _classes(self, task: str) -> StudySection:
        found = {(policy, level): one for (name, policy, level), one in self.shares.items() if name == task}
        styles = named_styles([str(outcome) for outcome in STYLED])
        policies = [policy for policy in dict.fromkeys(policy for policy, _ in found) if policy != FULL]
        rows = tuple(
            (policy, str(level), *(in_percent(of_class[outcome]) for outcome in STACKED))
            for (policy, level), of_class in sorted(found.items(), key=lambda item: (item[0][0] != FULL, *item[0]))
        )
        told = (
            ""
            if self._chance is None
            else f": with the full cache, {100 * self._chance:.0f} % of a context’s tokens reach the answer so"
        )
        return StudySection(
            f"classes-{task}",
            f"Why answers are wrong: {task}",
            "Each answer to a question whose answer stands in the context is in one class, stacked over the asked "
            f"level, from the full cache on. Every step of a route takes at least {self.epsilon:g} of some head’s "
            f"attention{told}. Narrower routes lead from more tokens, and tell less: see the curve over the least "
            "attention below.",
            tuple(styles[str(outcome)] for outcome in STACKED),
            tuple(_stack(task, policy, found, styles) for policy in policies),
            details=(Listing("Answers of each class, percent", ("policy", "level", *map(str, STACKED)), rows),),
        )

    def _reach(self, task: str) -> StudySection:
        told = [one for one in self.curves if one.task == task and one.epsilon == self.epsilon]
        styles = full_last(one.policy for one in told)

        def over(title: str, estimate: Callable[[Reached], Estimate]) -> Picture:
            cells = {(one.policy, one.level): estimate(one) for one in told}
            return over_levels(cells, styles, title, "share of answers", f"{title}/{task}")

        listing = listing_of(
            "Of the questions that the full cache has right, percent; width: a share",
            told,
            {
                "policy": lambda one: one.policy,
                "level": lambda one: one.level,
                "reached": lambda one: one.reached,
                "reached by chance": lambda one: f"{100 * one.chance:.0f}",
                "relayed": lambda one: one.relayed,
                "right answers": lambda one: one.right,
                "width": lambda one: f"{one.width:.2f}",
            },
        )
        return StudySection(
            f"reach-{task}",
            f"What reaches the answer: {task}",
            "Of the questions that the full cache has right: how often a route leads from the gold answer’s tokens to "
            "the place where the answer is written, over the least attention that each step of it has; beside it, how "
            "often one leads from as many tokens drawn from the context. What everything reaches tells nothing.",
            tuple(style for name, style in styles.items() if name != FULL),
            (
                self._over_epsilon(task),
                over(f"Reached, routes of at least {self.epsilon:g}", lambda one: one.reached),
                over("Reached, though none of it is left", lambda one: one.relayed),
            ),
            details=(listing,),
        )

    def _over_epsilon(self, task: str) -> Picture:
        """Draws reach over epsilon with the full cache, beside chance."""
        full = [one for one in self.curves if (one.task, one.policy) == (task, FULL)]
        styles = named_styles((GOLD, ANY))
        lines = [
            line_of(styles[GOLD], [(one.epsilon, one.reached) for one in full]),
            line_of(styles[ANY], [(one.epsilon, exactly(one.chance)) for one in full]),
        ]
        axis = Axis.around("least attention in each step", SHARE)
        return curve("Full cache", "reached by the gold; below, by as many tokens drawn", lines, axis, f"reach/{task}")


def _stack(
    task: str, policy: str, found: Mapping[tuple[str, Level], Shares], styles: Mapping[str, LineStyle]
) -> Picture:
    """Draws the classes of one policy over its levels, from the full cache on."""
    axis = Axis.over([level for name, level in found if name == policy])
    own = {level: of_class for (name, level), of_class in found.items() if name == policy and level in axis}
    if axis.origin is not None and (FULL, UNTREATED) in found:
        own = {UNTREATED: found[FULL, UNTREATED], **own}
    ordered = sorted((level.value if level != UNTREATED else axis.origin or 0.0, level) for level in own)
    places = tuple(value for value, _ in ordered)
    heights = np.array([[own[level][outcome].mean for outcome in STACKED] for _, level in ordered])
    tops = np.cumsum(heights, axis=1)
    marks = tuple(
        Band.between(styles[str(outcome)], places, tuple(top - height), tuple(top), OPACITY)
        for outcome, top, height in zip(STACKED, tops.T, heights.T, strict=True)
        if height.any()
    )
    title = f"{policy}: classes of answers over the {axis.title}, {task}"
    drawing = Drawing(Frame(axis, Axis.around("", SHARE)), marks, title, f"classes/{task}/{policy}")
    return Picture(policy, "share of answers", Markup(drawing.svg()))


DEFINITIONS = (
    Definition(
        "Class of an answer",
        "The first of these that holds, of questions whose answer stands in the context. Right. Wrong with the full "
        "cache too. Not observed: the press has a prefill of its own, merges or rewrites rows, or goes on cutting "
        "while it answers, or it failed. Erased: no row of the gold answer’s tokens is left in any layer and head, and "
        "no route leads from them. Unreachable: rows are left, and no route leads from them. With a route: silent, if "
        "the answer is empty or an abstention; confused, if it is a value that the context states for something else "
        "and a route leads from there too; else reached and unused. Right answers are right whatever is reached. On a "
        "board, unused counts all three with a route. Routes have at least the attention there with which no more than "
        "a tenth of a context’s tokens reach the answer under the full cache.",
        "right + wrong with the full cache too + not observed + erased + unreachable + silent + confused + "
        "reached and unused = all answers",
        "storage, accessibility and use after arXiv 2603.01426",
        names=(
            *(str(one) for one in FailureClass if str(one) not in DEFINED),
            *("outcome", "unused", *estimates("share")),
        ),
    ),
    Definition(
        "Reached, and by chance",
        "Nodes are tokens before and behind each layer. A layer leads from a token to one that gives it at least "
        "epsilon of some head’s attention, and from each token to itself. Context reads context as in the uncompressed "
        "prefill; the question and the first token of the answer read the context only where a row is left. An answer "
        "is reached if a path leads from a token of the gold to the last token of the question, or to the first token "
        "of the answer, behind the last layer. By chance: 1 − (1 − c)^n, where c is the share of the context’s tokens "
        "that reach the answer and n the tokens of the gold. Relayed: reached although no row of the gold is left, "
        "through tokens that read it in the prefill. Width: the least attention in the widest path, 0 where none has "
        "0.01 in each step; mean over answers.",
        "reached(ε) ⇔ max over paths of min over edges ≥ ε",
        "after arXiv 2603.01426, which gives no algorithm",
        names=(
            *("reached by chance", "epsilon", "right answers", "width"),
            *(*estimates("reached", "relayed"), "right_n"),
        ),
    ),
)
