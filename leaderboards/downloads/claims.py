"""The register of claims as rows of plain values."""

from collections.abc import Sequence
from typing import Any

from leaderboards.claims.verdict import Judgement


def register_rows(judgements: Sequence[Judgement]) -> list[dict[str, Any]]:
    """Returns a row for each statistic of each claim."""
    return [
        {
            "claim": one.claim.identifier,
            "text": one.claim.text.title,
            "words": one.claim.words,
            "reported": one.claim.reported,
            "statistic": one.claim.statistic,
            "part": one.part,
            "side": one.claim.side,
            "threshold": one.claim.threshold,
            "value": None if one.estimate is None else one.estimate.mean,
            "low": None if one.estimate is None else one.estimate.low,
            "high": None if one.estimate is None else one.estimate.high,
            "contexts": None if one.estimate is None else one.estimate.n,
            "p": one.p,
            "verdict": one.verdict,
            "why": one.why,
            "remark": one.claim.remark,
        }
        for one in judgements
    ]
