"""The study of faults: what a damaged cache breaks, by kind, share, layers and tokens."""

from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.faults.page import content_of
from leaderboards.studies.treatments.damage import damages
from leaderboards.studies.treatments.definitions import TREATMENTS
from leaderboards.studies.treatments.measured import policies_in
from policies.declaration.levels import KINDS
from policies.declaration.names import FULL


def _takes(given: StudyInput) -> bool:
    """Takes runs with the full cache and a fault at two rates or more, 0 aside."""
    policies = policies_in(given.records)
    of_faults = given.records["level_kind"].isin([kind.name for kind in KINDS.values() if kind.hit_share])
    rates = given.records[of_faults & (given.records["level"] > 0)].groupby("policy", observed=True)["level"].nunique()
    return FULL in policies and any(rates.get(damage.policy, 0) > 1 for damage in damages(policies))


STUDY = Study(
    name="faults",
    title="Faults of the cache",
    lead="Rows of the cache hold noise, nothing, or what belongs to somebody else. How much of that does an answer "
    "survive, in which layers, and in which tokens?",
    takes=_takes,
    find=content_of,
    chapter=TREATMENTS,
)
