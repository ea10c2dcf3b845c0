"""Judges claims: holds, does not hold, or undecided.

The rule is the same for all (``docs/claims.md``): the 95 % interval of the statistic, by the
cluster bootstrap over contexts and one more that is all at a bound, lies on the claim's side of the
threshold as a whole, on the other side, or on both. Statistics of one text that were tested
together are corrected by Holm's method.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.special import ndtri

from leaderboards.aggregate.evidence import FEWEST_CONTEXTS, UNMET, Evidence, NoEvidenceError
from leaderboards.claims.declaration import (
    BESIDE,
    LARGER,
    Claim,
    Measured,
    NoStatistic,
    Statistic,
    Text,
)
from leaderboards.statistics.bootstrap import (
    ENOUGH,
    Blank,
    Estimate,
    FloatArray,
    bootstrap_p,
    percentile_interval,
)
from leaderboards.statistics.corrections import Corrected, holm
from leaderboards.statistics.intervals import ALPHA
from leaderboards.statistics.paired_difference import POWER

Verdict = Literal["holds", "does not hold", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
MISSING = {
    BESIDE: "it takes two architectures: give a model of the other one by --beside",
    LARGER: "it takes two sizes of one family: give the larger model by --larger",
}
# Of a share of what the full cache has, where it has none.
NOTHING_KEPT = "it has no value: what it is divided by is 0"
MOST_NEEDED = 100_000  # contexts, beyond which a number says nothing
# Intervals are looked at with so many times as many contexts too: they shrink by the root, or, at a
# bound, faster.
MORE = 16


@dataclass(frozen=True)
class Judgement:
    claim: Claim
    part: str
    estimate: Estimate | None
    # That the statistic is at the threshold, corrected over the claims of the text that were
    # tested.
    p: float | None
    verdict: Verdict
    why: str  # it is undecided, or what else the records say
    # Whether the model meets what the claim takes; else it is undecided, however much is run.
    is_met: bool = True


@dataclass(frozen=True)
class _Case:
    """Holds the parts of a claim as measured, and the evidence, so that it can be asked what more
    contexts tell."""

    claim: Claim
    evidence: Sequence[Evidence]
    parts: Measured

    @property
    def limit(self) -> int:
        """Returns how many contexts were asked for."""
        return max((evidence.limit for evidence in self.evidence), default=0)

    @cached_property
    def with_more(self) -> Mapping[str, Statistic]:
        """Measures the claim in resamples of :data:`MORE` times as many contexts, which vary as
        these do."""
        more = [replace(evidence, times=MORE) for evidence in self.evidence]
        parts = _measured(self.claim, more)
        return {part.part: part for part in parts if isinstance(part, Statistic)}


def judge(claims: Sequence[Claim], evidence: Mapping[str, Evidence | Blank]) -> list[Judgement]:
    """Judges claims by the records of their experiments, which go by name; a Blank says why there
    are none."""
    parts: list[tuple[_Case, Statistic | NoStatistic]] = []
    tests: dict[Text, dict[int, float]] = {}
    for claim in claims:
        # The claims of one text are one family, whichever experiments they take.
        tests[claim.text] = {}
        case = _case(claim, evidence)
        for part in case.parts:
            parts.append((case, part))
    for place, (case, part) in enumerate(parts):
        # What cannot be decided is not tested, and so makes no other test of its text harder.
        if isinstance(part, NoStatistic) or part.withheld or part.n < FEWEST_CONTEXTS:
            continue
        if not math.isfinite(part.values[0]):
            continue
        resamples = _resamples(part)
        if len(resamples):
            p = bootstrap_p(resamples - case.claim.threshold)
            tests[case.claim.text][place] = p
    corrected: dict[int, Corrected] = {}
    for of_text in tests.values():
        corrected |= holm(of_text)
    judgements = []
    for place, (case, part) in enumerate(parts):
        judgements.append(_judgement(case, part, corrected.get(place)))
    return judgements


def _resamples(part: Statistic) -> FloatArray:
    """Returns the values of the resamples that have one, shape (resamples that do,)."""
    resamples = part.values[1:]
    with_value: FloatArray = resamples[~np.isnan(resamples)]
    return with_value


def _case(claim: Claim, evidence: Mapping[str, Evidence | Blank]) -> _Case:
    of_claim: list[Evidence] = []
    for name in claim.evidence:
        is_of_other = bool(claim.other) and name.endswith(claim.other)
        # A second model that was not given is no fault of the run: more contexts would not help.
        missing = Blank(MISSING[claim.other] if is_of_other else "it was not run")
        records = evidence.get(name, missing)
        if isinstance(records, Blank):
            return _Case(claim, (), [NoStatistic("", records.reason, is_unmet=is_of_other)])
        of_claim.append(records)
    measured = _measured(claim, of_claim)
    reasons = {}
    for part in measured:
        if isinstance(part, NoStatistic) and part.is_unmet:
            reasons[part.part] = part.reason
    if reasons:
        measured = _with_withheld(claim, of_claim, measured, reasons)
    return _Case(claim, of_claim, measured)


def _measured(claim: Claim, evidence: Sequence[Evidence]) -> Measured:
    try:
        return claim.measure(*evidence)
    except NoEvidenceError as error:
        return [NoStatistic.of("", error)]


def _with_withheld(
    claim: Claim,
    evidence: Sequence[Evidence],
    measured: Measured,
    reasons: Mapping[str, str],
) -> Measured:
    """Measures the parts whose task the model cannot do all the same: they get a number, and no
    verdict. ``reasons``: why, by part; the empty one stands for all parts of the claim."""
    numbers: dict[str, Statistic] = {}
    of_every_task = [replace(records, every_task=True) for records in evidence]
    for part in _measured(claim, of_every_task):
        reason = reasons.get(part.part, reasons.get("", ""))
        if reason and isinstance(part, Statistic) and math.isfinite(part.values[0]):
            numbers[part.part] = replace(part, withheld=reason)
    if "" in reasons and numbers:
        return list(numbers.values())
    return [numbers.get(part.part, part) for part in measured]


def _judgement(
    case: _Case, part: Statistic | NoStatistic, corrected: Corrected | None
) -> Judgement:
    claim = case.claim
    undecided = partial(Judgement, claim, part.part, verdict="undecided")
    if isinstance(part, NoStatistic):
        if part.is_unmet:
            why = f"{UNMET}: {part.reason}"
            return undecided(estimate=None, p=None, why=why, is_met=False)
        why = _joined(part.reason, _enough(case, part.times))
        return undecided(estimate=None, p=None, why=why)
    if not math.isfinite(part.values[0]):
        return undecided(estimate=None, p=None, why=_joined(NOTHING_KEPT, part.note))
    estimate = Estimate.of(float(part.values[0]), part.values[1:], part.n)
    p = corrected.p if corrected else None
    if part.withheld:
        why = _joined(f"{UNMET}: {part.withheld}", part.note)
        return undecided(estimate=estimate, p=p, why=why, is_met=False)
    reason = _why_undecided(claim, estimate, p)
    if reason:
        why = _joined(reason, contexts_needed(case, part, corrected), part.note)
        return undecided(estimate=estimate, p=p, why=why)
    sides = ("at most", "below", "other than")
    if estimate.mean > claim.threshold:  # it is not at the threshold
        sides = ("at least", "above", "other than")
    verdict: Verdict = "holds" if claim.side in sides else "does not hold"
    return Judgement(claim, part.part, estimate, p, verdict, part.note)


def _joined(*clauses: str) -> str:
    return "; ".join(filter(None, clauses))


def _why_undecided(claim: Claim, estimate: Estimate, p: float | None) -> str:
    """Says why a statistic decides nothing; an empty text where it decides."""
    if p is None:
        return f"{estimate.n} contexts: fewer than {FEWEST_CONTEXTS} decide nothing"
    if estimate.interval is None:
        return "many resamples have no value"
    low, high = estimate.interval
    if low <= claim.threshold <= high:
        return "the interval holds the threshold"
    if p >= ALPHA:
        return "undecided once corrected for the claims tested with it"
    return ""


def contexts_needed(case: _Case, part: Statistic, corrected: Corrected | None) -> str:
    """Says how many contexts would decide four times in five, if the statistic stayed where it is,
    at the level of the correction for the claims tested with it."""
    if part.n < FEWEST_CONTEXTS or corrected is None:
        return _enough(case, FEWEST_CONTEXTS / part.n)
    more = case.with_more.get(part.part)
    threshold, value = case.claim.threshold, float(part.values[0])
    if more is None or not math.isfinite(value):
        return ""
    half, half_with_more = _half(part, threshold), _half(more, threshold)
    times = _times_needed(abs(value - threshold), half, half_with_more, corrected.alpha)
    times = max(times, _times_with_values(part))
    if times * part.n > MOST_NEEDED:
        return "it lies at the threshold: no number of contexts would decide"
    return _enough(case, times, part.n)


def _half(part: Statistic, threshold: float) -> float:
    """Returns how far the interval reaches from the statistic towards the threshold."""
    low, high = percentile_interval(_resamples(part))
    value = float(part.values[0])
    half = value - low if value > threshold else high - value
    return max(half, 0.0)


def _times_needed(distance: float, half: float, half_with_more: float, alpha: float) -> float:
    """Returns how many times as many contexts bring the interval within the distance to the
    threshold.

    Its square is a / times + b / times², where b is of the one context more that bounded means
    meet: two numbers of contexts tell a and b apart."""
    if not distance:
        return math.inf
    square = half**2
    # From half² = a + b, and half_with_more² = a / MORE + b / MORE².
    excess = max(square - MORE * half_with_more**2, 0.0)
    b = excess * MORE / (MORE - 1)
    a = max(square - b, 0.0)
    # The interval of 95 % is to be one of the corrected level, and to leave out the threshold four
    # times in five.
    wider = (ndtri(1 - alpha / 2) + ndtri(POWER)) / ndtri(1 - ALPHA / 2)
    a *= wider**2
    b *= wider**2
    # Solves distance² = a / times + b / times².
    root = math.sqrt(a**2 + 4 * b * distance**2)
    return float((a + root) / (2 * distance**2))


def _times_with_values(part: Statistic) -> float:
    """Returns how many times as many contexts leave few resamples without a value: these become
    fewer by a power."""
    missing = float(np.isnan(part.values[1:]).mean())
    # With so many times the contexts a resample lacks a value with the power of the chance that it
    # does now.
    if 0 < missing < 1:
        return math.log(1 - ENOUGH) / math.log(missing)
    return 1.0


def _enough(case: _Case, times: float, contexts: float | None = None) -> str:
    """Writes how many contexts would be enough, as a number of them and as the option that asks for
    them."""
    if not math.isfinite(times):
        return ""
    option = ""
    if case.limit:
        option = f"--limit {math.ceil(case.limit * times)}"
    if contexts is None:
        return f"{option} may be enough" if option else ""
    sentence = f"about {math.ceil(contexts * times):,} contexts would decide"
    return f"{sentence} ({option})" if option else sentence


class Count(NamedTuple):
    """Counts claims of which a part at least is decided, and those of which a part at least could
    be."""

    decided: int
    decidable: int

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, bool]]) -> "Count":
        """Takes the claim of each statistic, its verdict, and whether the model meets what it
        takes."""
        decided, decidable = set(), set()
        for claim, verdict, is_met in rows:
            if verdict != "undecided":
                decided.add(claim)
            if verdict != "undecided" or is_met:
                decidable.add(claim)
        return cls(len(decided), len(decidable))

    def words(self, model: str) -> str:
        """Writes the counts as a sentence without its full stop."""
        decided = f"{self.decided} of {self.decidable} claims decided on {model}"
        return f"{decided}, of those whose precondition it meets"


def count_decided(judgements: Iterable[Judgement]) -> Count:
    """Counts the claims that are decided."""
    return Count.of((row.claim.identifier, row.verdict, row.is_met) for row in judgements)


def number_text(value: float) -> str:
    """Writes a number with two decimals, or with its first digit where these would be 0, down to
    1e-9 nats."""
    if not value or abs(value) >= 0.005:
        return f"{value:z.2f}"
    digit, _, exponent = f"{value:.0e}".partition("e")
    return f"{digit}e{int(exponent)}"
