"""Judges claims: holds, does not hold, or undecided.

The rule is the same for all (``docs/claims.md``): the 95 % interval of the statistic, by the cluster bootstrap over
contexts, lies on the claim's side of the threshold as a whole, on the other side, or on both. Statistics of one text
that were tested together are corrected by Holm's method.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from leaderboards.aggregate.evidence import FEWEST_CONTEXTS, Evidence, NoEvidenceError
from leaderboards.claims.declaration import BESIDE, LARGER, Claim, Measured, NoStatistic, Statistic
from leaderboards.statistics.bootstrap import Blank, Estimate, FloatArray
from leaderboards.statistics.significance import ALPHA, bootstrap_p, holm

Verdict = Literal["holds", "does not hold", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
NOT_RUN = "it was not run"
# Why there is no evidence of another model.
ONE_MODEL = {
    LARGER: "it takes two sizes of one family: give the larger one by --larger",
    BESIDE: "it takes two architectures: give a model of the other one by --beside",
}
MOST_NEEDED = 100_000  # contexts, beyond which a number says nothing


@dataclass(frozen=True)
class Judgement:
    """One row of the register."""

    claim: Claim
    part: str
    estimate: Estimate | None
    p: float | None  # that the statistic is at the threshold, corrected over the claims of the text that were tested
    verdict: Verdict
    why: str  # it is undecided, or what else the records say


def judge(claims: Sequence[Claim], evidence: Mapping[str, Evidence | Blank]) -> list[Judgement]:
    """Judges claims by the records of their experiments, which go by name; a Blank says why there are none."""
    measured = {claim.identifier: _measure(claim, evidence) for claim in claims}
    tests = {
        (claim.text.letter, claim.identifier, statistic.part): bootstrap_p(
            _without_nan(statistic.values[1:]) - claim.threshold
        )
        for claim in claims
        if not isinstance(parts := measured[claim.identifier], Blank)
        for statistic in parts
        if isinstance(statistic, Statistic)
        and statistic.n >= FEWEST_CONTEXTS
        and len(_without_nan(statistic.values[1:]))
    }
    p_values = {
        key: one.p
        for letter in dict.fromkeys(claim.text.letter for claim in claims)
        for key, one in holm({k: v for k, v in tests.items() if k[0] == letter}).items()
    }
    return [one for claim in claims for one in _judgements(claim, measured[claim.identifier], p_values)]


def _measure(claim: Claim, evidence: Mapping[str, Evidence | Blank]) -> Measured | Blank:
    by_name: dict[str, Evidence] = {}
    for name in claim.evidence:
        records = evidence.get(name)
        if records is None:
            return Blank(next((reason for which, reason in ONE_MODEL.items() if name.endswith(which)), NOT_RUN))
        if isinstance(records, Blank):
            return records
        by_name[name] = records
    try:
        return claim.measure(by_name)
    except NoEvidenceError as error:
        return Blank(str(error))


def _judgements(
    claim: Claim, measured: Measured | Blank, p_values: Mapping[tuple[str, str, str], float]
) -> list[Judgement]:
    if isinstance(measured, Blank):
        return [Judgement(claim, "", None, None, "undecided", measured.reason)]
    return [
        _judgement(claim, statistic, p_values.get((claim.text.letter, claim.identifier, statistic.part)))
        for statistic in measured
    ]


def _judgement(claim: Claim, statistic: Statistic | NoStatistic, p: float | None) -> Judgement:
    if isinstance(statistic, NoStatistic):
        return Judgement(claim, statistic.part, None, None, "undecided", statistic.reason)
    estimate = Estimate.of(float(statistic.values[0]), statistic.values[1:], statistic.n)
    if p is None:
        why = f"{statistic.n} contexts: fewer than {FEWEST_CONTEXTS} decide nothing"
        return Judgement(claim, statistic.part, estimate, None, "undecided", why)
    if estimate.interval is None:
        return Judgement(claim, statistic.part, estimate, None, "undecided", "many resamples have no value")
    low, high = estimate.interval
    is_clear = not low <= claim.threshold <= high
    if is_clear and p < ALPHA:
        return Judgement(
            claim,
            statistic.part,
            estimate,
            p,
            "holds" if _is_on_side(claim, estimate.mean) else "does not hold",
            statistic.note,
        )
    why = "undecided once corrected for the claims tested with it" if is_clear else contexts_needed(claim, estimate)
    return Judgement(claim, statistic.part, estimate, p, "undecided", "; ".join(filter(None, (why, statistic.note))))


def _is_on_side(claim: Claim, value: float) -> bool:
    """Tells it of a value that is not at the threshold."""
    if claim.side == "other than":
        return True
    return value > claim.threshold if claim.side in ("at least", "above") else value < claim.threshold


def _without_nan(resampled: FloatArray) -> FloatArray:
    """Returns the resamples in which a statistic has a value."""
    values: FloatArray = resampled[~np.isnan(resampled)]
    return values


def contexts_needed(claim: Claim, estimate: Estimate) -> str:
    """Says how many contexts would decide, if the statistic stayed where it is: an interval shrinks by the square root
    of their number."""
    assert estimate.interval is not None
    low, high = estimate.interval
    distance = abs(estimate.mean - claim.threshold)
    half = max(high - estimate.mean, estimate.mean - low)
    contexts = math.inf if distance == 0 else estimate.n * (half / distance) ** 2
    if contexts > MOST_NEEDED:
        return "it lies at the threshold: no number of contexts would decide"
    return f"about {math.ceil(contexts):,} contexts would decide"


def number_text(value: float) -> str:
    """Writes a number of a claim with two decimals, and with its first digit where these would be 0: distances of
    distributions go down to 1e-9 nats."""
    if not value or abs(value) >= 0.005:
        return f"{value:z.2f}"
    digit, _, exponent = f"{value:.0e}".partition("e")
    return f"{digit}e{int(exponent)}"
