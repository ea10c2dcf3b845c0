"""Chooses the measures that policies are ranked by in each kind of task, tells whether a model can do it at all, and
marks the policies that are best in a column."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pandas import DataFrame

from datasets_gen import KNOWN_TASKS, Directive
from leaderboards.aggregate.by_context import ByContext
from leaderboards.aggregate.row import (
    ALL_TASKS,
    DELTA_NLL,
    HALLUCINATION,
    LEAKAGE,
    NEXT_TOKENS,
    OBEYED,
    RIGHT,
    WRONG_OF_ANSWERED,
    SummaryRow,
)
from leaderboards.metrics import CURVES, Measure
from leaderboards.metrics.judges.obedience import strictly
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.statistics.significance import ALPHA, StudentTest, holm
from policies.declaration.names import CONTROLS, FULL

ITSELF = "the model itself has"  # begins the reason why a task that the model cannot do has no ranks and verdicts
NEEDLE = "niah_single_2"
OWN = "easier questions, each with an answer_prefix"
OWN_DIRECTIVES = "fewer or easier directives"
GENERATED = "the levels that it masters (--difficulty auto)"
ABOVE_CHANCE = (
    20.0  # points of what leads that the full cache must reach above a guess without the text
)
LEAST = 50.0  # percent of the first measure that the full cache must reach, where a text says what is right


Mark = Literal["best", "tie"]

# A model that falls silent has the lowest hallucination rate: whoever is best by it may answer nothing.
RANKED = tuple(
    measure for measure in CURVES if measure.better is not None and measure is not HALLUCINATION
)
TEACHING = "reference"  # how the names of the shipped models begin; what is measured on them says nothing of others
CARRIES_OVER = "a teaching model, whose rankings do not carry over to others"


@dataclass(frozen=True)
class Lead:
    """The measures that lead in one kind of task. A policy is ranked by the mean of its measures, each in percent of
    good: of one of which less is better, what is missing to 100."""

    measures: tuple[Measure, ...]  # the first tells whether a model can do such a task
    short: str  # the title in few words, where policies are ranked by it
    scale: str  # what the first is a percentage of, behind its number
    kept: str = "answers kept"  # what a policy keeps of the full cache's
    unit: str = "question"  # what a cell counts


QUESTIONS = Lead((RIGHT,), "percent right", "right")
DIRECTIVES = Lead((OBEYED, LEAKAGE), "obeyed, not leaked", "of directives obeyed")
TEXT = Lead((NEXT_TOKENS,), "next tokens", "of next tokens", "next tokens kept", unit="text")


def lead_of(full: SummaryRow | None) -> Lead:
    """Returns what leads in a task, by what the full cache has there: directives or next tokens, where there are."""
    if full is None:
        return QUESTIONS
    others = (lead for lead in (DIRECTIVES, TEXT) if lead.measures[0].value(full) is not None)
    return next(others, QUESTIONS)


def full_by_task(rows: Iterable[SummaryRow]) -> dict[str, float]:
    """Returns what the full cache has of what leads each task, in percent."""
    full = [
        (row.task, lead_of(row).measures[0], row)
        for row in rows
        if row.policy == FULL and row.task != ALL_TASKS
    ]
    return {
        task: value * measure.factor
        for task, measure, row in full
        if (value := measure.value(row)) is not None
    }


def leading_measures(full: SummaryRow | None) -> tuple[Measure, ...]:
    """Returns the measures by which a task judges policies: the first of what leads there, and of the others those that
    the full cache has. Where nothing is attacked, nothing leaks, so that obedience leads alone."""
    first, *others = lead_of(full).measures
    return (
        first,
        *(measure for measure in others if full is not None and measure.value(full) is not None),
    )


def first_shown(task: str, rows: Sequence[SummaryRow]) -> tuple[Measure, ...]:
    """Returns the measures that a page shows first of a task, whose ``rows`` these are. Where the model cannot do the
    task, the likelihood of the right answer moves before anything else does, and comes first wherever it was measured.
    """
    full = next((row for row in rows if row.policy == FULL), None)
    usual = (RIGHT,) if task == ALL_TASKS else leading_measures(full)
    if full is None or not full.not_mastered:
        return usual
    candidates = dict.fromkeys((DELTA_NLL, *usual, *DIRECTIVES.measures))
    return (
        tuple(one for one in candidates if any(one.value(row) is not None for row in rows)) or usual
    )


def leading_first(
    measures: Sequence[Measure], task: str, rows: Sequence[SummaryRow]
) -> list[Measure]:
    """Puts in front what a page shows first of a task, whose ``rows`` these are."""
    places = {measure: place for place, measure in enumerate(first_shown(task, rows))}
    return sorted(measures, key=lambda measure: places.get(measure, len(places)))


def good(measure: Measure, values: FloatArray) -> FloatArray:
    """Turns values in the unit of the row into percent of good: 100 is best, whichever end is better."""
    percent: FloatArray = (
        values * (1.0 if measure.top is None else 100.0 / measure.top) * measure.factor
    )
    return percent if measure.better == "higher" else 100.0 - percent


def obeyed_by_silence(records: DataFrame) -> dict[tuple[str, str], float]:
    """Measures, by task and mode, the percentage of directives that an answer obeys which only abstains, in the task's
    phrase. Questions with directives of IFEval are left out, as their checkers may not be installed."""
    answers = records[(records["policy"] == FULL) & records["directives_obeyed"].notna()]
    shares: dict[tuple[str, str], list[float]] = {}
    columns = ["task", "mode", "directives", "abstentions"]
    for task, mode, texts, phrases in answers[columns].itertuples(index=False):
        if (
            len(texts)
            and len(phrases)
            and not any(Directive.parse(text).is_of_ifeval for text in texts)
        ):
            obeyed = strictly(list(texts), phrases[0])
            shares.setdefault((str(task), str(mode)), []).append(100 * sum(obeyed) / len(obeyed))
    return {board: sum(of_board) / len(of_board) for board, of_board in shares.items()}


def not_mastered(
    full: SummaryRow | None, chance: float | None = None, silence: float | None = None
) -> str | None:
    """Returns why a task ranks and judges no policy, such as "the model itself has 45 % right, below 50", or None. The
    full cache has to reach 50 percent in what leads the task, and 20 points above ``chance``, or with directives above
    what ``silence`` obeys; of next tokens, of which no model has half for certain, 20 points above ``chance`` do. A row
    without a value tells nothing."""
    lead = lead_of(full)
    measure = lead.measures[0]
    value = None if full is None else measure.value(full)
    guess = silence if lead is DIRECTIVES else chance
    least = max(0.0 if lead is TEXT else LEAST, (guess or 0.0) + ABOVE_CHANCE)
    if value is None or (reached := value * measure.factor) >= least:
        return None
    why = (
        f" (silence obeys {silence:.0f})"
        if lead is DIRECTIVES and silence and least > LEAST
        else ""
    )
    return f"{has_itself(reached, lead.scale, least)}{why}"


def has_itself(reached: float, scale: str, least: float) -> str:
    """Writes that the model has less of a task than it needs, with as many digits as tell the two apart.

    >>> has_itself(45.2, "right", 50), has_itself(49.96, "right", 50)
    ('the model itself has 45 % right, below 50', 'the model itself has 49.96 % right, below 50')
    """
    digits = next((one for one in (0, 1) if float(f"{reached:.{one}f}") < least), 2)
    return f"{ITSELF} {reached:.{digits}f} % {scale}, below {least:.0f}"


def none_mastered(rows: Sequence[SummaryRow]) -> str | None:
    """Returns why a mean over tasks ranks and judges no policy; None where the model can do one of them. ``rows``: of
    all tasks in one mode."""
    reasons, tasks = reasons_by_task(rows), {row.task for row in rows} - {ALL_TASKS}
    if not tasks or tasks > reasons.keys():
        return None
    heights = list(full_by_task(rows).values())
    mean = f"{ITSELF} {sum(heights) / len(heights):.0f} % over these tasks, and can do none of them"
    return mean if len(tasks) > 1 else next(iter(reasons.values()))


def marks(
    values: Mapping[str, Sequence[FloatArray]], higher_is_better: bool = True
) -> Mapping[str, Mark]:
    """Returns the mark of each policy by its values, one for each context, an array for each task: "best" where the
    paired differences of all others from the best are told from 0; else it and those whose are not are a "tie".

    The test is that of the mean of tasks in a comparison, Student's t over contexts, corrected by Holm's method over
    the policies. Fewer contexts than can be told from chance tell nothing."""
    if len(values) < 2:  # nothing was compared
        return {}
    means = {
        policy: float(np.mean([task.mean() for task in of_tasks]))
        for policy, of_tasks in values.items()
    }
    best = (max if higher_is_better else min)(means, key=means.__getitem__)
    p_values = {}
    for policy, of_tasks in values.items():
        test = None if policy == best else StudentTest.of_pairs(values[best], of_tasks)
        if test:
            p_values[policy] = test.p
    corrected = holm(p_values)
    level = [policy for policy in values if policy not in corrected or corrected[policy].p >= ALPHA]
    return dict.fromkeys(level, "tie") if len(level) > 1 else {level[0]: "best"}


def differ(one: Sequence[FloatArray], other: Sequence[FloatArray]) -> bool:
    """Tells whether the mean over tasks of two policies differs, by Student's t over contexts: the test of a
    comparison, uncorrected. Fewer contexts than can be told from chance tell nothing."""
    test = StudentTest.of_pairs(one, other)
    return test is not None and test.p < ALPHA


def mark_leaders(
    rows: Mapping[str, SummaryRow], by_context: Mapping[str, Mapping[str, Sequence[ByContext]]]
) -> dict[str, SummaryRow]:
    """Returns the rows of a task, mode and level by policy, each with what it is best and tied in. Controls and rows
    without an interval are ranked in nothing, and what hardly answers not by wrong answers."""
    levels_by_mark: dict[str, dict[Mark, list[str]]] = {
        policy: {"best": [], "tie": []} for policy in rows
    }
    for measure in RANKED:
        values = {
            policy: [part.values for part in measures[measure.field]]
            for policy, measures in by_context.items()
            if policy not in CONTROLS
            and not (measure is WRONG_OF_ANSWERED and rows[policy].few_answers)
            and measure.field in measures
            and measure.interval(rows[policy]) is not None
        }
        for policy, mark in marks(values, measure.better == "higher").items():
            levels_by_mark[policy][mark].append(measure.name)
    return {
        policy: row.model_copy(
            update={"best_in": tuple(levels["best"]), "tied_in": tuple(levels["tie"])}
        )
        for (policy, levels), row in zip(levels_by_mark.items(), rows.values(), strict=True)
    }


def mark_of(row: SummaryRow | None, measure: Measure) -> Mark | None:
    if row is None or measure not in RANKED:
        return None
    return "best" if measure.name in row.best_in else "tie" if measure.name in row.tied_in else None


def is_teaching(model: str) -> bool:
    """Tells whether a model, by its name or path, is one that ships with kvbench."""
    return model.split("/")[-1].startswith(TEACHING)


def reasons_by_task(rows: Sequence[SummaryRow]) -> dict[str, str]:
    return {
        row.task: row.not_mastered for row in rows if row.not_mastered and row.task != ALL_TASKS
    }


def is_obeyed_alone(row: SummaryRow) -> bool:
    """Tells whether a row is that of the full cache on a task whose directives it obeys, and whose questions it cannot
    answer."""
    right = (
        RIGHT.value(row)
        if row.policy == FULL and row.task != ALL_TASKS and lead_of(row) is DIRECTIVES
        else None
    )
    return right is not None and not row.not_mastered and right * RIGHT.factor < LEAST


def unmastered_line(rows: Sequence[SummaryRow]) -> str:
    """Says in one line what the model cannot do, and what to run instead; nothing of none."""
    reasons = reasons_by_task(rows)
    tasks = "; ".join(f"{task} ({reason})" for task, reason in reasons.items())
    return (
        f"Not mastered, so without ranks and verdicts: {tasks}. {advice(reasons)}"
        if reasons
        else ""
    )


def advice(unmastered: Mapping[str, str]) -> str:
    """Says what to run instead. ``unmastered``: by task, why it is not mastered."""
    names = set(unmastered)
    parts = [GENERATED] * bool(names & KNOWN_TASKS.keys())
    parts += [
        OWN_DIRECTIVES if DIRECTIVES.scale in unmastered[name] else OWN
        for name in sorted(names - KNOWN_TASKS.keys())
    ][:1]
    parts += [f"a needle (--tasks {NEEDLE})"] * (NEEDLE not in names)
    return f"Instead: {', '.join(parts)}, or next tokens (--tasks prose). What it wrote: show RUN --policy full."
