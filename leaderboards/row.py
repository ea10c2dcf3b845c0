"""One row of a board: what all records of one task, mode, policy and ratio add up to."""

from functools import cached_property

from pydantic import BaseModel, ConfigDict

from leaderboards.asked import Asked

ALL_TASKS = "all"
FULL = "full"
CONTROLS = (FULL, "oracle", "random", "recency")


class SummaryRow(BaseModel):
    """The measures of one cell; None where there is none, and then ``reason`` says why.

    task
        The name of a task, or ``all``: the unweighted mean over the tasks.
    ratio, budget
        What was asked: the share of the cache to remove, 0 to 1; or the tokens to keep in every head, and then the
        ratio is the mean of what that is for each context, None where none was run.
    n, contexts
        Questions answered, and the contexts that they are about.
    f1, em
        Percent. All rates, ``ger``, ``slot_coverage`` and ``realised_ratio`` are shares, 0 to 1.
    chance
        F1, in percent, of the best guesser who does not see the text.
    *_low, *_high
        The 95 % interval of the measure, in its unit, from a cluster bootstrap over contexts.
    directives_obeyed, leakage
        Means over the questions that have directives, and over attacks; None, without a reason, where there are none.
    kept_tokens
        Mean tokens that are read in a head.
    kv_bytes
        Mean bytes that an allocator would hold for one context.
    compression_seconds
        Mean over contexts.
    ger_by_layer
        GER in each layer taken alone.
    best_in, tied_in
        Names of measures: those in which the paired differences of all others at this task and level from this policy
        leave out 0, and those in which it cannot be told from the best, or others from it where it is best. Controls
        are in neither.
    complete
        Whether every question is answered. A complete cell has what can be measured of it, others have no measure.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    task: str
    mode: str
    policy: str
    ratio: float | None
    budget: int | None = None
    n: int
    contexts: int = 0
    f1: float | None = None
    f1_low: float | None = None
    f1_high: float | None = None
    em: float | None = None
    chance: float | None = None
    abstention_rate: float | None = None
    abstention_rate_low: float | None = None
    abstention_rate_high: float | None = None
    hallucination_rate: float | None = None
    hallucination_rate_low: float | None = None
    hallucination_rate_high: float | None = None
    confused_rate: float | None = None
    fabricated_rate: float | None = None
    directives_obeyed: float | None = None
    directives_obeyed_low: float | None = None
    directives_obeyed_high: float | None = None
    leakage: float | None = None
    leakage_low: float | None = None
    leakage_high: float | None = None
    ger: float | None = None
    ger_low: float | None = None
    ger_high: float | None = None
    ger_by_layer: tuple[float, ...] | None = None
    slot_coverage: float | None = None
    slot_coverage_low: float | None = None
    slot_coverage_high: float | None = None
    eviction_rate: float | None = None
    realised_ratio: float | None = None
    kept_tokens: float | None = None
    kv_bytes: float | None = None
    compression_seconds: float | None = None
    best_in: tuple[str, ...] = ()
    tied_in: tuple[str, ...] = ()
    complete: bool = True
    reason: str | None = None

    @cached_property
    def asked(self) -> Asked:
        return Asked.of(self.ratio, self.budget)
