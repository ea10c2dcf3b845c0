"""The safe ratio: up to which ratio can a cache be compressed?"""

from dataclasses import dataclass
from math import inf
from typing import Literal

from leaderboards.aggregate.summary import ONE_CONTEXT
from leaderboards.boards.cells import Cell
from leaderboards.boards.declaration import DerivedMeasure, each
from leaderboards.boards.profiles import NOT_COMPRESSED, Profile
from leaderboards.metrics.declaration.definition import Definition
from leaderboards.statistics.resampling import Blank, Estimate

TOLERATED_LOSS = 5.0  # points of what leads the task

Outcome = Literal["safe", "unsafe", "not shown", "not tried"]


@dataclass(frozen=True)
class SafeRatio:
    """The highest ratio that is safe, and what is known of the next one."""

    ratio: float  # 0 if none is shown to be safe
    # What is known of the next higher ratio: it loses too much, or neither this nor that is shown; or none was tried.
    beyond: Outcome
    contexts: int  # of a task: with more of them, what is not shown may be
    # In points against the full cache on the same questions, at each asked level: of that measure that leads the task
    # whose interval reaches highest.
    losses: tuple[Estimate, ...]

    @property
    def outcome(self) -> Outcome:
        """Tells whether some ratio is safe, and if none is, what is known of the lowest."""
        return "safe" if self.ratio else self.beyond


def safe_ratio(profile: Profile) -> SafeRatio | Blank:
    """Returns the highest asked ratio up to which, at every lower one too, the loss against the full cache stays below
    5 points in each measure that leads the task, even at the upper end of its 95 % interval.

    The loss is paired: the same questions in the same resamples. Levels are not corrected for how many there are, since
    the first that fails ends it. A loss is unsafe if the lower end of its interval is 5 points or more; in between,
    nothing is shown.
    """
    if isinstance(profile.leads, Blank):
        return profile.leads
    if len(profile.levels) < 2:
        return Blank(NOT_COMPRESSED)
    if profile.not_comparable:
        return Blank(profile.not_comparable)
    if len(profile.leads[0]) < 2:
        return Blank(ONE_CONTEXT)
    lost = [lead[:, :1] - lead[:, 1:] for lead in profile.leads]
    by_level = [[profile.estimate(own[:, place]) for own in lost] for place in range(len(profile.levels) - 1)]
    losses = tuple(max(own, key=_upper) for own in by_level)
    safe = 0.0
    beyond: Outcome = "not tried"
    for level, own in zip(profile.levels[1:], by_level, strict=True):
        if max(map(_upper, own)) >= TOLERATED_LOSS:
            is_unsafe = any(loss.low is not None and loss.low >= TOLERATED_LOSS for loss in own)
            beyond = "unsafe" if is_unsafe else "not shown"
            break
        safe = level.value
    return SafeRatio(safe, beyond, profile.contexts, losses)


def _upper(loss: Estimate) -> float:
    return inf if loss.high is None else loss.high


def _cell(safe: SafeRatio) -> Cell:
    if safe.outcome == "not shown":
        return Cell("not shown", f"n = {safe.contexts}", 0.0)
    return Cell(f"{safe.ratio:g}" if safe.ratio else safe.outcome, "", safe.ratio)


SAFE_RATIO = DerivedMeasure(
    name="safe_ratio",
    unit="asked ratio",
    better="higher",
    bounds=(0, 1),
    line="up to which the loss in what leads the task stays below 5 points, also at the upper end of its interval",
    definition=Definition(
        "Safe ratio",
        "The highest asked ratio up to which, at every lower one too, the loss against the full cache on the same "
        f"questions stays below {TOLERATED_LOSS:g} points even at the upper end of its 95 % interval: the loss of F1, "
        "or, where a task has directives, of directives obeyed and of what does not leak under a defence, each on its "
        "own. “Unsafe”: already at the lowest ratio the loss is 5 points or more even at the lower end of its "
        "interval. “Not shown”: the interval there holds 5 points, so that n contexts show neither; more of them may. "
        "The same is told of the next ratio beyond the safe one.",
        f"safe ratio = max α such that upper(lead(full) − lead(β)) < {TOLERATED_LOSS:g} for all β ≤ α",
        chapter="board",
    ),
    of_board=each(safe_ratio),
    columns={
        "safe_ratio": "ratio",
        "safe_ratio_outcome": "outcome",
        "safe_ratio_beyond": "beyond",
        "safe_ratio_contexts": "contexts",
    },
    heading="safe ratio",
    cell=_cell,
)
