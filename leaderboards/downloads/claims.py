"""The register of claims as rows of plain values."""

from collections.abc import Sequence
from typing import Any

from leaderboards.claims.verdict import Judgement
from leaderboards.downloads.sheets import Sheet


def register_rows(judgements: Sequence[Judgement]) -> list[dict[str, Any]]:
    """Returns a row for each statistic of each claim."""
    return [
        {
            "claim": one.claim.identifier,
            "text": one.claim.text.title,
            "words": one.claim.words,
            "reported": one.claim.reported,
            "statistic": one.claim.statistic,
            "claim_part": one.part,
            "side": one.claim.side,
            "threshold": one.claim.threshold,
            "measured": None if one.estimate is None else one.estimate.mean,
            "measured_low": None if one.estimate is None else one.estimate.low,
            "measured_high": None if one.estimate is None else one.estimate.high,
            "measured_n": None if one.estimate is None else one.estimate.n,
            "claim_p": one.p,
            "claim_verdict": one.verdict,
            "why": one.why,
            "remark": one.claim.remark,
            "because": one.claim.because if one.verdict == "does not hold" else "",
        }
        for one in judgements
    ]


def register_sheet(judgements: Sequence[Judgement]) -> Sheet:
    return Sheet.of("claims", "Every statistic of every claim, with its verdict", register_rows(judgements))
