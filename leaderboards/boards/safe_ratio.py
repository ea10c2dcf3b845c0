"""Finds the safe ratio: up to which ratio can a cache be compressed?"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from statistics import fmean
from typing import Literal, get_args

from leaderboards.aggregate.duels import MeanDifference
from leaderboards.aggregate.summary import ONE_CONTEXT
from leaderboards.boards.declaration import BoardProfiles, DerivedMeasure, TableCell
from leaderboards.boards.profiles import LeadByContext, Profile
from leaderboards.metrics.declaration import Definition
from leaderboards.statistics.bootstrap import DIGITS, Blank
from leaderboards.statistics.intervals import TOLERATED_LOSS, contexts_that_agree, excluded_by
from leaderboards.statistics.text import count_text, range_text
from policies.declaration.levels import KINDS, UNTREATED, LevelKind
from policies.declaration.names import FULL, ORACLE

CHANCE = "may be chance"
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
        low = self.difference.low
        return (
            get_args(LevelVerdict).index(self.verdict),
            -inf if low is None else low,
            self.contexts,
        )


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
    # the level that a cell names with its loss: the safe one, or the lowest that is not
    named: float
    next_level: float | None = None  # that of ``beyond``, where a lower one is safe
    unsafe_from: float | None = None  # the lowest asked ratio that is shown to be unsafe
    # The highest ratio that these contexts show of the oracle, which keeps the evidence, where they
    # are too few to show more of it.
    highest_sure: float = inf
    tolerance: float = TOLERATED_LOSS  # a loss of so many points is not safe
    # How many contexts show that it is safe, if more of them are as these; None where no number
    # does.
    needed: int | None = None
    # over several tasks: those that decide it, that of ``tested`` first
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
        return None if self.withheld else self.ratio or None

    @property
    # whether some ratio is safe, and if none is, what is known of the lowest
    def outcome(self) -> Outcome | None:
        return None if self.withheld else "safe" if self.ratio else self.beyond

    @property
    def known_beyond(self) -> Outcome | None:
        return None if self.withheld else self.beyond

    @property
    def worth(self) -> float | None:
        """Returns what cells are sorted and coloured by: the share of the cache that is safe to
        save."""
        if self.withheld:
            return None
        freed = 0.0 if self.held is None else 1 - self.held / 100
        return self.ratio if self.kind else freed if self.beyond == "safe" else 0.0

    @property
    def tested(self) -> LevelLoss:
        """Returns the loss at the level that the cell names."""
        return next(one for one in self.levels if one.level == self.named)

    @property
    def more(self) -> int | None:
        """Returns how many contexts more would show the next higher ratio to be safe."""
        return None if self.needed is None else max(1, self.needed - self.contexts)

    @property
    def may_be_chance(self) -> bool:
        """Tells whether it is above what the same contexts show of the oracle."""
        return bool(self.kind) and not self.withheld and self.ratio > self.highest_sure


def safe_ratios(board: BoardProfiles) -> Mapping[str, SafeRatio | Blank]:
    """Computes the safe ratio of every policy of a board. What the contexts are too few to show of
    the oracle, they do not show of others either: a policy that seems to be safe there may be so by
    chance."""
    known = {
        policy: safe_ratio(profile, board.tolerance) for policy, profile in board.profiles.items()
    }
    oracle = known.get(ORACLE)
    if isinstance(oracle, SafeRatio) and oracle.beyond == OPEN:
        for policy, one in known.items():
            if isinstance(one, SafeRatio) and policy != ORACLE:
                known[policy] = replace(one, highest_sure=min(one.highest_sure, oracle.ratio))
    return known


def safe_ratio(profile: Profile, tolerance: float = TOLERATED_LOSS) -> SafeRatio | Blank:
    """Returns the highest asked ratio up to which, at every lower one too, the loss against the
    full cache stays below ``tolerance`` points in each measure that leads the task, even at the
    upper end of its 95 % interval.

    The loss is paired: the same questions of the same contexts. Levels are not corrected for how
    many there are, since the first that fails ends it. A loss is unsafe if the lower end of its
    interval is the tolerance or more; in between, it is open.
    """
    if isinstance(profile.leads, Blank):
        return profile.leads
    if profile.no_levels and profile.policy == FULL:
        return Blank(profile.no_levels)
    if profile.levels[-1].declared.not_comparable:
        return Blank(profile.levels[-1].declared.not_comparable)
    leads = [lead for of_task in profile.leads for lead in of_task]
    if min(lead.there.sum() for lead in leads) < 2:
        return Blank(ONE_CONTEXT)
    losses = []
    for place, level in enumerate(profile.levels[1:], start=1):
        of_leads = [_loss(lead, place, level.value, profile.contexts, tolerance) for lead in leads]
        losses.append(min(of_leads, key=lambda loss: loss.badness))
    kind = None if profile.no_levels else profile.levels[-1].kind
    if profile.withheld:
        neutral = SafeRatio(
            0.0, "not tried", profile.contexts, tuple(losses), losses[0].level, tolerance=tolerance
        )
        return replace(neutral, kind=kind, held=profile.held, withheld=profile.withheld)
    # in a row
    safe = next((place for place, loss in enumerate(losses) if loss.verdict != "safe"), len(losses))
    beyond: Outcome = (
        losses[safe].verdict if safe < len(losses) else "safe" if profile.no_levels else "not tried"
    )
    ratio = losses[safe - 1].level if safe and not profile.no_levels else 0.0
    named = losses[safe - 1 if ratio else min(safe, len(losses) - 1)]
    unsafe = [loss.level for loss in losses if loss.verdict == "unsafe"]
    return SafeRatio(
        ratio,
        beyond,
        profile.contexts,
        tuple(losses),
        named.level,
        losses[safe].level if ratio and safe < len(losses) else None,
        unsafe[0] if unsafe and not profile.no_levels else None,
        tolerance=tolerance,
        needed=_contexts_needed(leads, safe + 1, tolerance) if beyond == OPEN else None,
        kind=kind,
        held=profile.held,
    )


def _loss(
    lead: LeadByContext, place: int, level: float, contexts: int, tolerance: float
) -> LevelLoss:
    """Judges what one measure loses at a level, without the noise of sums: a loss of 5 points is
    none below 5."""
    low, high = lead.loss(place).interval()
    mean, least, most = lead.means[0] - lead.means[place], 100 * low, 100 * high
    mean, least, most = (float(round(points, DIGITS)) for points in (mean, least, most))
    verdict: LevelVerdict = (
        "safe" if most < tolerance else "unsafe" if least >= tolerance else "open"
    )
    # The policy less the full cache; zero is added so that nothing lost is 0 and not -0.
    difference = MeanDifference(*(0.0 - points for points in (mean, most, least)))
    return LevelLoss(level, verdict, difference, contexts)


def _contexts_needed(leads: Sequence[LeadByContext], place: int, tolerance: float) -> int | None:
    needed = [lead.loss(place).contexts_below(tolerance / 100) for lead in leads]
    known = [one for one in needed if one is not None]
    return max(known) if len(known) == len(needed) else None


def lowest(by_task: Mapping[str, SafeRatio | Blank]) -> SafeRatio | Blank:
    """Returns what is safe in each of some tasks: the lowest of their safe ratios, and what is
    worst beyond it. Blank where one of them is. A mean over tasks may be safe where none of its
    parts is, since it has more contexts. Tasks whose verdict is withheld count only where that is
    so of all."""
    for task, one in by_task.items():
        if isinstance(one, Blank):
            return Blank(f"{task}: {one.reason}" if len(by_task) > 1 else one.reason, one.short)
    all_tasks = {task: one for task, one in by_task.items() if not isinstance(one, Blank)}
    known = {task: one for task, one in all_tasks.items() if not one.withheld} or all_tasks
    smallest = min(known.values(), key=_badness)
    levels = _worst_levels(known)
    tested = levels[smallest.named]
    deciding = [task for task, one in known.items() if _badness(one) == _badness(smallest)]
    tasks = sorted(deciding, key=lambda task: (task != tested.task, known[task].contexts))
    unsafe = {task: one.unsafe_from for task, one in known.items() if one.unsafe_from is not None}
    unsafe_in = min(unsafe, key=unsafe.__getitem__, default="")
    held = [one.held for one in known.values() if one.held is not None]
    return replace(
        smallest,
        contexts=known[tested.task].contexts,
        levels=tuple(levels.values()),
        needed=known[tasks[0]].needed,
        unsafe_from=unsafe.get(unsafe_in),
        highest_sure=min(one.highest_sure for one in known.values()),
        tasks=tuple(tasks),
        unsafe_in=unsafe_in,
        held=fmean(held) if held else None,
        withheld=_why_withheld(known),
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
            of_task = replace(loss, task=task)
            worst[loss.level] = min(
                worst.get(loss.level, of_task), of_task, key=lambda one: one.badness
            )
    return worst


def _badness(safe: SafeRatio) -> tuple[float, int]:
    """Orders safe ratios, the worst first: the lowest, and of equal ones that which is shown to be
    unsafe beyond."""
    return safe.ratio, get_args(Outcome).index(safe.beyond)


def difference_text(difference: MeanDifference, tolerance: float = TOLERATED_LOSS) -> str:
    """Writes a difference from the full cache with its interval, each number with as many digits,
    up to two, as tell a loss that is tolerated from one that is not: 4.97 is not 5.

    >>> difference_text(MeanDifference(-25, -47, 0.2)), difference_text(MeanDifference(-1, -4.97, 2))
    ('−25 [−47, 0]', '−1 [−4.97, +2]')
    """
    mean = _points_text(difference.mean, tolerance)
    if difference.low is None or difference.high is None:
        return mean
    return (
        f"{mean} [{_points_text(difference.low, tolerance)}, "
        f"{_points_text(difference.high, tolerance)}]"
    )


def _points_text(points: float, tolerance: float) -> str:
    within = -points < tolerance
    digits = next((one for one in (0, 1) if (-float(f"{points:.{one}f}") < tolerance) == within), 2)
    text = f"{points:+z.{digits}f}"
    return (text if float(text) else text.removeprefix("+")).replace("-", "−")  # as wide as a digit


def verdict_words(safe: SafeRatio, usual: str | None = None) -> tuple[str, str]:
    """Returns the verdict of a cell, nothing where it is withheld, and the level that it names:
    ``("open", "at 0.25")``. Levels of another kind than the ``usual`` one are named; by default
    those that are no shares removed."""
    verdict = safe.outcome or ""
    if safe.kind is None:
        return verdict, ""
    preposition = {"safe": "to", "unsafe": "from"}.get(verdict, "at")
    return verdict, f"{preposition} {_level_text(safe, safe.named, usual)}"


def beyond_words(safe: SafeRatio, usual: str | None = None) -> tuple[tuple[str, str], ...]:
    """Says what is known of higher levels than that which the cell names: ``("unsafe", "from
    0.5")``."""
    if safe.kind is None or safe.withheld or safe.outcome == "unsafe":
        return ()
    words = []
    if safe.next_level is not None and safe.beyond == OPEN:
        words.append((OPEN, f"at {_level_text(safe, safe.next_level, usual)}"))
    if safe.unsafe_from is not None:
        task = f" in {safe.unsafe_in}" if safe.unsafe_in else ""
        words.append(("unsafe", f"from {_level_text(safe, safe.unsafe_from, usual)}{task}"))
    return tuple(words)


def _level_text(safe: SafeRatio, level: float, usual: str | None) -> str:
    """Writes a level; a share removed stands alone, as it does everywhere."""
    is_usual = safe.kind is None or (
        KINDS[safe.kind].removes if usual is None else safe.kind == usual
    )
    return f"{level:g}" if is_usual else f"{safe.kind} {level:g}"


def level_lines(safe: SafeRatio) -> list[str]:
    """Writes each level with its verdict and its difference, and over several tasks the task that
    it is of."""
    lines = []
    for loss in safe.levels:
        level = "" if safe.kind is None else f"{_level_text(safe, loss.level, None)}: "
        verdict = "" if safe.withheld else f"{loss.verdict} "
        task = f" in {loss.task}" if loss.task else ""
        lines.append(f"{level}{verdict}{difference_text(loss.difference, safe.tolerance)}{task}")
    return lines


def held_text(safe: SafeRatio) -> str:
    """Writes how many bytes what has no levels holds."""
    return "" if safe.held is None or safe.kind else f"{safe.held:.0f} % of bytes"


def more_text(safe: SafeRatio) -> str:
    """Says how many more contexts would show an open level to be safe, if they were like these."""
    return (
        ""
        if safe.outcome != OPEN or safe.more is None
        else f"{count_text(safe.more, 'more context')} needed"
    )


def contexts_line(contexts: Iterable[int], tolerance: float = TOLERATED_LOSS) -> str:
    """Says how many contexts show that a level is safe, and what those of some tasks exclude at
    best.

    >>> contexts_line([12, 96])
    '72 contexts of a task show a loss below 5 points if all answers agree; here 12 exclude a loss of 27 at best'
    """
    needed, counts = contexts_that_agree(tolerance / 100), sorted(set(contexts))
    enough = (
        f"{needed} contexts of a task show a loss below {tolerance:g} points if all answers agree"
    )
    few = [count for count in counts if count < needed]
    if not few:
        return f"{enough}; here are {range_text(counts[0], counts[-1])}"
    most, least = (ceil(100 * excluded_by(count)) for count in (few[0], few[-1]))
    return (
        f"{enough}; here {range_text(few[0], few[-1])} exclude a loss of {range_text(most, least)} "
        "at best"
    )


def _cell(safe: SafeRatio) -> TableCell:
    """Makes the cell of a board; over several tasks each number has the task that it is of."""
    verdict, level = verdict_words(safe)
    where = f"n = {safe.tested.contexts}" if safe.outcome == OPEN else ""
    if safe.tasks:
        more = f" +{len(safe.tasks) - 1}" if len(safe.tasks) > 1 else ""
        where = f"in {safe.tasks[0]}{f' ({where})' if where else ''}{more}"
    lines = (
        difference_text(safe.tested.difference, safe.tolerance),
        held_text(safe),
        where,
        more_text(safe),
        CHANCE if safe.may_be_chance else "",
        *(" ".join(words) for words in beyond_words(safe)),
    )
    return TableCell(f"{verdict} {level}".strip(), "\n".join(filter(None, lines)), safe.worth)


def safe_heading(kinds: Sequence[LevelKind]) -> str:
    """Names what is safe at levels of these kinds: the safe rate where all are rates; of several
    kinds the level."""
    return f"safe {kinds[0].name if len(kinds) == 1 else 'level'}"


SAFE_HEADINGS = (*(safe_heading([kind]) for kind in KINDS.values()), safe_heading([]))
SAFE_RATIO = DerivedMeasure(
    name="safe_ratio",
    better="higher",
    line="the highest ratio at which fewer points of the task’s main measure are lost than are "
    "tolerated (5, or those of --tolerance), even at the upper end of the interval; over all tasks "
    "the lowest of any, with the task that decides it",
    definition=Definition(
        "Safe ratio",
        "The highest asked ratio up to which, at every lower one too, the loss against the full "
        f"cache on the same questions stays below {TOLERATED_LOSS:g} points, or those of "
        "--tolerance, even at the upper end of its 95 % interval: the loss of right answers, or, "
        "where a task has directives, of directives obeyed and of what does not leak under a "
        "defence, each on its own. A cell names a level and the difference from the full cache "
        "there, in points with its interval; a loss is negative. “Safe to 0.5”: the highest safe "
        "ratio. “Unsafe from 0.25”: from the lowest ratio on the loss is as many points or more "
        "even at the end that is nearest to none. “Open at 0.25”: the interval there holds both, "
        "and more contexts may show either. Under it stands from where it is unsafe. “May be "
        "chance”: a ratio above that of the oracle, which keeps the evidence. “60 more contexts "
        "needed”: if they are like those that were run, the level is safe; of 12 contexts in which "
        "all answers agree the loss is below 1 − 0.025^(1/12), 26.5 points, of "
        f"{contexts_that_agree(TOLERATED_LOSS / 100)} below {TOLERATED_LOSS:g}. Few contexts can "
        "show something to be unsafe, and hardly ever safe. Over all tasks it is the lowest of "
        "those that the mean counts, with the task that has it (+1: as many more). Of faults it is "
        "the safe rate, of masked bits their number. What has one level, as int4, is safe, open or "
        "unsafe where it stands, with its bytes in percent of the full cache’s.",
        "safe ratio = max α such that upper(main measure(full) − main measure(β)) < tolerance for "
        "all β ≤ α",
        chapter="board",
    ),
    of_board=safe_ratios,
    over_tasks=lowest,
    columns={
        "safe_ratio": "shown",
        "safe_ratio_kind": "kind",
        "safe_ratio_outcome": "outcome",
        "safe_ratio_beyond": "known_beyond",
        "safe_ratio_unsafe_from": "unsafe_from",
        "safe_ratio_unsafe_in": "unsafe_in",
        "safe_ratio_may_be_chance": "may_be_chance",
        "safe_ratio_contexts": "contexts",
        "safe_ratio_contexts_needed": "needed",
        "safe_ratio_tolerance": "tolerance",
        "safe_ratio_bytes_held": "held",
        "safe_ratio_level": "named",
        "safe_ratio_difference": "tested.difference.mean",
        "safe_ratio_difference_low": "tested.difference.low",
        "safe_ratio_difference_high": "tested.difference.high",
        "safe_ratio_tasks": "tasks",
    },
    heading=safe_heading([UNTREATED.declared]),
    heading_of=safe_heading,
    cell=_cell,
    withheld=lambda safe: safe.withheld,
)
