"""Finds the safe ratio: up to which ratio can a cache be compressed?"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from leaderboards.aggregate.summary import ONE_CONTEXT
from leaderboards.boards.declaration import BoardProfiles, DerivedMeasure, TableCell
from leaderboards.boards.profiles import Profile
from leaderboards.metrics.declaration import Definition
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.paired_difference import MeanDifference, PairedDifference
from leaderboards.statistics.safe_ratio import (
    OPEN,
    TOLERATED_LOSS,
    LevelLoss,
    SafeRatio,
    contexts_that_agree,
    excluded_by,
    judge_loss,
    lowest,
    safe_at_one_level,
    safe_over_levels,
)
from leaderboards.statistics.text import count_text, range_text, rounded, signed_text
from policies.declaration.levels import LEVEL_KINDS, UNTREATED, LevelKind
from policies.declaration.names import FULL, ORACLE

CHANCE = "may be chance"


def safe_ratios(board: BoardProfiles) -> Mapping[str, SafeRatio | Blank]:
    """Computes the safe ratio of every policy of a board. What the contexts are too few to show of
    the oracle, they do not show of others either: a policy that seems to be safe there may be so by
    chance."""
    by_policy = {}
    for policy, profile in board.profiles.items():
        by_policy[policy] = safe_ratio(profile, board.tolerance)
    oracle = by_policy.get(ORACLE)
    if isinstance(oracle, SafeRatio) and oracle.beyond == OPEN:
        for policy, safe in by_policy.items():
            if isinstance(safe, SafeRatio) and policy != ORACLE:
                highest = min(safe.highest_sure, oracle.ratio)
                by_policy[policy] = replace(safe, highest_sure=highest)
    return by_policy


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
    highest = profile.levels[-1]
    if highest.declared.not_comparable:
        return Blank(highest.declared.not_comparable)
    leads = [lead for of_task in profile.leads for lead in of_task]
    if min(lead.there.sum() for lead in leads) < 2:
        return Blank(ONE_CONTEXT)
    losses: list[LevelLoss] = []
    by_level: list[list[PairedDifference]] = []
    for place, level in enumerate(profile.levels[1:], start=1):
        by_measure = [lead.loss(place) for lead in leads]
        judged = []
        for lead, of_measure in zip(leads, by_measure, strict=True):
            mean = lead.means[0] - lead.means[place]
            judged.append(judge_loss(of_measure, mean, level.value, profile.contexts, tolerance))
        # The worst measure decides: who obeys all directives and leaks them is not safe.
        losses.append(min(judged, key=lambda loss: loss.badness))
        by_level.append(by_measure)
    if profile.withheld:
        # The outcome only fills its place: where a verdict is withheld, nobody is told of it.
        safe = SafeRatio(0.0, "not tried", profile.contexts, tuple(losses), losses[0].level)
    elif profile.no_levels:
        safe = safe_at_one_level(losses[0], by_level[0], tolerance)
    else:
        safe = safe_over_levels(losses, by_level, tolerance)
    return replace(
        safe,
        contexts=profile.contexts,
        tolerance=tolerance,
        kind=None if profile.no_levels else highest.kind,
        held=profile.held,
        withheld=profile.withheld,
    )


def difference_text(difference: MeanDifference, tolerance: float = TOLERATED_LOSS) -> str:
    """Writes a difference from the full cache with its interval, each number with as many digits,
    up to two, as tell a loss that is tolerated from one that is not: 4.97 is not 5.

    >>> difference_text(MeanDifference(-25, -47, 0.2))
    '−25 [−47, 0]'
    >>> difference_text(MeanDifference(-1, -4.97, 2))
    '−1 [−4.97, +2]'
    """
    mean = _points_text(difference.mean, tolerance)
    if difference.low is None or difference.high is None:
        return mean
    low = _points_text(difference.low, tolerance)
    high = _points_text(difference.high, tolerance)
    return f"{mean} [{low}, {high}]"


def _points_text(points: float, tolerance: float) -> str:
    is_tolerated = -points < tolerance
    for digits in (0, 1, 2):
        # With a digit more where the number would read as being on the other side of the tolerance.
        reads_as_tolerated = -rounded(points, digits) < tolerance
        if reads_as_tolerated == is_tolerated:
            break
    return signed_text(points, digits)


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
        LEVEL_KINDS[safe.kind].removes if usual is None else safe.kind == usual
    )
    return f"{level:g}" if is_usual else f"{safe.kind} {level:g}"


def level_lines(safe: SafeRatio) -> list[str]:
    """Writes each level with its verdict and its difference, and over several tasks the task that
    it is of."""
    lines = []
    for loss in safe.levels:
        line = difference_text(loss.difference, safe.tolerance)
        if not safe.withheld:
            line = f"{loss.verdict} {line}"
        if safe.kind is not None:
            line = f"{_level_text(safe, loss.level, None)}: {line}"
        if loss.task:
            line = f"{line} in {loss.task}"
        lines.append(line)
    return lines


def held_text(safe: SafeRatio) -> str:
    """Writes how many bytes what has no levels holds."""
    if safe.held is None or safe.kind:
        return ""
    return f"{safe.held:.0f} % of bytes"


def more_text(safe: SafeRatio) -> str:
    """Says how many more contexts would decide about an open level, if they were like these."""
    if safe.outcome != OPEN or safe.more is None:
        return ""
    return f"{count_text(safe.more, 'more context')} needed"


def contexts_line(contexts: Iterable[int], tolerance: float = TOLERATED_LOSS) -> str:
    """Says how many contexts show that a level is safe, and what those of some tasks exclude at
    best.

    >>> contexts_line([12, 96]).split("; ")[1]
    'the 12 here can show at best that less than 27 are lost'
    """
    needed = contexts_that_agree(tolerance / 100)
    counts = sorted(set(contexts))
    loss = f"that less than {tolerance:g} points are lost"
    enough = f"{needed} contexts of a task can show {loss}, if all answers agree"
    few = [count for count in counts if count < needed]
    if not few:
        return f"{enough}; there are {range_text(counts[0], counts[-1])} here"
    # Rounded up: where 26.5 points are excluded, “less than 26” would say too much.
    largest, smallest = (ceil(100 * excluded_by(count)) for count in (few[0], few[-1]))
    losses = range_text(largest, smallest)
    here = range_text(few[0], few[-1])
    return f"{enough}; the {here} here can show at best that less than {losses} are lost"


def _cell(safe: SafeRatio) -> TableCell:
    """Makes the cell of a board; over several tasks each number has the task that it is of."""
    verdict, level = verdict_words(safe)
    where = f"n = {safe.tested.contexts}" if safe.outcome == OPEN else ""
    if safe.tasks:
        contexts = f" ({where})" if where else ""
        where = f"in {safe.tasks[0]}{contexts}"
        others = len(safe.tasks) - 1
        if others:
            where += f" +{others}"
    lines = [
        difference_text(safe.tested.difference, safe.tolerance),
        held_text(safe),
        where,
        more_text(safe),
    ]
    if safe.may_be_chance:
        lines.append(CHANCE)
    lines += [" ".join(words) for words in beyond_words(safe)]
    detail = "\n".join(filter(None, lines))
    return TableCell(f"{verdict} {level}".strip(), detail, safe.worth)


def safe_heading(kinds: Sequence[LevelKind]) -> str:
    """Names what is safe at levels of these kinds: the safe rate where all are rates; of several
    kinds the level."""
    if len(kinds) == 1:
        return f"safe {kinds[0].name}"
    return "safe level"


SAFE_HEADINGS = (*(safe_heading([kind]) for kind in LEVEL_KINDS.values()), safe_heading([]))
SAFE_RATIO = DerivedMeasure(
    name="safe_ratio",
    better="higher",
    line="the highest ratio at which less than the tolerated points (5, or those of --tolerance) "
    "are lost, even at the upper end of the interval; over all tasks the lowest of any, with its "
    "task",
    definition=Definition(
        "Safe ratio",
        "The highest asked ratio up to which a policy is safe: there, and at every lower ratio, "
        f"the loss against the full cache on the same questions stays below {TOLERATED_LOSS:g} "
        "points (or those of --tolerance) even at the upper end of its 95 % interval. What may be "
        "lost is right answers. Where a task has directives, it is directives obeyed, and what "
        "does not leak under a defence, each on its own. A cell names a level and the difference "
        "from the full cache there, in points with its interval; a loss is negative. “Safe to "
        "0.5”: the highest safe ratio. “Unsafe from 0.25”: from the lowest ratio on the loss is "
        "as many points or more even at the end that is nearest to none. “Open at 0.25”: the "
        "interval there holds both, and more contexts may show either. Under it stands from where "
        "it is unsafe. “May be chance”: a ratio above that of the oracle, which keeps the "
        "evidence. “60 more contexts needed”: if they are like those that were run, the level is "
        "shown to be safe, or unsafe where the mean loss is larger than that; of 12 contexts in "
        "which all answers agree the loss is below 1 − 0.025^(1/12), 26.5 points, "
        f"of {contexts_that_agree(TOLERATED_LOSS / 100)} below {TOLERATED_LOSS:g}. Few "
        "contexts can show something to be unsafe, and hardly ever safe. Over all tasks it is the "
        "lowest of those that the mean counts, with the task that has it (+1: as many more). Of "
        "faults it is the safe rate, of masked bits their number. What has one level, as int4, is "
        "safe, open or unsafe where it stands, with its bytes in percent of the full cache’s.",
        "safe ratio = max α such that upper(main measure(full) − main measure(β)) < tolerance for "
        "all β ≤ α",
        chapter="board",
    ),
    of_board=safe_ratios,
    # Not that of the mean, which has more contexts and may be safe where no task is.
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
