"""The identity audit: two names for one method, and policies that change nothing. (A peer's PyramidKV was SnapKV in
all of its 7,800 pairs, unnoticed.)"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, factorize

from leaderboards.aggregate.arguments import largest_window
from leaderboards.statistics.columns import with_levels
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import CONTROLS, FULL, ORACLE

UNCHANGED_FROM = 0.5  # at this ratio and above, outputs that are all those of the full cache are worth a look
REMOVED_FROM = 0.1  # the mean share removed from which a context is compressed, whatever was asked for
FEWEST_TOKENS = 8  # kept in a head, below which two methods may agree by chance: the last token is everybody's choice
SAME_NATS = 1e-3  # likelihoods closer than this differ by rounding alone
KEY = ["task", "mode", "example_id", "question_id"]


@dataclass(frozen=True)
class Identical:
    """Two policies that do the same at a level, wherever both were run, though nothing says that they should."""

    one: str
    other: str
    level: Level
    records: int
    by: str

    def __str__(self) -> str:
        return (
            f"{self.one} and {self.other} are identical at {self.level.where}: the same {self.by} "
            f"in all of {self.records} records"
        )


@dataclass(frozen=True)
class Unchanged:
    """A policy whose outputs at high ratios are all those of the full cache."""

    policy: str
    levels: tuple[Level, ...]
    records: int  # at each level
    removed: float  # the smallest mean share of the context that it removed at one of them
    does: str = "writes"  # or predicts, where nothing is written, as in running text

    def __str__(self) -> str:
        where = f"{self.policy} at {self.levels[0].kind} {', '.join(map(str, self.levels))}"
        same = f"{self.does} what the full cache {self.does} in all of {self.records} records"
        if self.removed < REMOVED_FROM:
            return f"{where} {same}, and removed {self.removed:.0%} of the context: is it compressed at all?"
        return f"{where} {same}, though it removed {self.removed:.0%} of the context: do the questions need the rest?"


def audit(
    records: DataFrame, declared: Mapping[str, Collection[str]] | None = None
) -> tuple[list[Identical], list[Unchanged]]:
    """Lists what looks wrong in the records of a run. ``declared``: by policy, those that are the same by design.

    Policies are compared by the digest of what is read where both have one, and else by their outputs and by how likely
    right answers are; outputs say nothing where they are all those of the full cache. Where nothing is written, as in
    running text, likelihoods alone are compared. Of random policies the first draw is looked at.
    """
    sound = records[(records["status"] == "ok") & (records["repeat"] == 0)]
    seen = with_levels(sound).assign(
        ratio=sound["ratio"].astype(float),
        question=sound.groupby(KEY, sort=False, observed=True).ngroup(),
        digest=factorize(sound["cache_digest"])[0],
        output=factorize(sound["output_text"].where(sound["next_token_accuracy"].isna()))[0],
    )
    full = _Seen.of(seen[seen["policy"] == FULL])
    identical: list[Identical] = []
    unchanged: dict[str, Unchanged] = {}
    compressed = seen[(seen["policy"] != FULL) & (seen["level"] != UNTREATED) & (seen["ratio"] != 0)]
    for level, alike in compressed.groupby("level", observed=True):
        groups = {str(policy): group for policy, group in alike.groupby("policy", observed=True)}
        same = {name: _outputs_equal(_Seen.of(group), full) for name, group in groups.items()}
        telling = {name: _Seen.of(_informative(name, group)) for name, group in groups.items()}
        for one, other in combinations(groups, 2):
            if declared and (other in declared.get(one, ()) or one in declared.get(other, ())):
                continue
            finding = _identical(telling[one], telling[other], informative=not (same[one] and same[other]))
            if finding:
                identical.append(Identical(one, other, level, *finding))
        for name in (name for name, is_same in same.items() if is_same and name not in CONTROLS):
            if alike["ratio"].mean() >= UNCHANGED_FROM:
                before = unchanged.get(name, Unchanged(name, (), 0, 1.0))
                removed = min(before.removed, float(groups[name]["realised_ratio"].mean()))
                does = "writes" if (groups[name]["output"] >= 0).any() else "predicts"
                unchanged[name] = Unchanged(name, (*before.levels, level), len(groups[name]), removed, does)
    return identical, list(unchanged.values())


def _informative(policy: str, records: DataFrame) -> DataFrame:
    """Selects records in which two methods do not agree by chance. An oracle that cannot keep all of the evidence keeps
    the most recent of it, as recency does where evidence is all that there is; so does a press that has room for its
    window of recent tokens alone. Where logits are infinite or NaN, the
    tokens chosen from them are alike whatever made them so: such an answer is a DUE without a likelihood."""
    needed = records["evidence_tokens"].clip(lower=FEWEST_TOKENS) if policy == ORACLE else FEWEST_TOKENS
    arguments = records["press_arguments"]
    windows = arguments.map({text: largest_window(json.loads(text)) for text in arguments.unique()})
    not_finite = records["due"].eq(True) & records["gold_nll"].isna()
    return records[(records["kept_tokens"] >= needed) & (records["kept_tokens"] > windows) & ~not_finite]


Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class _Seen:
    """Holds what was read and written for some questions, in their order: equal numbers for what is equal, -1 for
    nothing."""

    question: Numbers
    digest: Numbers
    output: Numbers
    nats: NDArray[np.float64]  # mean negative log-likelihoods of the right answers, NaN where there is none

    @classmethod
    def of(cls, records: DataFrame) -> Self:
        ordered = records.sort_values("question")
        question, digest, output = (ordered[name].to_numpy(dtype=np.int64) for name in ("question", "digest", "output"))
        return cls(question, digest, output, ordered["gold_nll"].to_numpy(dtype=np.float64))

    def shared_with(self, other: "_Seen") -> tuple["_Seen", "_Seen"]:
        """Selects the questions that both have, in the same order."""
        _, one, two = np.intersect1d(self.question, other.question, assume_unique=True, return_indices=True)
        return self._at(one), other._at(two)

    def _at(self, places: NDArray[np.intp]) -> "_Seen":
        return _Seen(self.question[places], self.digest[places], self.output[places], self.nats[places])


def _outputs_equal(seen: _Seen, full: _Seen) -> bool:
    """Tells whether all outputs that the full cache has an equal for are equal to it. Where nothing is written, the
    right answer has to be as likely."""
    of_policy, of_full = seen.shared_with(full)
    as_likely = np.abs(of_policy.nats - of_full.nats) < SAME_NATS
    alike = (of_policy.output == of_full.output) & ((of_policy.output >= 0) | as_likely)
    return len(of_policy.question) > 0 and bool(alike.all())


def _identical(one: _Seen, other: _Seen, informative: bool) -> tuple[int, str] | None:
    """Counts the records that two methods share, and tells what is the same in all of them."""
    first, second = one.shared_with(other)
    count = len(first.question)
    if count == 0:
        return None
    if (first.digest >= 0).all() and (second.digest >= 0).all():
        return (count, "cache") if (first.digest == second.digest).all() else None
    alike = (first.output == second.output).all() and np.nanmax(np.abs(first.nats - second.nats), initial=0) < SAME_NATS
    return (count, "outputs") if informative and alike else None
