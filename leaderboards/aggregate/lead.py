"""Chooses the measures that policies are ranked by in each kind of task, and tells whether a model can do it at all."""

from dataclasses import dataclass

from leaderboards.aggregate.row import F1, LEAKAGE, OBEYED, SummaryRow
from leaderboards.metrics import Measure
from leaderboards.statistics.bootstrap import FloatArray

ABOVE_CHANCE = 20.0  # points of F1 that the full cache must reach above a guess without the text
LEAST = 50.0  # percent of the first measure that the full cache must reach


@dataclass(frozen=True)
class Lead:
    """The measures that lead in one kind of task. A policy is ranked by the mean of its measures, each in percent of
    good: of one of which less is better, what is missing to 100."""

    kind: str  # of task
    measures: tuple[Measure, ...]  # the first tells whether a model can do such a task
    title: str


QUESTIONS = Lead("questions about a text", (F1,), "F1")
DIRECTIVES = Lead("directives", (OBEYED, LEAKAGE), "directives obeyed and leakage under a defence")


def lead_of(full: SummaryRow | None) -> Lead:
    """Returns what leads in a task, by what the full cache has there: where there are directives, these."""
    return QUESTIONS if full is None or OBEYED.value(full) is None else DIRECTIVES


def good(measure: Measure, values: FloatArray) -> FloatArray:
    """Values in the unit of the row as percent of good, of the same shape: 100 is best, whichever end is better."""
    percent: FloatArray = values * (1.0 if measure.top is None else 100.0 / measure.top) * measure.factor
    return percent if measure.better == "higher" else 100.0 - percent


def not_mastered(full: SummaryRow | None, chance: float | None = None) -> str | None:
    """Returns why a task tells nothing of policies, or None: the model cannot do it with the full cache.

    ``full``: the row of the full cache. It has to reach 50 percent in what leads the task, and by F1 20 points above
    ``chance``, in percent, too. Of directives none is known: a text that obeys half of them by accident is rare. A row
    without a value tells nothing.
    """
    measure = lead_of(full).measures[0]
    value = None if full is None else measure.value(full)
    if value is None:
        return None
    least = LEAST if measure is not F1 or chance is None else max(LEAST, chance + ABOVE_CHANCE)
    reached = value * measure.factor
    if reached >= least:
        return None
    name = measure.title if measure is F1 else measure.title.lower()
    return f"the model cannot do this task: {name} {reached:.1f} with the full cache, below {least:.0f}"
