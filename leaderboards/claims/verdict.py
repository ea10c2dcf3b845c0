"""Judges claims: holds, does not hold, or undecided.

The rule is the same for all (``docs/claims.md``): the 95 % interval of the statistic, by the cluster bootstrap over
contexts and one more that is all at a bound, lies on the claim's side of the threshold as a whole, on the other side,
or on both. Statistics of one text that were tested together are corrected by Holm's method.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from leaderboards.aggregate.evidence import FEWEST_CONTEXTS, LEAST_CLEAN, Evidence, LowControlError, NoEvidenceError
from leaderboards.claims.declaration import BESIDE, Claim, Measured, NoStatistic, Statistic
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.statistics.bootstrap import Blank, Estimate
from leaderboards.statistics.significance import ALPHA, bootstrap_p, holm

Verdict = Literal["holds", "does not hold", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
ONE_MODEL = "it takes two architectures: give a model of the other one by --beside"
MOST_NEEDED = 100_000  # contexts, beyond which a number says nothing


@dataclass(frozen=True)
class Judgement:
    claim: Claim
    part: str
    estimate: Estimate | None
    p: float | None  # that the statistic is at the threshold, corrected over the claims of the text that were tested
    verdict: Verdict
    why: str  # it is undecided, or what else the records say


def judge(claims: Sequence[Claim], evidence: Mapping[str, Evidence | Blank]) -> list[Judgement]:
    """Judges claims by the records of their experiments, which go by name; a Blank says why there are none."""
    parts = [(claim, part) for claim in claims for part in _measure(claim, evidence)]
    tests = {
        place: bootstrap_p(known - claim.threshold)
        for place, (claim, part) in enumerate(parts)
        if isinstance(part, Statistic) and part.n >= FEWEST_CONTEXTS and not part.withheld
        if len(known := part.values[1:][~np.isnan(part.values[1:])])
    }
    p_values: dict[int, float] = {}
    for text in dict.fromkeys(claim.text for claim in claims):
        own = {place: p for place, p in tests.items() if parts[place][0].text == text}
        p_values |= {place: one.p for place, one in holm(own).items()}
    return [_judgement(claim, part, p_values.get(place)) for place, (claim, part) in enumerate(parts)]


def _measure(claim: Claim, evidence: Mapping[str, Evidence | Blank]) -> Measured:
    given: list[Evidence] = []
    for name in claim.evidence:
        records = evidence.get(name, Blank(ONE_MODEL if name.endswith(BESIDE) else "it was not run"))
        if isinstance(records, Blank):
            return [NoStatistic("", records.reason)]
        given.append(records)
    try:
        measured = claim.measure(*given)
    except NoEvidenceError as error:
        measured = [NoStatistic("", str(error), isinstance(error, LowControlError))]
    reasons = {one.part: one.reason for one in measured if isinstance(one, NoStatistic) and one.is_of_low_control}
    return _with_withheld(claim, given, measured, reasons) if reasons else measured


def _with_withheld(claim: Claim, given: Sequence[Evidence], measured: Measured, reasons: Mapping[str, str]) -> Measured:
    """Measures the parts whose task the model cannot do all the same: they get a number, and no verdict. ``reasons``:
    why, by part; the empty one stands for all parts of the claim."""
    try:
        again = claim.measure(*(replace(one, every_task=True) for one in given))
    except NoEvidenceError:
        return measured
    numbers = {}
    for one in again:
        reason = reasons.get(one.part, reasons.get("", ""))
        if reason and isinstance(one, Statistic) and math.isfinite(one.values[0]):
            numbers[one.part] = replace(one, withheld=reason)
    if "" in reasons and numbers:
        return list(numbers.values())
    return [numbers.get(one.part, one) if one.part in reasons else one for one in measured]


def _judgement(claim: Claim, statistic: Statistic | NoStatistic, p: float | None) -> Judgement:
    if isinstance(statistic, NoStatistic):
        return Judgement(claim, statistic.part, None, None, "undecided", statistic.reason)
    estimate = Estimate.of(float(statistic.values[0]), statistic.values[1:], statistic.n)
    verdict: Verdict = "undecided"
    if statistic.withheld:
        why = "; ".join(filter(None, (statistic.withheld, statistic.note)))
    elif p is None:
        why = f"{statistic.n} contexts: fewer than {FEWEST_CONTEXTS} decide nothing"
    elif estimate.interval is None:
        why = "many resamples have no value"
    elif estimate.interval[0] <= claim.threshold <= estimate.interval[1]:
        why = "; ".join(filter(None, (contexts_needed(claim, estimate), statistic.note)))
    elif p >= ALPHA:
        why = "; ".join(filter(None, ("undecided once corrected for the claims tested with it", statistic.note)))
    else:
        sides = {True: ("at least", "above", "other than"), False: ("at most", "below", "other than")}
        holds = claim.side in sides[estimate.mean > claim.threshold]  # it is not at the threshold
        verdict, why = "holds" if holds else "does not hold", statistic.note
    return Judgement(claim, statistic.part, estimate, p, verdict, why)


def contexts_needed(claim: Claim, estimate: Estimate) -> str:
    """Says how many contexts would decide, as an interval shrinks by the square root of their number."""
    assert estimate.interval is not None
    low, high = estimate.interval
    distance = abs(estimate.mean - claim.threshold)
    half = max(high - estimate.mean, estimate.mean - low)
    contexts = math.inf if distance == 0 else estimate.n * (half / distance) ** 2
    if contexts > MOST_NEEDED:
        return "it lies at the threshold: no number of contexts would decide"
    return f"about {math.ceil(contexts):,} contexts would decide"


def number_text(value: float) -> str:
    """Writes a number with two decimals, or with its first digit where these would be 0, down to 1e-9 nats."""
    if not value or abs(value) >= 0.005:
        return f"{value:z.2f}"
    digit, _, exponent = f"{value:.0e}".partition("e")
    return f"{digit}e{int(exponent)}"


CLAIMS = Chapter(
    "claims",
    "Claims of papers",
    (
        Definition(
            "Claim",
            "What a text says of KV caches, as an inequality: one statistic on one side of a threshold, which was "
            "written down before anything was run. Beside it what the text reported, on its own models and tasks.",
        ),
        Definition(
            "Statistic of a claim",
            "What was measured on this model, with its 95 % interval by the cluster bootstrap over contexts; what is "
            "set against one another is resampled together. Means of what lies between two bounds, such as right "
            "answers, meet one context more in each resample, all of it at one of the bounds, so that contexts that "
            "happen to agree have the interval of Clopper and Pearson, and decide nothing by being few. Where a claim "
            f"is a share of the full cache's score, the full cache has to reach {LEAST_CLEAN:.0%} of a perfect one. An "
            "answer that failed counts as wrong.",
        ),
        Definition(
            "Verdict on a claim",
            "Holds: the whole interval is on the claim's side of the threshold. Does not hold: the whole interval is "
            "on the other side. Undecided: it holds the threshold, or what has to be there to tell is not; the row "
            "says which, and about how many contexts would decide if the statistic stayed where it is. The claims of "
            "one text that are tested in one run are corrected together by Holm's method; fewer than "
            f"{FEWEST_CONTEXTS} contexts decide nothing. A verdict is about the model that was run.",
        ),
    ),
)
