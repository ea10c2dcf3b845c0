"""The identity audit: two names for one method, and policies that change nothing. (A peer's PyramidKV was SnapKV in
all of its 7,800 pairs, unnoticed.)"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from pandas import DataFrame

from leaderboards.aggregate.arguments import largest_window
from leaderboards.statistics.columns import with_levels
from leaderboards.statistics.text import count_text
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import CONTROLS, FULL, ORACLE

UNCHANGED_FROM = (
    0.5  # at this ratio and above, outputs that are all those of the full cache are worth a look
)
REMOVED_FROM = (
    0.1  # the mean share removed from which a context is compressed, whatever was asked for
)
FEWEST_TOKENS = 8  # kept in a head, below which two methods may agree by chance: the last token is everybody's choice
SAME_NATS = 1e-3  # likelihoods closer than this differ by rounding alone
QUESTION = ["task", "mode", "example_id", "question_id"]


@dataclass(frozen=True)
class Unchanged:
    """A policy whose outputs, at high ratios or at the highest rate of a run, are all those of the full cache."""

    policy: str
    levels: tuple[Level, ...]
    records: int  # at each level
    removed: float  # the smallest mean share of the context that it removed at one of them

    @property
    def where(self) -> str:
        return f"{self.levels[0].kind} {', '.join(map(str, self.levels))}"

    @property
    def doubt(self) -> str:
        """Says what may be wrong; policies with the same doubt are named together."""
        if not self.levels[0].declared.removes:
            return "and the right answers are exactly as likely: does the treatment act at all?"
        if self.removed < REMOVED_FROM:
            return f"and at most {REMOVED_FROM:.0%} of the context is removed: is it compressed at all?"
        return "though the context is compressed: perhaps the questions do not need the rest"


def lines_of(unchanged: Sequence[Unchanged]) -> list[str]:
    """Writes a line for each doubt, which names all policies that it is about and their levels."""
    lines = []
    for doubt in dict.fromkeys(one.doubt for one in unchanged):
        doubted = [one for one in unchanged if one.doubt == doubt]
        groups: dict[tuple[str, int], list[str]] = {}
        for one in doubted:
            groups.setdefault((one.where, one.records), []).append(one.policy)
        named = [
            f"{', '.join(names)} at {where} ({count_text(records, 'record')})"
            for (where, records), names in groups.items()
        ]
        change = "changes" if len(doubted) == 1 else "change"
        lines.append(f"{'; '.join(named)} {change} nothing of what the full cache writes, {doubt}")
    return lines


def audit(
    records: DataFrame, declared: Mapping[str, Collection[str]] | None = None
) -> tuple[list[str], list[Unchanged]]:
    """Lists what looks wrong in the records of a run: policies that read the same cache, told by its digest, though
    nothing says that they do, and those that change nothing. Of random policies the first draw is looked at. A
    treatment that removes no token, such as a fault, is looked at where it does most: at a low rate it may well change
    no answer, and at rate 0 it must not.
    ``declared``: by policy, those that are the same by design."""
    sound = with_levels(records[(records["status"] == "ok") & (records["repeat"] == 0)])
    sound = sound.assign(
        ratio=sound["ratio"].astype(float), gold_nll=sound["gold_nll"].astype(float)
    )
    full = sound[sound["policy"] == FULL].set_index(QUESTION)[["output_text", "gold_nll"]]
    compressed = sound[
        (sound["policy"] != FULL) & (sound["level"] != UNTREATED) & (sound["ratio"] != 0)
    ]
    identical: list[str] = []
    unchanged: dict[str, Unchanged] = {}
    most = compressed.groupby("policy", observed=True)["level"].agg(
        lambda levels: max(level.amount for level in levels)
    )
    for level, alike in compressed.groupby("level", observed=True):
        groups = {str(policy): group for policy, group in alike.groupby("policy", observed=True)}
        telling = {
            name: _informative(name, group).set_index(QUESTION) for name, group in groups.items()
        }
        for one, other in combinations(groups, 2):
            if declared and (other in declared.get(one, ()) or one in declared.get(other, ())):
                continue
            first, second = (telling[name]["cache_digest"] for name in (one, other))
            first, second = first.align(second, join="inner")
            if len(first) and first.notna().all() and (first == second).all():
                same = f"the same cache in all of {len(first)} records"
                identical.append(f"{one} and {other} are identical at {level.where}: {same}")
        if level.declared.removes and alike["ratio"].mean() < UNCHANGED_FROM:
            continue
        for name, group in groups.items():
            is_meant = level.declared.removes or 0 < level.amount == most[name]
            if name not in CONTROLS and is_meant and _changes_nothing(group, full):
                before = unchanged.get(name, Unchanged(name, (), 0, 1.0))
                removed = min(before.removed, float(group["realised_ratio"].mean()))
                unchanged[name] = Unchanged(name, (*before.levels, level), len(group), removed)
    return identical, list(unchanged.values())


def _informative(policy: str, records: DataFrame) -> DataFrame:
    """Selects records in which two methods do not agree by chance: those with room for more than a window of recent
    tokens or a page, and of an oracle, which else keeps the most recent of it, for all of the evidence."""
    needed = (
        records["evidence_tokens"].clip(lower=FEWEST_TOKENS) if policy == ORACLE else FEWEST_TOKENS
    )
    arguments = records["press_arguments"]
    parsed = {text: json.loads(text) for text in arguments.unique()}
    together = arguments.map(
        {text: max(largest_window(one), _page_of(one)) for text, one in parsed.items()}
    )
    return records[(records["kept_tokens"] >= needed) & (records["kept_tokens"] > together)]


def _page_of(arguments: Mapping[str, object]) -> int:
    """Returns how many rows a policy that keeps whole pages keeps together; 0 where it keeps single ones."""
    size = arguments.get("size")
    return size if isinstance(size, int) else 0


def _changes_nothing(group: DataFrame, full: DataFrame) -> bool:
    """Tells whether all outputs are the full cache's; of running text, whether the right answer is as likely. Of what
    removes no token the right answers have to be exactly as likely too: small errors change few answers."""
    pairs = group.join(full, on=QUESTION, how="inner", rsuffix="_full")
    apart = (pairs["gold_nll"] - pairs["gold_nll_full"]).abs()
    removes = pairs["level"].map(lambda level: level.declared.removes).astype(bool)
    as_likely = (apart < SAME_NATS).where(removes, apart == 0)
    needed = pairs["next_token_accuracy"].notna() | (~removes & pairs["gold_nll_full"].notna())
    same = (pairs["output_text"] == pairs["output_text_full"]) & (as_likely | ~needed)
    return len(pairs) > 0 and bool(same.all())
