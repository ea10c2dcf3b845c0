"""The registry of policies: add a policy by writing its file and naming it here."""

from collections.abc import Mapping

from policies.declaration.names import PolicyError, by_name
from policies.declaration.policy import Policy
from policies.eviction.controls import FULL, ORACLE, RANDOM, RECENCY
from policies.eviction.decoding import DECODING
from policies.eviction.pretrained import PRETRAINED
from policies.eviction.private_prefill import PRIVATE_PREFILL
from policies.eviction.scorers import SCORERS
from policies.eviction.wrappers import WRAPPERS
from policies.treatments.deployed import DEPLOYED, PROTECTION

POLICIES: Mapping[str, Policy] = by_name(
    "policies",
    (
        *(FULL, ORACLE, RANDOM, RECENCY),
        *SCORERS,
        *WRAPPERS,
        *PROTECTION,
        *DEPLOYED,
        *PRIVATE_PREFILL,
        *DECODING,
        *PRETRAINED,
    ),
    PolicyError,
)
