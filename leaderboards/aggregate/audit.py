"""The identity audit: two names for one method, and policies that change nothing. (A peer's
PyramidKV was SnapKV in all of its 7,800 pairs, unnoticed.)"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from pandas import DataFrame, Series

from leaderboards.aggregate.arguments import largest_window
from leaderboards.statistics.columns import with_levels
from leaderboards.statistics.text import count_text
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import CONTROLS, FULL, ORACLE

# At this ratio and above, outputs that are all those of the full cache are worth a look.
UNCHANGED_FROM = 0.5
# The mean share removed from which a context is compressed, whatever was asked for.
REMOVED_FROM = 0.1
# Kept in a head, below which two methods may agree by chance: the last token is everybody's choice.
FEWEST_TOKENS = 8
SAME_NATS = 1e-3  # likelihoods closer than this differ by rounding alone
QUESTION = ["task", "mode", "example_id", "question_id"]


@dataclass(frozen=True)
class Unchanged:
    """A policy whose outputs, at high ratios or at the highest rate of a run, are all those of the
    full cache."""

    policy: str
    levels: tuple[Level, ...]
    records: int  # at each level
    removed: float  # the smallest mean share of the context that it removed at one of them

    @property
    def where(self) -> str:
        """Writes the levels with their kind."""
        return f"{self.levels[0].kind} {', '.join(map(str, self.levels))}"

    @property
    def doubt(self) -> str:
        """Says what may be wrong; policies with the same doubt are named together."""
        if not self.levels[0].declared.removes:
            return "and the right answers are exactly as likely: does the treatment act at all?"
        if self.removed < REMOVED_FROM:
            removed = f"at most {REMOVED_FROM:.0%} of the context"
            return f"and {removed} is removed: is it compressed at all?"
        return "though the context is compressed: perhaps the questions do not need the rest"


def write_lines(unchanged: Sequence[Unchanged]) -> list[str]:
    """Writes a line for each doubt, which names all policies that it is about and their levels."""
    by_doubt: dict[str, list[Unchanged]] = {}
    for case in unchanged:
        by_doubt.setdefault(case.doubt, []).append(case)
    lines = []
    for doubt, doubted in by_doubt.items():
        groups: dict[tuple[str, int], list[str]] = {}
        for case in doubted:
            groups.setdefault((case.where, case.records), []).append(case.policy)
        parts = []
        for (where, records), names in groups.items():
            parts.append(f"{', '.join(names)} at {where} ({count_text(records, 'record')})")
        change = "changes" if len(doubted) == 1 else "change"
        subject = "; ".join(parts)
        lines.append(f"{subject} {change} nothing of what the full cache writes, {doubt}")
    return lines


def audit(
    records: DataFrame, declared: Mapping[str, Collection[str]] | None = None
) -> tuple[list[str], list[Unchanged]]:
    """Lists what looks wrong in the records of a run: policies that read the same cache, told by
    its digest, though nothing says that they do, and those that change nothing. Of random policies
    the first draw is looked at. A treatment that removes no token, such as a fault, is looked at
    where it does most: at a low rate it may well change no answer, and at rate 0 it must not.
    ``declared``: by policy, those that are the same by design."""
    first_draws = (records["status"] == "ok") & (records["repeat"] == 0)
    sound = with_levels(records[first_draws])
    numbers = {name: sound[name].astype(float) for name in ("ratio", "gold_nll")}
    sound = sound.assign(**numbers)
    is_full = sound["policy"] == FULL
    full = sound[is_full].set_index(QUESTION)[["output_text", "gold_nll"]]
    # A fault has no ratio: NaN differs from 0, so that it stays.
    compressed = sound[~is_full & (sound["level"] != UNTREATED) & (sound["ratio"] != 0)]
    highest = _highest_amounts(compressed)
    identical: list[str] = []
    unchanged: dict[str, Unchanged] = {}
    for level, at_level in compressed.groupby("level", observed=True):
        by_policy = {}
        for policy, of_policy in at_level.groupby("policy", observed=True):
            by_policy[str(policy)] = of_policy
        identical += _identical_policies(level, by_policy, declared or {})
        removes = level.declared.removes
        if removes and at_level["ratio"].mean() < UNCHANGED_FROM:
            continue
        for name, of_policy in by_policy.items():
            is_meant = removes or 0 < level.amount == highest[name]
            if name not in CONTROLS and is_meant and _changes_nothing(of_policy, full):
                # One case for each policy, over all levels at which it changes nothing.
                before = unchanged.get(name, Unchanged(name, (), 0, 1.0))
                removed = min(before.removed, float(of_policy["realised_ratio"].mean()))
                levels = (*before.levels, level)
                unchanged[name] = Unchanged(name, levels, len(of_policy), removed)
    return identical, list(unchanged.values())


def _highest_amounts(records: DataFrame) -> dict[str, float]:
    """Returns by policy the highest amount of a treatment at which it was run."""
    highest: dict[str, float] = {}
    pairs = records[["policy", "level"]].drop_duplicates()
    for policy, level in pairs.itertuples(index=False):
        name = str(policy)
        highest[name] = max(highest.get(name, level.amount), level.amount)
    return highest


def _identical_policies(
    level: Level,
    by_policy: Mapping[str, DataFrame],
    declared: Mapping[str, Collection[str]],
) -> list[str]:
    """Says which pairs of policies read the same cache in all informative records of a level,
    though they are not ``declared`` to be the same."""
    digests = {}
    for name, records in by_policy.items():
        informative = _informative(name, records).set_index(QUESTION)
        digests[name] = informative["cache_digest"]
    lines = []
    for first, second in combinations(by_policy, 2):
        if second in declared.get(first, ()) or first in declared.get(second, ()):
            continue
        # Only the questions that are informative for both.
        of_first, of_second = digests[first].align(digests[second], join="inner")
        is_measured = len(of_first) > 0 and of_first.notna().all()
        if is_measured and (of_first == of_second).all():
            same = f"the same cache in all of {len(of_first)} records"
            lines.append(f"{first} and {second} are identical at {level.where}: {same}")
    return lines


def _informative(policy: str, records: DataFrame) -> DataFrame:
    """Selects records in which two methods do not agree by chance: those with room for more than a
    window of recent tokens or a page, and of an oracle, which else keeps the most recent of it, for
    all of the evidence."""
    needed: Series | int = FEWEST_TOKENS
    if policy == ORACLE:
        needed = records["evidence_tokens"].clip(lower=FEWEST_TOKENS)
    kept_together = {}
    for text in records["press_arguments"].unique():
        arguments = json.loads(text)
        kept_together[text] = max(largest_window(arguments), _page_size(arguments))
    together = records["press_arguments"].map(kept_together)
    kept = records["kept_tokens"]
    return records[(kept >= needed) & (kept > together)]


def _page_size(arguments: Mapping[str, object]) -> int:
    """Returns how many rows a policy that keeps whole pages keeps together; 0 where it keeps single
    rows."""
    size = arguments.get("size")
    if isinstance(size, int):
        return size
    return 0


def _changes_nothing(group: DataFrame, full: DataFrame) -> bool:
    """Tells whether all outputs are the full cache's; of running text, whether the right answer is
    as likely. Of what removes no token the right answers have to be exactly as likely too: small
    errors change few answers."""
    pairs = group.join(full, on=QUESTION, how="inner", rsuffix="_full")
    apart = (pairs["gold_nll"] - pairs["gold_nll_full"]).abs()
    removes = pairs["level"].map(lambda level: level.declared.removes).astype(bool)
    # Of what removes nothing exactly, and not nearly: whatever acts moves some likelihood in its
    # last digits.
    as_likely = (apart < SAME_NATS).where(removes, apart == 0)
    is_text = pairs["next_token_accuracy"].notna()
    has_likelihood = ~removes & pairs["gold_nll_full"].notna()
    must_be_as_likely = is_text | has_likelihood
    same_output = pairs["output_text"] == pairs["output_text_full"]
    same = same_output & (as_likely | ~must_be_as_likely)
    return len(pairs) > 0 and bool(same.all())
