"""Finds the safe ratio: up to which ratio can a cache be compressed?"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from statistics import fmean
from typing import Literal, get_args

from leaderboards.aggregate.summary import ONE_CONTEXT
from leaderboards.boards.declaration import BoardProfiles, DerivedMeasure, TableCell
from leaderboards.boards.profiles import LeadByContext, Profile
from leaderboards.metrics.declaration import Definition
from leaderboards.statistics.bootstrap import DIGITS, Blank, Estimate
from leaderboards.statistics.intervals import TOLERATED_LOSS, contexts_that_agree, excluded_by
from leaderboards.statistics.text import count_text, range_text
from policies.declaration.levels import KINDS, UNTREATED, LevelKind
from policies.declaration.names import FULL, ORACLE

CHANCE = "may be chance"
UNSAFE_FROM = "unsafe from"  # as a cell says it

Outcome = Literal["unsafe", "not shown", "not tried", "safe"]  # the worst first


@dataclass(frozen=True)
class SafeRatio:
    """The highest ratio that is safe, and what is known of the next one."""

    ratio: float  # 0 if none is shown to be safe
    # What is known of the next higher ratio: it loses too much, or neither this nor that is shown; or none was tried.
    beyond: Outcome
    contexts: int  # of a task: with more of them, what is not shown may be
    # In points against the full cache on the same questions, at each asked level in the measure that leads the task and
    # whose interval reaches highest, which decides.
    losses: tuple[Estimate, ...]
    unsafe_from: float | None = None  # the lowest asked ratio that is shown to be unsafe
    below_unsafe: tuple[float, float] | None = None  # the asked ratio below that, and the mean loss there, in points
    # The highest ratio that these contexts show of the oracle, which keeps the evidence, where they are too few to show
    # more of it.
    highest_sure: float = inf
    tolerance: float = TOLERATED_LOSS  # a loss of so many points is not safe
    undecided: Estimate | None = None  # the loss at the next higher ratio, where it is not shown to be safe or unsafe
    # How many contexts show that it is safe, if more of them are as these; None where no number does.
    needed: int | None = None
    tasks: tuple[str, ...] = ()  # over several tasks: those that decide it, that with the fewest contexts first
    unsafe_in: str = ""  # over several tasks: the one that is unsafe from the lowest ratio
    # Of its levels: of a fault the ratio is a rate, and of a mantissa it is a count of bits. None of what has no
    # levels, as int4: that is safe or not where it stands, and ``beyond`` says which.
    kind: str | None = UNTREATED.kind
    place: int = 0  # of the safe ratio among the asked levels
    held: float | None = None  # of what has no levels: its bytes, in percent of the full cache's

    @property
    def shown(self) -> float | None:
        return self.ratio or None

    @property
    def outcome(self) -> Outcome:  # whether some ratio is safe, and if none is, what is known of the lowest
        return "safe" if self.ratio else self.beyond

    @property
    def worth(self) -> float:
        """Returns what cells are sorted and coloured by: the share of the cache that is safe to save."""
        freed = 0.0 if self.held is None else 1 - self.held / 100
        return self.ratio if self.kind else freed if self.beyond == "safe" else 0.0

    @property
    def tested(self) -> Estimate:  # the loss at the safe ratio, or at the lowest where none is
        return self.losses[self.place]

    @property
    def more(self) -> int | None:
        """Returns how many contexts more would show the next higher ratio to be safe."""
        return None if self.needed is None else max(1, self.needed - self.contexts)

    @property
    def may_be_chance(self) -> bool:
        """Tells whether it is above what the same contexts show of the oracle."""
        return bool(self.kind) and self.ratio > self.highest_sure


def safe_ratios(board: BoardProfiles) -> Mapping[str, SafeRatio | Blank]:
    """Computes the safe ratio of every policy of a board. What the contexts are too few to show of the oracle, they do
    not show of others either: a policy that seems to be safe there may be so by chance."""
    known = {policy: safe_ratio(profile, board.tolerance) for policy, profile in board.profiles.items()}
    oracle = known.get(ORACLE)
    if isinstance(oracle, SafeRatio) and oracle.beyond == "not shown":
        for policy, one in known.items():
            if isinstance(one, SafeRatio) and policy != ORACLE:
                known[policy] = replace(one, highest_sure=min(one.highest_sure, oracle.ratio))
    return known


def safe_ratio(profile: Profile, tolerance: float = TOLERATED_LOSS) -> SafeRatio | Blank:
    """Returns the highest asked ratio up to which, at every lower one too, the loss against the full cache stays below
    ``tolerance`` points in each measure that leads the task, even at the upper end of its 95 % interval.

    The loss is paired: the same questions of the same contexts. Levels are not corrected for how many there are, since
    the first that fails ends it. A loss is unsafe if the lower end of its interval is the tolerance or more; in
    between, nothing is shown.
    """
    if isinstance(profile.leads, Blank):
        return profile.leads
    if profile.withheld:
        return Blank(profile.withheld)
    if profile.no_levels and profile.policy == FULL:
        return Blank(profile.no_levels)
    if profile.levels[-1].declared.not_comparable:
        return Blank(profile.levels[-1].declared.not_comparable)
    leads = [lead for of_task in profile.leads for lead in of_task]
    if min(lead.there.sum() for lead in leads) < 2:
        return Blank(ONE_CONTEXT)
    places = range(1, len(profile.levels))
    by_level = tuple(tuple(_loss(lead, place, profile.questions) for lead in leads) for place in places)
    deciding = tuple(max(losses, key=_upper) for losses in by_level)
    outcomes = [_outcome(losses, tolerance) for losses in by_level]
    safe = next((place for place, one in enumerate(outcomes) if one != "safe"), len(outcomes))  # how many, in a row
    beyond = outcomes[safe] if safe < len(outcomes) else "safe" if profile.no_levels else "not tried"
    ratios = [level.value for level in profile.levels[1:]]
    unsafe = outcomes.index("unsafe") if "unsafe" in outcomes else None
    of_what_has_levels = SafeRatio(
        max(ratios[:safe], default=0.0),
        beyond,
        profile.contexts,
        deciding,
        None if unsafe is None else ratios[unsafe],
        (ratios[unsafe - 1], deciding[unsafe - 1].mean) if unsafe else None,
        tolerance=tolerance,
        undecided=deciding[safe] if beyond == "not shown" else None,
        needed=_contexts_needed(leads, safe + 1, tolerance) if beyond == "not shown" else None,
        kind=profile.levels[-1].kind,
        place=max(0, safe - 1),
    )
    if not profile.no_levels:
        return of_what_has_levels
    return replace(of_what_has_levels, ratio=0.0, unsafe_from=None, kind=None, place=0, held=profile.held)


def _loss(lead: LeadByContext, place: int, questions: int) -> Estimate:
    """Estimates what one measure loses, in points, without the noise of sums: a loss of 5 points is none below 5."""
    low, high = lead.loss(place).interval()
    ends = round(100 * low, DIGITS), round(100 * high, DIGITS)
    return Estimate.within(float(round(lead.means[0] - lead.means[place], DIGITS)), ends, questions)


def _contexts_needed(leads: Sequence[LeadByContext], place: int, tolerance: float) -> int | None:
    needed = [lead.loss(place).contexts_below(tolerance / 100) for lead in leads]
    known = [one for one in needed if one is not None]
    return max(known) if len(known) == len(needed) else None


def lowest(by_task: Mapping[str, SafeRatio | Blank]) -> SafeRatio | Blank:
    """Returns what is safe in each of some tasks: the lowest of their safe ratios, and what is worst beyond it. Blank
    where one of them is. A mean over tasks may be safe where none of its parts is, since it has more contexts."""
    for task, one in by_task.items():
        if isinstance(one, Blank):
            return Blank(f"{task}: {one.reason}" if len(by_task) > 1 else one.reason, one.short)
    known = {task: one for task, one in by_task.items() if not isinstance(one, Blank)}
    smallest = min(known.values(), key=_badness)
    deciding = (task for task, one in known.items() if _badness(one) == _badness(smallest))
    tasks = tuple(sorted(deciding, key=lambda task: known[task].contexts))
    unsafe = {task: one.unsafe_from for task, one in known.items() if one.unsafe_from is not None}
    unsafe_in = min(unsafe, key=unsafe.__getitem__, default="")
    held = [one.held for one in known.values() if one.held is not None]
    return replace(
        smallest,
        contexts=known[tasks[0]].contexts,
        undecided=known[tasks[0]].undecided,
        needed=known[tasks[0]].needed,
        unsafe_from=unsafe.get(unsafe_in),
        below_unsafe=known[unsafe_in].below_unsafe if unsafe_in else None,
        highest_sure=min(one.highest_sure for one in known.values()),
        tasks=tasks,
        unsafe_in=unsafe_in,
        held=fmean(held) if held else None,
    )


def _badness(safe: SafeRatio) -> tuple[float, int]:
    """Orders safe ratios, the worst first: the lowest, and of equal ones that which is shown to be unsafe beyond."""
    return safe.ratio, get_args(Outcome).index(safe.beyond)


def _outcome(losses: Sequence[Estimate], tolerance: float) -> Outcome:
    """Judges one level by the loss in each measure that leads the task."""
    if max(map(_upper, losses)) < tolerance:
        return "safe"
    return "unsafe" if any(loss.low is not None and loss.low >= tolerance for loss in losses) else "not shown"


def _upper(loss: Estimate) -> float:
    return inf if loss.high is None else loss.high


def loss_text(points: float, tolerance: float = TOLERATED_LOSS) -> str:
    """Writes a loss with as many digits, up to two, as tell what is tolerated from what is not: 4.97 is not 5. Its
    minus is as wide as a digit."""
    within = points < tolerance
    digits = next((one for one in (0, 1) if (float(f"{points:.{one}f}") < tolerance) == within), 2)
    return f"{points:z.{digits}f}".replace("-", "−")


def one_level(safe: SafeRatio) -> tuple[str, ...]:
    """Writes how many bytes what has no levels holds, and the interval of its loss."""
    loss, texts = safe.tested, () if safe.held is None else (f"{safe.held:.0f} % of bytes",)
    if safe.kind or loss.low is None or loss.high is None:
        return texts
    low, high = (loss_text(end, safe.tolerance) for end in (loss.low, loss.high))
    return (*texts, f"loses {low} to {high}")


def still_needed(safe: SafeRatio) -> tuple[str, ...]:
    """Says what the contexts exclude where nothing is shown, and how many more of them would show it to be safe."""
    if safe.outcome != "not shown" or safe.undecided is None or safe.undecided.high is None:
        return ()
    more = () if safe.more is None else (f"{count_text(safe.more, 'more context')} needed",)
    return (f"excludes a loss of {ceil(safe.undecided.high)}", *more)


def contexts_line(contexts: Iterable[int], tolerance: float = TOLERATED_LOSS) -> str:
    """Says how many contexts show that a level is safe, and what those of some tasks exclude at best.

    >>> contexts_line([12, 96])
    '72 contexts of a task show a loss below 5 points if all answers agree; here 12 exclude a loss of 27 at best'
    """
    needed, counts = contexts_that_agree(tolerance / 100), sorted(set(contexts))
    enough = f"{needed} contexts of a task show a loss below {tolerance:g} points if all answers agree"
    few = [count for count in counts if count < needed]
    if not few:
        return f"{enough}; here are {range_text(counts[0], counts[-1])}"
    most, least = (ceil(100 * excluded_by(count)) for count in (few[0], few[-1]))
    return f"{enough}; here {range_text(few[0], few[-1])} exclude a loss of {range_text(most, least)} at best"


def _cell(safe: SafeRatio) -> TableCell:
    """Makes the cell of a board; over several tasks each number has the task that it is of."""
    few = f"n = {safe.contexts}" if safe.outcome == "not shown" else ""
    if safe.tasks:
        more = f" +{len(safe.tasks) - 1}" if len(safe.tasks) > 1 else ""
        few = f"in {safe.tasks[0]}{f' ({few})' if few else ''}{more}"
    unsafe = unsafe_from(safe)
    if unsafe and safe.unsafe_in:
        unsafe += f" in {safe.unsafe_in}"
    if unsafe and safe.below_unsafe and not safe.ratio:
        unsafe += f"\n{loss_below(safe)}"
    lines = (*one_level(safe), few, *still_needed(safe), CHANCE if safe.may_be_chance else "", unsafe)
    # A share removed stands alone, as it does everywhere.
    what = "" if safe.kind is None or KINDS[safe.kind].removes else f"{safe.kind} "
    text = f"{what}{safe.ratio:g}" if safe.ratio else safe.outcome
    return TableCell(text, "\n".join(filter(None, lines)), safe.worth)


def loss_below(safe: SafeRatio) -> str:
    """Writes the loss at the ratio below that from which on it is unsafe, where one was asked."""
    if not safe.below_unsafe:
        return ""
    ratio, loss = safe.below_unsafe
    return f"loses {loss_text(loss, safe.tolerance)} at {ratio:g}"


def unsafe_from(safe: SafeRatio) -> str:
    """Says from which ratio on it is unsafe, where that is known and not told by the outcome."""
    return "" if safe.unsafe_from is None or safe.outcome == "unsafe" else f"{UNSAFE_FROM} {safe.unsafe_from:g}"


def safe_heading(kinds: Sequence[LevelKind]) -> str:
    """Names what is safe at levels of these kinds: the safe rate where all are rates; of several kinds the level."""
    return f"safe {kinds[0].name if len(kinds) == 1 else 'level'}"


SAFE_HEADINGS = (*(safe_heading([kind]) for kind in KINDS.values()), safe_heading([]))
SAFE_RATIO = DerivedMeasure(
    name="safe_ratio",
    better="higher",
    line="the highest ratio at which fewer points of the task’s main measure are lost than are tolerated (5, or those "
    "of --tolerance), even at the upper end of the interval; over all tasks the lowest of any, with the task that "
    "decides it",
    definition=Definition(
        "Safe ratio",
        "The highest asked ratio up to which, at every lower one too, the loss against the full cache on the same "
        f"questions stays below {TOLERATED_LOSS:g} points, or those of --tolerance, even at the upper end of its 95 % "
        "interval: the loss of right answers, or, where a task has directives, of directives obeyed and of what does "
        "not leak under a defence, each on its own. “Unsafe”: already at the lowest ratio the loss is as many points "
        "or more even at the lower end of its interval. “Not shown”: the interval there holds as many, and more "
        "contexts may show either. “Unsafe from 0.4”: the lowest ratio at which the loss is shown to be as many or "
        "more. “May be chance”: a ratio above that of the oracle, which keeps the evidence. “Excludes a loss of 27; 60 "
        "more contexts needed”: of 12 contexts in which all answers agree the upper end is 1 − 0.025^(1/12), which is "
        f"26.5 points, and {contexts_that_agree(TOLERATED_LOSS / 100)} such contexts exclude {TOLERATED_LOSS:g}. What "
        "is needed is counted as if more contexts were like those that were run. Few contexts can show something to "
        "be unsafe, and hardly ever safe. Over all tasks it is the lowest of those that the mean counts, with the task "
        "that has it (+1: as many more). Of faults it is the safe rate, of masked bits their number. What has one "
        "level, as int4, is safe or not where it stands; below it are its bytes in percent of the full cache’s, and "
        "the interval of its loss in points.",
        "safe ratio = max α such that upper(main measure(full) − main measure(β)) < tolerance for all β ≤ α",
        chapter="board",
    ),
    of_board=safe_ratios,
    over_tasks=lowest,
    columns={
        "safe_ratio": "shown",
        "safe_ratio_kind": "kind",
        "safe_ratio_outcome": "outcome",
        "safe_ratio_beyond": "beyond",
        "safe_ratio_unsafe_from": "unsafe_from",
        "safe_ratio_unsafe_in": "unsafe_in",
        "safe_ratio_may_be_chance": "may_be_chance",
        "safe_ratio_contexts": "contexts",
        "safe_ratio_contexts_needed": "needed",
        "safe_ratio_tolerance": "tolerance",
        "safe_ratio_bytes_held": "held",
        "safe_ratio_loss": "tested.mean",
        "safe_ratio_loss_low": "tested.low",
        "safe_ratio_loss_high": "tested.high",
        "safe_ratio_tasks": "tasks",
    },
    heading=safe_heading([UNTREATED.declared]),
    heading_of=safe_heading,
    cell=_cell,
)
