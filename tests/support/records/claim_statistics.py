"""What a claim measures on evidence that was made by hand."""

from collections.abc import Mapping

from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.declaration import NoStatistic, Statistic
from leaderboards.claims.registry import claims


def measured(
    identifier: str, evidence: Mapping[str, Evidence]
) -> dict[str, Statistic | NoStatistic]:
    """Returns the parts of a claim by their names."""
    claim = claims()[identifier]
    found = claim.measure(*(evidence[name] for name in claim.evidence))
    assert isinstance(found, list)
    return {one.part: one for one in found}


def value(found: Statistic | NoStatistic) -> float:
    assert isinstance(found, Statistic), found
    return float(found.values[0])
