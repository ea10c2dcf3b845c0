"""The study of bytes: what is kept at equal bytes by eviction, by fewer bits, and by both."""

from leaderboards.studies.bytes.frontier import BOTH, EVICTION, QUANTISATION, family_of
from leaderboards.studies.bytes.page import content_of
from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.treatments.definitions import TREATMENTS
from leaderboards.studies.treatments.measured import policies_in
from policies.declaration.names import FULL


def _takes(given: StudyInput) -> bool:
    """Takes runs in which something is evicted, something stored in fewer bits, and something both."""
    policies = policies_in(given.records)
    return FULL in policies and {EVICTION, QUANTISATION, BOTH} <= {family_of(policy) for policy in policies}


STUDY = Study(
    name="bytes",
    title="Equal bytes",
    lead="The same memory can hold few tokens in full, all of them in few bits, or some in some. Which keeps most, and "
    "what is left of it where an engine frees whole pages?",
    takes=_takes,
    find=content_of,
    chapter=TREATMENTS,
)
