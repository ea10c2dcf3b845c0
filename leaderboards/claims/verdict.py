"""Judges claims: holds, does not hold, or undecided.

The rule is the same for all (``docs/claims.md``): the 95 % interval of the statistic, by the
cluster bootstrap over contexts and one more that is all at a bound, lies on the claim's side of the
threshold as a whole, on the other side, or on both. Statistics of one text that were tested
together are corrected by Holm's method.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.special import ndtri

from leaderboards.aggregate.evidence import FEWEST_CONTEXTS, LEAST_CLEAN, Evidence, NoEvidenceError
from leaderboards.claims.declaration import BESIDE, LARGER, Claim, Measured, NoStatistic, Statistic
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.statistics.bootstrap import ENOUGH, Blank, Estimate, percentile_interval
from leaderboards.statistics.significance import ALPHA, POWER, Corrected, bootstrap_p, holm

Verdict = Literal["holds", "does not hold", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
UNMET = "precondition not met"
MISSING = {
    BESIDE: "it takes two architectures: give a model of the other one by --beside",
    LARGER: "it takes two sizes of one family: give the larger model by --larger",
}
MOST_NEEDED = 100_000  # contexts, beyond which a number says nothing
# times as many contexts, at which intervals are looked at: they shrink by the root, or, at a bound,
# faster
MORE = 16


@dataclass(frozen=True)
class Judgement:
    claim: Claim
    part: str
    estimate: Estimate | None
    # that the statistic is at the threshold, corrected over the claims of the text that were tested
    p: float | None
    verdict: Verdict
    why: str  # it is undecided, or what else the records say
    # whether the model meets what the claim takes; else it is undecided, however much is run
    is_met: bool = True


@dataclass(frozen=True)
class _Case:
    """Holds the parts of a claim as measured, and the evidence, so that it can be asked what more
    contexts tell."""

    claim: Claim
    given: Sequence[Evidence]
    parts: Measured

    @property
    def limit(self) -> int:
        return max((evidence.limit for evidence in self.given), default=0)

    @cached_property
    def with_more(self) -> Mapping[str, Statistic]:
        """Measures the claim in resamples of :data:`MORE` times as many contexts, which vary as
        these do."""
        parts = _measured(self.claim, [replace(evidence, times=MORE) for evidence in self.given])
        return {part.part: part for part in parts if isinstance(part, Statistic)}


def judge(claims: Sequence[Claim], evidence: Mapping[str, Evidence | Blank]) -> list[Judgement]:
    """Judges claims by the records of their experiments, which go by name; a Blank says why there
    are none."""
    cases = [_case(claim, evidence) for claim in claims]
    parts = [(case, part) for case in cases for part in case.parts]
    tests = {
        place: bootstrap_p(known - case.claim.threshold)
        for place, (case, part) in enumerate(parts)
        if isinstance(part, Statistic) and part.n >= FEWEST_CONTEXTS and not part.withheld
        if len(known := part.values[1:][~np.isnan(part.values[1:])])
    }
    corrected: dict[int, Corrected] = {}
    for text in dict.fromkeys(claim.text for claim in claims):
        own = {place: p for place, p in tests.items() if parts[place][0].claim.text == text}
        corrected |= holm(own)
    return [
        _judgement(case, part, corrected.get(place)) for place, (case, part) in enumerate(parts)
    ]


def _case(claim: Claim, evidence: Mapping[str, Evidence | Blank]) -> _Case:
    given: list[Evidence] = []
    for name in claim.evidence:
        is_of_other = bool(claim.other) and name.endswith(claim.other)
        records = evidence.get(
            name, Blank(MISSING[claim.other] if is_of_other else "it was not run")
        )
        if isinstance(records, Blank):
            return _Case(claim, (), [NoStatistic("", records.reason, is_unmet=is_of_other)])
        given.append(records)
    measured = _measured(claim, given)
    reasons = {
        one.part: one.reason for one in measured if isinstance(one, NoStatistic) and one.is_unmet
    }
    return _Case(
        claim, given, _with_withheld(claim, given, measured, reasons) if reasons else measured
    )


def _measured(claim: Claim, given: Sequence[Evidence]) -> Measured:
    try:
        return claim.measure(*given)
    except NoEvidenceError as error:
        return [NoStatistic.of("", error)]


def _with_withheld(
    claim: Claim, given: Sequence[Evidence], measured: Measured, reasons: Mapping[str, str]
) -> Measured:
    """Measures the parts whose task the model cannot do all the same: they get a number, and no
    verdict. ``reasons``: why, by part; the empty one stands for all parts of the claim."""
    numbers = {}
    for one in _measured(claim, [replace(one, every_task=True) for one in given]):
        reason = reasons.get(one.part, reasons.get("", ""))
        if reason and isinstance(one, Statistic) and math.isfinite(one.values[0]):
            numbers[one.part] = replace(one, withheld=reason)
    if "" in reasons and numbers:
        return list(numbers.values())
    return [numbers.get(one.part, one) if one.part in reasons else one for one in measured]


def _judgement(
    case: _Case, part: Statistic | NoStatistic, corrected: Corrected | None
) -> Judgement:
    claim, undecided = case.claim, VERDICTS[-1]
    if isinstance(part, NoStatistic):
        why = (
            f"{UNMET}: {part.reason}"
            if part.is_unmet
            else _joined(part.reason, _enough(case, part.times))
        )
        return Judgement(claim, part.part, None, None, undecided, why, not part.is_unmet)
    estimate = Estimate.of(float(part.values[0]), part.values[1:], part.n)
    p = corrected.p if corrected else None
    if part.withheld:
        why = _joined(f"{UNMET}: {part.withheld}", part.note)
        return Judgement(claim, part.part, estimate, p, undecided, why, is_met=False)
    if reason := _why_undecided(claim, estimate, p):
        needed = contexts_needed(case, part, corrected)
        return Judgement(
            claim, part.part, estimate, p, undecided, _joined(reason, needed, part.note)
        )
    sides = {True: ("at least", "above", "other than"), False: ("at most", "below", "other than")}
    holds = claim.side in sides[estimate.mean > claim.threshold]  # it is not at the threshold
    return Judgement(
        claim, part.part, estimate, p, "holds" if holds else "does not hold", part.note
    )


def _joined(*clauses: str) -> str:
    return "; ".join(filter(None, clauses))


def _why_undecided(claim: Claim, estimate: Estimate, p: float | None) -> str:
    """Says why a statistic decides nothing; an empty text where it decides."""
    if p is None:
        return f"{estimate.n} contexts: fewer than {FEWEST_CONTEXTS} decide nothing"
    if estimate.interval is None:
        return "many resamples have no value"
    if estimate.interval[0] <= claim.threshold <= estimate.interval[1]:
        return "the interval holds the threshold"
    return "undecided once corrected for the claims tested with it" if p >= ALPHA else ""


def contexts_needed(case: _Case, part: Statistic, corrected: Corrected | None) -> str:
    """Says how many contexts would decide four times in five, if the statistic stayed where it is,
    at the level of the correction for the claims tested with it."""
    if part.n < FEWEST_CONTEXTS or corrected is None:
        return _enough(case, FEWEST_CONTEXTS / part.n)
    more = case.with_more.get(part.part)
    threshold, value = case.claim.threshold, float(part.values[0])
    if more is None or not math.isfinite(value):
        return ""
    times = _times_needed(
        abs(value - threshold), _half(part, threshold), _half(more, threshold), corrected.alpha
    )
    times = max(times, _times_with_values(part))
    if times * part.n > MOST_NEEDED:
        return "it lies at the threshold: no number of contexts would decide"
    return _enough(case, times, part.n)


def _half(part: Statistic, threshold: float) -> float:
    """Returns how far the interval reaches from the statistic towards the threshold."""
    known = part.values[1:][~np.isnan(part.values[1:])]
    low, high = percentile_interval(known)
    value = float(part.values[0])
    return max(value - low if value > threshold else high - value, 0.0)


def _times_needed(distance: float, half: float, half_with_more: float, alpha: float) -> float:
    """Returns how many times as many contexts bring the interval within the distance to the
    threshold.

    Its square is a / times + b / times², where b is of the one context more that bounded means
    meet: two numbers of contexts tell a and b apart."""
    if not distance:
        return math.inf
    b = max(half**2 - MORE * half_with_more**2, 0.0) * MORE / (MORE - 1)
    a = max(half**2 - b, 0.0)
    # The interval of 95 % is to be one of the corrected level, and to leave out the threshold four
    # times in five.
    wider = (ndtri(1 - alpha / 2) + ndtri(POWER)) / ndtri(1 - ALPHA / 2)
    a, b = a * wider**2, b * wider**2
    return float((a + math.sqrt(a**2 + 4 * b * distance**2)) / (2 * distance**2))


def _times_with_values(part: Statistic) -> float:
    """Returns how many times as many contexts leave few resamples without a value: these become
    fewer by a power."""
    missing = float(np.isnan(part.values[1:]).mean())
    return math.log(1 - ENOUGH) / math.log(missing) if 0 < missing < 1 else 1.0


def _enough(case: _Case, times: float, contexts: float | None = None) -> str:
    """Writes how many contexts would be enough, as a number of them and as the option that asks for
    them."""
    if not math.isfinite(times):
        return ""
    option = f"--limit {math.ceil(case.limit * times):,}".replace(",", "") if case.limit else ""
    if contexts is None:
        return f"{option} may be enough" if option else ""
    return f"about {math.ceil(contexts * times):,} contexts would decide" + (
        f" ({option})" if option else ""
    )


class Count(NamedTuple):
    """Counts claims of which a part at least is decided, and those of which a part at least could
    be."""

    decided: int
    met: int

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, bool]]) -> "Count":
        """Takes the claim of each statistic, its verdict, and whether the model meets what it
        takes."""
        rows = list(rows)
        decided = {claim for claim, verdict, _ in rows if verdict != "undecided"}
        return cls(len(decided), len(decided | {claim for claim, _, is_met in rows if is_met}))

    def words(self, model: str) -> str:
        return (
            f"{self.decided} of {self.met} claims decided on {model}, of those whose precondition "
            "it meets"
        )


def count_of(judgements: Iterable[Judgement]) -> Count:
    return Count.of((one.claim.identifier, one.verdict, one.is_met) for one in judgements)


def number_text(value: float) -> str:
    """Writes a number with two decimals, or with its first digit where these would be 0, down to
    1e-9 nats."""
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
            "What a text says of KV caches, as an inequality: one statistic on one side of a "
            "threshold, which was written down before anything was run. Beside it what the text "
            "reported, on its own models and tasks.",
        ),
        Definition(
            "Statistic of a claim",
            "What was measured on this model, with its 95 % interval by the cluster bootstrap over "
            "contexts; what is set against one another is resampled together. Means of what lies "
            "between two bounds, such as right answers, meet one context more in each resample, "
            "all of it at one of the bounds, so that contexts that happen to agree have the "
            "interval of Clopper and Pearson, and decide nothing by being few. Where a claim is a "
            f"share of the full cache's score, the full cache has to reach {LEAST_CLEAN:.0%} of a "
            "perfect one. An answer that failed counts as wrong.",
        ),
        Definition(
            "Verdict on a claim",
            "Holds: the whole interval is on the claim's side of the threshold. Does not hold: the "
            "whole interval is on the other side. Undecided: it holds the threshold, or what has "
            "to be there to tell is not; the row says which, and about how many contexts would "
            "decide four times in five if the statistic stayed where it is. Where the row says "
            f"“{UNMET}”, more contexts would not help: the full cache itself cannot do the task, "
            "or the claim takes a second model; such claims are not counted among those that could "
            "be decided. The claims of one text that are tested in one run are corrected together "
            f"by Holm's method; fewer than {FEWEST_CONTEXTS} contexts decide nothing. A verdict is "
            "about the model that was run.",
        ),
    ),
)
