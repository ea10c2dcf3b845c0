"""Chooses the measures that policies are ranked by in each kind of task, tells whether a model can
do it at all, and marks the policies that are best in a column."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
from leaderboards.statistics.rank import Mark, marks
from policies.declaration.names import CONTROLS, FULL

# Begins the reason why a task that the model cannot do has no ranks and verdicts.
ITSELF = "the model itself has"
NEEDLE = "niah_single_2"
OWN = "easier questions, each with an answer_prefix"
OWN_DIRECTIVES = "fewer or easier directives"
GENERATED = "the levels that it masters (--difficulty auto)"
# Points of what leads that the full cache must reach above a guess without the text.
ABOVE_CHANCE = 20.0
# Percent of the first measure that the full cache must reach, where a text says what is right.
LEAST = 50.0


# A model that falls silent has the lowest hallucination rate: whoever is best by it may answer
# nothing.
RANKED = tuple(
    measure for measure in CURVES if measure.better is not None and measure is not HALLUCINATION
)
# How the names of the shipped models begin; what is measured on them says nothing of others.
TEACHING = "reference"
CARRIES_OVER = "a teaching model, whose rankings do not carry over to others"


@dataclass(frozen=True)
class Lead:
    """The measures that lead in one kind of task. A policy is ranked by the mean of its measures,
    each in percent of good: of one of which less is better, what is missing to 100."""

    measures: tuple[Measure, ...]  # the first tells whether a model can do such a task
    short: str  # the title in few words, where policies are ranked by it
    scale: str  # what the first is a percentage of, behind its number
    kept: str = "answers kept"  # what a policy keeps of the full cache's
    unit: str = "question"  # what a cell counts


QUESTIONS = Lead((RIGHT,), "percent right", "right")
DIRECTIVES = Lead((OBEYED, LEAKAGE), "obeyed, not leaked", "of directives obeyed")
TEXT = Lead((NEXT_TOKENS,), "next tokens", "of next tokens", "next tokens kept", unit="text")


def find_lead(full: SummaryRow | None) -> Lead:
    """Returns what leads in a task, by what the full cache has there: directives or next tokens,
    where there are."""
    if full is None:
        return QUESTIONS
    for lead in (DIRECTIVES, TEXT):
        if lead.measures[0].value(full) is not None:
            return lead
    return QUESTIONS


def full_by_task(rows: Iterable[SummaryRow]) -> dict[str, float]:
    """Returns what the full cache has of what leads each task, in percent."""
    heights = {}
    for row in rows:
        if row.policy != FULL or row.task == ALL_TASKS:
            continue
        measure = find_lead(row).measures[0]
        value = measure.value(row)
        if value is not None:
            heights[row.task] = value * measure.factor
    return heights


def leading_measures(full: SummaryRow | None) -> tuple[Measure, ...]:
    """Returns the measures by which a task judges policies: the first of what leads there, and of
    the others those that the full cache has. Where nothing is attacked, nothing leaks, so that
    obedience leads alone."""
    first, *others = find_lead(full).measures
    if full is None:
        return (first,)
    measured = [measure for measure in others if measure.value(full) is not None]
    return first, *measured


def first_shown(task: str, rows: Sequence[SummaryRow]) -> tuple[Measure, ...]:
    """Returns the measures that a page shows first of a task, whose ``rows`` these are. Where the
    model cannot do the task, the likelihood of the right answer moves before anything else does,
    and comes first wherever it was measured."""
    full = next((row for row in rows if row.policy == FULL), None)
    usual = (RIGHT,) if task == ALL_TASKS else leading_measures(full)
    if full is None or not full.not_mastered:
        return usual
    shown = []
    for measure in dict.fromkeys((DELTA_NLL, *usual, *DIRECTIVES.measures)):
        values = [measure.value(row) for row in rows]
        if any(value is not None for value in values):
            shown.append(measure)
    return tuple(shown) or usual


def leading_first(
    measures: Sequence[Measure], task: str, rows: Sequence[SummaryRow]
) -> list[Measure]:
    """Puts in front what a page shows first of a task, whose ``rows`` these are."""
    places = {measure: place for place, measure in enumerate(first_shown(task, rows))}
    return sorted(measures, key=lambda measure: places.get(measure, len(places)))


def good(measure: Measure, values: FloatArray) -> FloatArray:
    """Turns values in the unit of the row, of any shape, into percent of good: 100 is best,
    whichever end is better."""
    scale = 1.0
    if measure.top is not None:
        scale = 100.0 / measure.top
    percent: FloatArray = values * scale * measure.factor
    if measure.better == "higher":
        return percent
    return 100.0 - percent


def obeyed_by_silence(records: DataFrame) -> dict[tuple[str, str], float]:
    """Measures, by task and mode, the percentage of directives that an answer obeys which only
    abstains, in the task's phrase. Questions with directives of IFEval are left out, as their
    checkers may not be installed."""
    answers = records[(records["policy"] == FULL) & records["directives_obeyed"].notna()]
    shares: dict[tuple[str, str], list[float]] = {}
    columns = ["task", "mode", "directives", "abstentions"]
    for task, mode, texts, phrases in answers[columns].itertuples(index=False):
        if not len(texts) or not len(phrases):
            continue
        if any(Directive.parse(text).is_of_ifeval for text in texts):
            continue
        obeyed = strictly(list(texts), phrases[0])
        share = 100 * sum(obeyed) / len(obeyed)
        shares.setdefault((str(task), str(mode)), []).append(share)
    means = {}
    for board, of_board in shares.items():
        means[board] = sum(of_board) / len(of_board)
    return means


def not_mastered(
    full: SummaryRow | None, chance: float | None = None, silence: float | None = None
) -> str | None:
    """Returns why a task ranks and judges no policy, such as "the model itself has 45 % right,
    below 50", or None. The full cache has to reach 50 percent in what leads the task, and 20 points
    above ``chance``, or with directives above what ``silence`` obeys; of next tokens, of which no
    model has half for certain, 20 points above ``chance`` do. A row without a value tells
    nothing."""
    if full is None:
        return None
    lead = find_lead(full)
    measure = lead.measures[0]
    value = measure.value(full)
    if value is None:
        return None
    guess = silence if lead is DIRECTIVES else chance
    least = (guess or 0.0) + ABOVE_CHANCE
    if lead is not TEXT:
        least = max(LEAST, least)
    reached = value * measure.factor
    if reached >= least:
        return None
    reason = has_itself(reached, lead.scale, least)
    if lead is DIRECTIVES and silence and least > LEAST:
        return f"{reason} (silence obeys {silence:.0f})"
    return reason


def has_itself(reached: float, scale: str, least: float) -> str:
    """Writes that the model has less of a task than it needs, with as many digits as tell the two
    apart.

    >>> has_itself(45.2, "right", 50), has_itself(49.96, "right", 50)
    ('the model itself has 45 % right, below 50', 'the model itself has 49.96 % right, below 50')
    """
    text = f"{reached:.2f}"
    for digits in (0, 1):
        rounded = f"{reached:.{digits}f}"
        if float(rounded) < least:
            text = rounded
            break
    return f"{ITSELF} {text} % {scale}, below {least:.0f}"


def none_mastered(rows: Sequence[SummaryRow]) -> str | None:
    """Returns why a mean over tasks ranks and judges no policy; None where the model can do one of
    them. ``rows``: of all tasks in one mode."""
    reasons = reasons_by_task(rows)
    tasks = {row.task for row in rows} - {ALL_TASKS}
    # A proper superset: at least one task is mastered.
    if not tasks or tasks > reasons.keys():
        return None
    if len(tasks) == 1:
        return next(iter(reasons.values()))
    heights = list(full_by_task(rows).values())
    mean = sum(heights) / len(heights)
    return f"{ITSELF} {mean:.0f} % over these tasks, and can do none of them"


def mark_leaders(
    rows: Mapping[str, SummaryRow], by_context: Mapping[str, Mapping[str, Sequence[ByContext]]]
) -> dict[str, SummaryRow]:
    """Returns the rows of a task, mode and level by policy, each with what it is best and tied in.
    Controls and rows without an interval are ranked in nothing, and what hardly answers not by
    wrong answers."""
    best_in: dict[str, list[str]] = {policy: [] for policy in rows}
    tied_in: dict[str, list[str]] = {policy: [] for policy in rows}
    for measure in RANKED:
        values = {}
        for policy, measures in by_context.items():
            if _is_ranked(rows[policy], measure) and measure.field in measures:
                values[policy] = [part.values for part in measures[measure.field]]
        for policy, mark in marks(values, measure.better == "higher").items():
            names = best_in if mark == "best" else tied_in
            names[policy].append(measure.name)
    marked = {}
    for policy, row in rows.items():
        update = {"best_in": tuple(best_in[policy]), "tied_in": tuple(tied_in[policy])}
        marked[policy] = row.model_copy(update=update)
    return marked


def _is_ranked(row: SummaryRow, measure: Measure) -> bool:
    """Tells whether a row may be ranked by a measure."""
    if row.policy in CONTROLS or measure.interval(row) is None:
        return False
    return measure is not WRONG_OF_ANSWERED or not row.few_answers


def find_mark(row: SummaryRow | None, measure: Measure) -> Mark | None:
    """Returns the mark of a row in a measure, if it has any."""
    if row is None or measure not in RANKED:
        return None
    if measure.name in row.best_in:
        return "best"
    if measure.name in row.tied_in:
        return "tie"
    return None


def is_teaching(model: str) -> bool:
    """Tells whether a model, by its name or path, is one that ships with kvbench."""
    return model.split("/")[-1].startswith(TEACHING)


def reasons_by_task(rows: Sequence[SummaryRow]) -> dict[str, str]:
    """Returns why the model cannot do a task, by each task that it cannot do."""
    reasons = {}
    for row in rows:
        if row.not_mastered and row.task != ALL_TASKS:
            reasons[row.task] = row.not_mastered
    return reasons


def is_obeyed_alone(row: SummaryRow) -> bool:
    """Tells whether a row is that of the full cache on a task whose directives it obeys, and whose
    questions it cannot answer."""
    if row.policy != FULL or row.task == ALL_TASKS or row.not_mastered:
        return False
    right = RIGHT.value(row)
    if right is None or find_lead(row) is not DIRECTIVES:
        return False
    return right * RIGHT.factor < LEAST


def unmastered_line(rows: Sequence[SummaryRow]) -> str:
    """Says in one line what the model cannot do, and what to run instead; nothing of none."""
    reasons = reasons_by_task(rows)
    if not reasons:
        return ""
    tasks = "; ".join(f"{task} ({reason})" for task, reason in reasons.items())
    return f"Not mastered, so without ranks and verdicts: {tasks}. {advice(reasons)}"


def advice(unmastered: Mapping[str, str]) -> str:
    """Says what to run instead. ``unmastered``: by task, why it is not mastered."""
    parts = []
    if unmastered.keys() & KNOWN_TASKS.keys():
        parts.append(GENERATED)
    others = unmastered.keys() - KNOWN_TASKS.keys()
    if others:
        has_directives = DIRECTIVES.scale in unmastered[min(others)]
        parts.append(OWN_DIRECTIVES if has_directives else OWN)
    if NEEDLE not in unmastered:
        parts.append(f"a needle (--tasks {NEEDLE})")
    alternatives = f"{', '.join(parts)}, or next tokens (--tasks prose)"
    return f"Instead: {alternatives}. What it wrote: show RUN --policy full."
