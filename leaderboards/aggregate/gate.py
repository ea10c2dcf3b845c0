"""Decides whether a comparison passes a gate: what a pipeline lets a press lose against the
opponents that it names."""

from collections.abc import Sequence
from dataclasses import dataclass

from leaderboards.aggregate.duels import UNDECIDED
from leaderboards.aggregate.pooled import Pooled
from policies.declaration.levels import UNTREATED

# Points: a loss of exactly what is allowed is no larger one for the noise of binary fractions.
EQUAL = 1e-9


@dataclass(frozen=True)
class GateRow:
    """The mean of tasks of a press and one opponent at one level, as a gate reads it."""

    row: Pooled
    # Points that the measured mean may be below the opponent's; None where any loss may be.
    max_loss: float | None
    fails_if_worse: bool

    @property
    def is_over(self) -> bool:
        """Tells whether the measured loss is above the allowed one."""
        return self.max_loss is not None and -self.row.difference.mean > self.max_loss + EQUAL

    @property
    def is_worse(self) -> bool:
        """Tells whether the verdict is worse, and that fails the gate."""
        return self.fails_if_worse and self.row.verdict == "worse"

    @property
    def passes(self) -> bool:
        """Tells whether neither the loss nor the verdict fails the gate."""
        return not (self.is_over or self.is_worse)

    @property
    def is_sure(self) -> bool:
        """Tells whether the whole interval lies on the side of the allowed loss on which the
        measured mean lies. A verdict has a test of its own, so that without an allowed loss it is
        sure where there is one."""
        if self.max_loss is None:
            return self.row.verdict != UNDECIDED
        low, high = self.row.difference.low, self.row.difference.high
        if low is None or high is None:
            return False
        if self.is_over:
            return high < -self.max_loss
        return low >= -self.max_loss

    @property
    def words(self) -> str:
        """Writes such as "snapkv −12 [−20, −4] points against int4 at ratio 0.5"."""
        row = self.row
        words = f"{row.policy} {row.difference.text} points against {row.other}"
        if row.level != UNTREATED:
            words += f" at {row.level.where}"
        elsewhere = []
        for name, level in zip((row.policy, row.other), row.run_at, strict=True):
            if level not in (row.level, UNTREATED):
                elsewhere.append(f"{name} at {level.where}")
        if elsewhere:
            words += f" ({', '.join(elsewhere)})"
        return words


@dataclass(frozen=True)
class Gate:
    """Holds what a comparison has to pass: ``--max-loss`` and ``--fail-if worse``, of which each
    may be left out."""

    max_loss: float | None
    fails_if_worse: bool

    @property
    def is_asked(self) -> bool:
        """Tells whether anything is asked of the comparison."""
        return self.max_loss is not None or self.fails_if_worse

    def rows(self, means: Sequence[Pooled]) -> list[GateRow]:
        """Reads each mean of tasks as this gate does."""
        return [GateRow(row, self.max_loss, self.fails_if_worse) for row in means]

    def fault(self, rows: Sequence[GateRow]) -> str:
        """Says in one line why the gate fails, by the largest loss; empty where it passes."""
        failed = [row for row in rows if not row.passes]
        if not failed:
            return ""
        # By the mean, since a gate is about the measured loss, and its interval only says how sure
        # that is.
        largest = min(failed, key=lambda row: row.row.difference.mean)
        reason = "the verdict is worse"
        if largest.is_over:
            sure = f"its interval excludes a loss of {self.max_loss:g} or less"
            unsure = f"its interval reaches {self.max_loss:g}, so that it may be chance"
            certainty = _interval_words(largest, sure, unsure)
            reason = f"above the loss of {self.max_loss:g} that is allowed; {certainty}"
        if len(failed) > 1:
            reason += f"; {len(failed)} of {len(rows)} comparisons fail"
        return f"the gate fails: {largest.words}, {reason}"

    def success(self, rows: Sequence[GateRow]) -> str:
        """Says in one line that the gate passes, with the largest loss and whether the interval
        excludes a larger."""
        lowest = min(rows, key=lambda row: row.row.difference.mean)
        if self.max_loss is None:
            return f"the gate passes: no verdict is worse; the lowest difference is {lowest.words}"
        sure = f"its interval excludes a loss above {self.max_loss:g}"
        unsure = f"its interval reaches a loss above {self.max_loss:g}"
        allowed = f"a loss of {self.max_loss:g} is allowed"
        words = f"the lowest difference is {lowest.words}; {_interval_words(lowest, sure, unsure)}"
        return f"the gate passes: {allowed}; {words}"


def _interval_words(row: GateRow, sure: str, unsure: str) -> str:
    if row.row.difference.low is None:
        return "too few contexts differ for an interval"
    return sure if row.is_sure else unsure
