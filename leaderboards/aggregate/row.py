"""One row of a summary: what all records of one task, mode, policy and level add up to; and the
measures that boards are about."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from leaderboards.metrics import MEASURES, Measure, Over, with_columns
from policies.declaration.levels import Level
from policies.declaration.names import FULL

ALL_TASKS = "all"
MODES = {
    "agnostic": "The cache is compressed before the question is seen.",
    "aware": "The cache is compressed with the question in view.",
}
# Below it contexts that vary lopsidedly have too narrow intervals, and safety may be chance.
FEW_CONTEXTS = 10
# Of fewer a share is written as a count, without an interval, and nobody is best by it.
FEW_ANSWERS = 10
RIGHT = MEASURES["right"]
F1 = MEASURES["f1"]
HALLUCINATION = MEASURES["hallucination_rate"]
GER = MEASURES["ger"]
REALISED_RATIO = MEASURES["realised_ratio"]
KEPT_TOKENS = MEASURES["kept_tokens"]
KV_BYTES = MEASURES["kv_bytes"]
WRONG_OF_ANSWERED = MEASURES["wrong_of_answered"]
UNANSWERED = MEASURES["unanswered_rate"]
SLOT_COVERAGE = MEASURES["slot_coverage"]
OBEYED = MEASURES["directives_obeyed"]
LEAKAGE = MEASURES["leakage_under_defence"]
NEXT_TOKENS = MEASURES["next_token_accuracy"]
PERPLEXITY = MEASURES["perplexity"]
DELTA_NLL = MEASURES["delta_nll"]


def _columns() -> dict[str, Any]:
    """Returns the columns of the measures, by name: type and the value where there is none."""
    numbers: dict[str, Any] = {}
    for measure in MEASURES.values():
        kind = tuple[float, ...] if measure.by_layer else float
        numbers |= dict.fromkeys(measure.row_columns, (kind | None, None))
    return numbers


@with_columns(_columns())
class SummaryRow(BaseModel):
    """One cell: what was asked, how much of it there is, and a column for each measure of
    ``metrics``, with the ends of its 95 % interval as ``*_low`` and ``*_high``. A measure is None
    where there is none, and then ``reason`` says why; what few questions are asked for, such as
    directives, is None without a reason."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    task: str  # or ``all``: the unweighted mean over the tasks
    mode: str
    policy: str
    level_kind: str  # what was asked of the policy: the kind of its level by name, and the value
    level: float
    # The mean share of a context to remove that the level stands for; None if it is not known.
    ratio: float | None
    repeats: int = (
        1  # draws of a random policy, which are averaged question by question; 1 for others
    )
    n: int  # questions answered
    contexts: int = 0  # that the questions are about
    # The contexts of the measure that leads its task with the fewest: those with attacks may be
    # fewer than those with directives. Of a mean over tasks, the fewest of a task.
    fewest_contexts: int = 0
    answers_given: int | None = (
        None  # that are neither empty nor an abstention; of a mean over tasks the fewest of one
    )
    mean_of: tuple[str, ...] = ()  # those that a row of ``all`` is the mean over
    # Why its policies have no rank and no verdict, though they have numbers: how little the model
    # itself has of the task; of a mean over tasks, of all of them.
    not_mastered: str | None = None
    chance: float | None = None  # percent right, of the best guesser who does not see the text
    obeyed_by_silence: float | None = (
        None  # in percent of the directives: by an answer that only abstains
    )
    # Names of measures: those in which the paired differences of all others at this task and level
    # from this policy leave out 0, and those in which it cannot be told from the best, or others
    # from it where it is best. Controls are in neither.
    best_in: tuple[str, ...] = ()
    tied_in: tuple[str, ...] = ()
    complete: bool = True  # whether every question is answered; only complete cells have measures
    reason: str | None = None  # why measures are None

    if TYPE_CHECKING:  # the measures, which mypy cannot see

        def __getattr__(self, name: str) -> Any: ...

    @property
    def removes_nothing(self) -> bool:
        """Tells whether the cache has all its tokens after a treatment that is to damage it or to
        store it in less."""
        return not self.at.declared.removes and not self.realised_ratio

    @property
    def few_contexts(self) -> bool:
        """Tells whether its intervals may be too narrow, as it has few contexts."""
        return 0 < self.fewest_contexts < FEW_CONTEXTS

    @property
    def few_answers(self) -> bool:
        """Tells whether it has so few answers that a share of them is written as a count."""
        return self.answers_given is not None and self.answers_given < FEW_ANSWERS

    @cached_property
    def at(self) -> Level:
        """Returns the level that was asked of the policy."""
        return Level(self.level_kind, self.level)


def is_told(measure: Measure, rows: Sequence[SummaryRow]) -> bool:
    """Tells whether a measure says anything of these rows: one has a value; where the measure is
    about what is evicted, one of a treatment that removes tokens; and the likelihood of the right
    answer where the model gives none."""
    if measure is DELTA_NLL and not any(row.not_mastered for row in rows):
        return False
    if is_of_eviction(measure):
        treated = [row for row in rows if row.policy != FULL] or rows
        rows = [row for row in treated if not row.removes_nothing]
    return any(measure.value(row) is not None for row in rows)


def is_of_eviction(measure: Measure) -> bool:
    """Tells whether a measure is about what is evicted."""
    return measure.over is Over.ANSWERABLE or measure is REALISED_RATIO


def share_as_count(row: SummaryRow, measure: Measure) -> str:
    """Writes a share of few answers as a count, such as "0 of 4", which has no interval; any other
    as an empty text. Of a random policy the answers of all draws are counted."""
    share = measure.value(row)
    if (
        measure is not WRONG_OF_ANSWERED
        or not row.few_answers
        or row.task == ALL_TASKS
        or share is None
    ):
        return ""
    return f"{round(share * (row.answers_given or 0))} of {row.answers_given}"
