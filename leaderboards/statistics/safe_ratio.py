"""Judges losses against the full cache, and finds up to which level they are safe.

A level is safe where the interval of the paired loss lies below what is tolerated as a whole, unsafe
where it lies at or above it as a whole, and open in between. The safe ratio is the last of the safe
levels that no other level stands before."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from typing import Literal, get_args

from leaderboards.statistics.bootstrap import DIGITS, Blank
from leaderboards.statistics.intervals import ALPHA
from leaderboards.statistics.paired_difference import MeanDifference, PairedDifference
from policies.declaration.levels import UNTREATED

# Points of what leads a task, below which a loss is safe, unless one asks for another number.
TOLERATED_LOSS = 5.0
OPEN = "open"  # neither shown to be safe nor shown to be unsafe


LevelVerdict = Literal["unsafe", "open", "safe"]  # the worst first
Outcome = Literal["unsafe", "open", "not tried", "safe"]


@dataclass(frozen=True)
class LevelLoss:
    """Holds what a policy has at one level beside the full cache on the same questions, and what
    that shows."""

    level: float  # as asked; 0 of what has one level
    verdict: LevelVerdict
    difference: MeanDifference  # in points, the policy less the full cache: a loss is negative
    contexts: int  # of its task
    task: str = ""  # over several tasks that in which it is worst

    @property
    def badness(self) -> tuple[int, float, int]:
        """Orders losses of one level, the worst first: by verdict, by how much may be lost, and by
        contexts."""
        place = get_args(LevelVerdict).index(self.verdict)
        low = self.difference.low
        # Where nothing bounds the loss, any loss is possible, which is worst.
        if low is None:
            low = -inf
        return place, low, self.contexts


@dataclass(frozen=True)
class SafeRatio:
    """Holds the highest ratio that is safe, what is known of the next one, and the loss at each."""

    ratio: float  # 0 if none is shown to be safe
    # What is known of the next higher ratio: it loses too much, or neither this nor that is shown;
    # or none was tried.
    beyond: Outcome
    contexts: int  # of a task: with more of them, what is open may be safe
    # At each asked level the loss in the measure that leads the task; of several measures, or
    # tasks, in the worst.
    levels: tuple[LevelLoss, ...]
    # The level that a cell names with its loss: the safe one, or the lowest that is not.
    named: float
    next_level: float | None = None  # that of ``beyond``, where a lower one is safe
    unsafe_from: float | None = None  # the lowest asked ratio that is shown to be unsafe
    # The highest ratio that these contexts show of the oracle, which keeps the evidence, where they
    # are too few to show more of it.
    highest_sure: float = inf
    tolerance: float = TOLERATED_LOSS  # a loss of so many points is not safe
    # How many contexts show that it is safe, or that it is not, if more of them are as these; None
    # where no number does.
    needed: int | None = None
    # Over several tasks: those that decide it, that of ``tested`` first.
    tasks: tuple[str, ...] = ()
    unsafe_in: str = ""  # over several tasks: the one that is unsafe from the lowest ratio
    # Of its levels: of a fault the ratio is a rate, and of a mantissa it is a count of bits. None
    # of what has no levels, as int4: that is safe or not where it stands, and ``beyond`` says
    # which.
    kind: str | None = UNTREATED.kind
    held: float | None = None  # of what has no levels: its bytes, in percent of the full cache's
    # Why there is no verdict although losses are shown: "the model itself has 45 % right, below
    # 50".
    withheld: str = ""

    @property
    def shown(self) -> float | None:
        """Returns the ratio, if some ratio is safe."""
        if self.withheld or not self.ratio:
            return None
        return self.ratio

    @property
    def outcome(self) -> Outcome | None:
        """Tells whether some ratio is safe, and if none is, what the lowest is."""
        if self.withheld:
            return None
        return "safe" if self.ratio else self.beyond

    @property
    def known_beyond(self) -> Outcome | None:
        """Tells what the next higher ratio is, where verdicts are not withheld."""
        return None if self.withheld else self.beyond

    @property
    def worth(self) -> float | None:
        """Returns what cells are sorted and coloured by: the share of the cache that is safe to
        save."""
        if self.withheld:
            return None
        if self.kind:
            return self.ratio
        # A saving of bytes that is not shown to be safe is nothing that one may count on.
        if self.beyond != "safe" or self.held is None:
            return 0.0
        return 1 - self.held / 100

    @property
    def tested(self) -> LevelLoss:
        """Returns the loss at the level that the cell names."""
        return next(loss for loss in self.levels if loss.level == self.named)

    @property
    def more(self) -> int | None:
        """Returns how many contexts more would decide whether the next higher ratio is safe."""
        if self.needed is None:
            return None
        return max(1, self.needed - self.contexts)

    @property
    def may_be_chance(self) -> bool:
        """Tells whether it is above what the same contexts show of the oracle."""
        return bool(self.kind) and not self.withheld and self.ratio > self.highest_sure


def judge_loss(
    losses: PairedDifference, mean: float, level: float, contexts: int, tolerance: float
) -> LevelLoss:
    """Judges what one measure loses at a level, without the noise of sums: a loss of 5 points is
    none below 5. ``losses``: of the full cache over the policy. ``mean``: the loss in points."""
    low, high = losses.interval()
    mean = _rounded(mean)
    smallest, largest = _rounded(100 * low), _rounded(100 * high)
    verdict: LevelVerdict = "open"
    if largest < tolerance:
        verdict = "safe"
    elif smallest >= tolerance:
        verdict = "unsafe"
    # The policy less the full cache; it is taken from zero so that nothing lost is 0 and not -0.
    difference = MeanDifference(0.0 - mean, 0.0 - largest, 0.0 - smallest)
    return LevelLoss(level, verdict, difference, contexts)


def _rounded(points: float) -> float:
    return float(round(points, DIGITS))


def safe_at_one_level(
    loss: LevelLoss, by_measure: Sequence[PairedDifference], tolerance: float
) -> SafeRatio:
    """Judges what has no levels, as int4, where it stands. ``by_measure``: the losses in each
    measure that leads a task."""
    needed = None
    if loss.verdict == OPEN:
        needed = _contexts_needed(by_measure, tolerance)
    return SafeRatio(0.0, loss.verdict, loss.contexts, (loss,), loss.level, needed=needed)


def safe_over_levels(
    losses: Sequence[LevelLoss], by_level: Sequence[Sequence[PairedDifference]], tolerance: float
) -> SafeRatio:
    """Finds how many levels in a row are safe, and what is known of those behind them.
    ``by_level``: at each level, the losses in each measure that leads a task."""
    count = 0
    # All levels below ``count`` are safe. The first that is not ends the row, even where a higher
    # one seems safe again: nobody would trust that.
    while count < len(losses) and losses[count].verdict == "safe":
        count += 1
    ratio = 0.0
    if count:
        ratio = losses[count - 1].level
    named = losses[min(count, len(losses) - 1)]
    if ratio:
        named = losses[count - 1]
    beyond: Outcome = "not tried"
    needed = next_level = None
    if count < len(losses):
        beyond = losses[count].verdict
        if ratio:
            next_level = losses[count].level
    if beyond == OPEN:
        needed = _contexts_needed(by_level[count], tolerance)
    unsafe_from = None
    # Over all levels: levels that are open may lie between the last safe and the first unsafe one.
    for loss in losses:
        if loss.verdict == "unsafe":
            unsafe_from = loss.level
            break
    return SafeRatio(
        ratio,
        beyond,
        named.contexts,
        tuple(losses),
        named.level,
        next_level=next_level,
        unsafe_from=unsafe_from,
        needed=needed,
    )


def _contexts_needed(by_measure: Sequence[PairedDifference], tolerance: float) -> int | None:
    """Returns how many contexts would decide: show all losses to be below what is tolerated, or one
    of them to be above; None where no number would, as where a loss is just what is tolerated."""
    bound = tolerance / 100  # paired differences are shares, and what is tolerated is in points
    to_be_safe = [losses.contexts_below(bound) for losses in by_measure]
    to_be_unsafe = [losses.contexts_above(bound) for losses in by_measure]
    if None not in to_be_safe:
        return max(filter(None, to_be_safe))
    return min(filter(None, to_be_unsafe), default=None)


def lowest(by_task: Mapping[str, SafeRatio | Blank]) -> SafeRatio | Blank:
    """Returns what is safe in each of some tasks: the lowest of their safe ratios, and what is
    worst beyond it. Blank where one of them is. A mean over tasks may be safe where none of its
    parts is, since it has more contexts. Tasks whose verdict is withheld count only where that is
    so of all."""
    all_tasks: dict[str, SafeRatio] = {}
    for task, safe in by_task.items():
        if isinstance(safe, Blank):
            reason = f"{task}: {safe.reason}" if len(by_task) > 1 else safe.reason
            return Blank(reason, safe.short)
        all_tasks[task] = safe
    # Where no verdict is given of any task, the losses of all are shown nevertheless.
    judged = {task: safe for task, safe in all_tasks.items() if not safe.withheld} or all_tasks
    smallest = min(judged.values(), key=_badness)
    levels = _worst_levels(judged)
    tested = levels[smallest.named]
    deciding = [task for task, safe in judged.items() if _badness(safe) == _badness(smallest)]
    # First the task whose loss the cell shows, so that its numbers are all of one task; then those
    # that have the fewest contexts.
    deciding.sort(key=lambda task: (task != tested.task, judged[task].contexts))
    unsafe: dict[str, float] = {}
    held = []
    for task, safe in judged.items():
        if safe.unsafe_from is not None:
            unsafe[task] = safe.unsafe_from
        if safe.held is not None:
            held.append(safe.held)
    unsafe_in = min(unsafe, key=unsafe.__getitem__, default="")
    # All else in the cell is the task's with the lowest ratio. What is over all tasks is set here.
    return replace(
        smallest,
        contexts=judged[tested.task].contexts,
        levels=tuple(levels.values()),
        needed=judged[deciding[0]].needed,
        unsafe_from=unsafe.get(unsafe_in),
        highest_sure=min(safe.highest_sure for safe in judged.values()),
        tasks=tuple(deciding),
        unsafe_in=unsafe_in,
        held=fmean(held) if held else None,
        withheld=_why_withheld(judged),
    )


def _why_withheld(by_task: Mapping[str, SafeRatio]) -> str:
    reasons = {task: safe.withheld for task, safe in by_task.items() if safe.withheld}
    if len(reasons) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{task}: {reason}" for task, reason in reasons.items())


def _worst_levels(by_task: Mapping[str, SafeRatio]) -> dict[float, LevelLoss]:
    """Returns the worst loss of some tasks at each level, with the task that it is of."""
    worst: dict[float, LevelLoss] = {}
    for task, safe in by_task.items():
        for loss in safe.levels:
            before = worst.get(loss.level)
            if before is None or loss.badness < before.badness:
                worst[loss.level] = replace(loss, task=task)
    return worst


def _badness(safe: SafeRatio) -> tuple[float, int]:
    """Orders safe ratios, the worst first: the lowest, and of equal ones that which is shown to be
    unsafe beyond."""
    return safe.ratio, get_args(Outcome).index(safe.beyond)


def contexts_that_agree(bound: float) -> int:
    """Returns how many contexts that agree in everything exclude a loss of ``bound``, a share: 72
    of 0.05."""
    # Solves 1 - (ALPHA / 2) ** (1 / n) < bound for n: the upper end of the exact interval of no
    # loss in n contexts.
    return math.floor(math.log(ALPHA / 2) / math.log1p(-bound)) + 1


def excluded_by(contexts: int) -> float:
    """Returns the loss that so many contexts exclude which agree in everything, a share: 0.26 of
    12."""
    if not contexts:
        return 1.0
    return float(1 - (ALPHA / 2) ** (1 / contexts))
