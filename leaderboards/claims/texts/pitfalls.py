"""The claims of text P: system prompts that are compressed, plain and with their instructions
protected."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from leaderboards.aggregate.evidence import (
    LEAST_CLEAN,
    Evidence,
    NoEvidenceError,
    PreconditionError,
)
from leaderboards.claims.declaration import (
    Claim,
    Experiment,
    Measured,
    NoStatistic,
    Statistic,
    Text,
    each_part,
)
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.instructions.by_number import relative_obedience
from leaderboards.studies.instructions.definitions import DEFENDED, LEAKED_MORE, STILL_OBEYED
from leaderboards.studies.instructions.families import family_means, rank_correlation
from leaderboards.studies.instructions.prompts import PromptRecords, prompt_records
from leaderboards.studies.instructions.protection import (
    protection_gain,
    while_obeying,
)
from policies.declaration.levels import Level
from policies.declaration.names import FULL

P = Text(
    "P",
    "arXiv 2510.00231 (pitfalls of KV cache compression)",
    "Llama 3.1 8B and Qwen 2.5 14B, IFEval",
)
POLICIES = ("streaming_llm", "snapkv", "knorm")
PROTECTED = dict[str, str]()  # by the name of a protected policy the plain one
for plain_policy in POLICIES:
    for way in ("whitelist", "fair"):
        PROTECTED[f"{plain_policy}+{way}"] = plain_policy
LITTLE, HALF, MORE = (Level("ratio", ratio) for ratio in (0.3, 0.5, 0.7))
PROMPTS = Experiment(
    name="prompts",
    tasks="instructions",
    policies=",".join((*POLICIES, *PROTECTED)),
    levels=(("ratio", ",".join(f"{level.value:g}" for level in (LITTLE, HALF, MORE))),),
    contexts=72,  # 24 draws in three orders
    suite="instructions",
)
TREATED, WHOLE = (POLICIES, HALF), ((FULL,), None)
UNFIGURED = "yes, without one figure"


def measure_prompts(
    parts: Mapping[str, Callable[[PromptRecords], Statistic]], evidence: Evidence
) -> Measured:
    """Measures the parts of a claim by their names; where the full cache obeys less than half, on
    the families of directives of which it obeys half.

    Raises :class:`PreconditionError` where there are no such families, or no directives."""
    prompts = prompt_records(evidence.records, evidence.seed, evidence.times)
    full = prompts.directives[prompts.directives["policy"] == FULL]
    if full.empty:
        raise PreconditionError("instructions: no prompt of this difficulty has a directive")
    obeyed = float(full["strict"].mean())
    if obeyed >= LEAST_CLEAN:
        return each_part(parts, prompts)
    # A family that the model does not obey without compression tells nothing of what compression
    # does.
    by_family = full.groupby("family", sort=False)["strict"].mean()
    families = tuple(by_family.index[by_family >= LEAST_CLEAN])
    if not families:
        low = f"the full cache obeys {obeyed:.2f} of the directives, not {LEAST_CLEAN}"
        raise PreconditionError(f"instructions: {low}, and so of each family")
    directives = prompts.directives[prompts.directives["family"].isin(families)]
    prompts = replace(prompts, directives=directives, families=families)
    note = f"the full cache obeys {obeyed:.2f}: of the families {', '.join(families)} alone"
    results: list[Statistic | NoStatistic] = []
    for result in each_part(parts, prompts):
        if isinstance(result, Statistic):
            notes = filter(None, (result.note, note))
            results.append(replace(result, note="; ".join(notes)))
        else:
            results.append(result)
    return results


def _mean(
    prompts: PromptRecords,
    column: str,
    policies: Sequence[str],
    level: Level | None,
    **where: Sequence[object],
) -> FloatArray:
    """Averages a column over the records of policies at a level, None for all. ``where``: values of
    other columns."""
    # What is kept of spans is a property of the cache, and has a row for each context.
    table = {"strict": prompts.directives, "leakage": prompts.attacks}.get(column, prompts.caches)
    chosen = table["policy"].isin(list(policies)) & (level is None or table["level"] == level)
    for name, values in where.items():
        chosen &= table[name].isin(list(values))
    if not chosen.any():
        raise NoEvidenceError(f"{', '.join(policies)} has no records of system prompts at {level}")
    return prompts.means(table[chosen], column)


def _defence_above_directives(
    prompts: PromptRecords, policies: Sequence[str], arms: Sequence[str]
) -> FloatArray:
    defence = _mean(prompts, "defence_kept", policies, HALF, arm=arms)
    directives = _mean(prompts, "directives_kept", policies, HALF, arm=arms)
    return defence - directives


def _families(prompts: PromptRecords) -> Statistic:
    whole, half = _by_family(prompts, *WHOLE), _by_family(prompts, *TREATED)
    is_obeyed = whole[0] >= LEAST_CLEAN
    if is_obeyed.sum() < 2:
        raise PreconditionError(
            "instructions: the full cache obeys fewer than two families of directives"
        )
    kept = half[:, is_obeyed] / whole[:, is_obeyed]
    families = np.array(prompts.families)[is_obeyed]
    best, worst = families[kept[0].argmax()], families[kept[0].argmin()]
    note = f"most is kept of {best}, least of {worst}"
    correlation = _rank_correlation(prompts)
    if not np.isnan(correlation):
        note += f"; rank correlation with the full cache {correlation:.2f}"
    # The best and the worst family of each resample, which are apart by chance too: a small
    # difference shows nothing.
    return Statistic(kept.max(axis=1) - kept.min(axis=1), prompts.resampler.count, note=note)


def _by_family(prompts: PromptRecords, policies: Sequence[str], level: Level | None) -> FloatArray:
    """Returns the share of directives obeyed, shape (1 + resamples, families)."""
    shares = []
    for family in prompts.families:
        shares.append(_mean(prompts, "strict", policies, level, family=[family]))
    return np.stack(shares, axis=1)


def _rank_correlation(prompts: PromptRecords) -> float:
    """Correlates the order of all families with that of the full cache, the policies together; NaN
    where there is no order."""
    table = prompts.directives
    is_treated = table["policy"].isin(POLICIES) & (table["level"] == HALF)
    treated = family_means(prompts, table[is_treated], prompts.families)
    full = family_means(prompts, table[table["policy"] == FULL], prompts.families)
    return float(rank_correlation(treated, full)[0])


def _leaks(prompts: PromptRecords) -> Statistic:
    leaks = [leak for leak in while_obeying(prompts) if leak.policy in POLICIES]
    if not leaks:
        raise PreconditionError(
            f"no policy obeys {STILL_OBEYED:.0%} of the directives at any ratio"
        )
    largest = max(leaks, key=lambda leak: leak.more.mean)
    note = f"{largest.policy} at {largest.level.value:g}, {largest.arm}"
    return Statistic(largest.values, prompts.resampler.count, note=note)


def _kept_by_order(prompts: PromptRecords) -> Statistic:
    first, second = (_defence_above_directives(prompts, POLICIES, [arm]) for arm in DEFENDED)
    return Statistic(first - second, prompts.resampler.count)


def _harmed_by_order(prompts: PromptRecords) -> Statistic:
    """Compares the orders by the leakage gained less the directives lost under the policies."""
    # A rise of what is obeyed is the loss with its sign turned, so that the two add up.
    rises = [_rise(prompts, "leakage", arm) + _rise(prompts, "strict", arm) for arm in DEFENDED]
    first, second = rises
    return Statistic(first - second, prompts.resampler.count)


def _rise(prompts: PromptRecords, column: str, arm: str) -> FloatArray:
    treated = _mean(prompts, column, *TREATED, arm=[arm])
    return treated - _mean(prompts, column, *WHOLE, arm=[arm])


def _kept_of_spans(policy: str, prompts: PromptRecords) -> Statistic:
    return Statistic(
        _defence_above_directives(prompts, (policy,), DEFENDED), prompts.resampler.count
    )


def _gain(plain: str, protected: str, prompts: PromptRecords) -> Statistic:
    # The text averages over ratios from 0.4 to 0.7, of which this experiment has 0.5 and 0.7.
    gain = protection_gain(prompts, plain, protected)
    if gain is None:
        raise NoEvidenceError(f"{plain} and {protected} share no answers")
    note = f"{gain.failed} answers failed" if gain.failed else ""
    return Statistic(gain.values, prompts.resampler.count, note=note)


def _several(prompts: PromptRecords) -> Statistic:
    directives = prompts.directives
    is_treated = directives["policy"].isin(POLICIES) & (directives["level"] == HALF)
    is_full = directives["policy"] == FULL
    kept = []
    for name, is_asked in (
        ("one", directives["number"] == 1),
        ("several", directives["number"] > 1),
    ):
        treated, full = directives[is_treated & is_asked], directives[is_full & is_asked]
        share = relative_obedience(prompts, treated, full)
        if share is None:
            asked_for = f"where {name} is asked, or nothing was asked"
            raise PreconditionError(f"the full cache obeys nothing {asked_for}")
        kept.append(share)
    return Statistic(kept[0] - kept[1], prompts.resampler.count)


claim = partial(Claim, text=P, experiments=(PROMPTS,))
CLAIMS = (
    claim(
        identifier="P1",
        words="Some instructions are dropped long before others.",
        reported="yes, and the rank correlation of the families with the full cache falls",
        statistic="directives obeyed at a ratio of 0.5 as a share of the full cache's, mean over "
        "policies: the family that keeps most above the one that keeps least, of families of which "
        "the full cache obeys half",
        holds=("above", 0.2),
        measure=partial(measure_prompts, {"": _families}),
    ),
    claim(
        identifier="P2",
        words="The prompt leaks while its directives are still obeyed.",
        reported=UNFIGURED,
        statistic="leakage above the full cache's, where it is highest of all policies, ratios and "
        "orders that obey 70 % of the directives or more",
        holds=("at least", LEAKED_MORE),
        measure=partial(measure_prompts, {"": _leaks}),
    ),
    claim(
        identifier="P3",
        words="The order of defence and directives decides which of them suffers.",
        reported=UNFIGURED,
        statistic="interaction of order and span at a ratio of 0.5, mean over policies: the share "
        "of the tokens kept, of the defence less of the directives, with the defence first less "
        "with the directives first; and the same of leakage gained less directives lost",
        holds=("other than", 0.0),
        measure=partial(
            measure_prompts,
            {"tokens kept": _kept_by_order, "leaked and disobeyed": _harmed_by_order},
        ),
    ),
    claim(
        identifier="P4",
        words="Policies keep spans of instructions unevenly.",
        reported=UNFIGURED,
        statistic="the share of the tokens of the defence that are kept at a ratio of 0.5, less "
        "that of the directives, mean over both orders, by policy",
        holds=("other than", 0.0),
        measure=partial(
            measure_prompts, {policy: partial(_kept_of_spans, policy) for policy in POLICIES}
        ),
    ),
    claim(
        identifier="P5",
        words="Whitelists and fair eviction help.",
        reported="whitelist 0.196 and 0.169 (StreamingLLM) to 0.001 and 0.082 (K-Norm)",
        statistic="half the gain in directives obeyed plus half the fall in leakage against the "
        "plain policy, mean over ratios 0.5 and 0.7, by policy and way",
        holds=("above", 0.0),
        measure=partial(
            measure_prompts,
            {name: partial(_gain, plain, name) for name, plain in PROTECTED.items()},
        ),
    ),
    claim(
        identifier="P6",
        words="Several instructions suffer more than one.",
        reported=UNFIGURED,
        statistic="directives obeyed at a ratio of 0.5 as a share of the full cache's, mean over "
        "policies: of prompts with one directive, less of prompts with several",
        holds=("above", 0.0),
        measure=partial(measure_prompts, {"": _several}),
    ),
)
