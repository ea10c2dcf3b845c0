"""The registry of policies: add a policy by writing its file and naming it here."""

from collections.abc import Iterable, Mapping

from policies.declaration.errors import PolicyError
from policies.declaration.policy import Policy
from policies.eviction.controls import FULL, ORACLE, RANDOM, RECENCY
from policies.eviction.decoding import DECODING
from policies.eviction.layers_and_channels import LAYERS_AND_CHANNELS
from policies.eviction.pretrained import PRETRAINED
from policies.eviction.private_prefill import PRIVATE_PREFILL
from policies.eviction.protection import PROTECTION
from policies.eviction.scorers import SCORERS
from policies.eviction.wrappers import WRAPPERS


def by_name(policies: Iterable[Policy]) -> Mapping[str, Policy]:
    """Sorts policies by name; raises :class:`PolicyError` for a name that is taken twice."""
    registered: dict[str, Policy] = {}
    for policy in policies:
        if policy.name in registered:
            raise PolicyError(f"two policies are named '{policy.name}': give one of them another name")
        registered[policy.name] = policy
    return registered


POLICIES = by_name(
    (
        *(FULL, ORACLE, RANDOM, RECENCY),
        *SCORERS,
        *WRAPPERS,
        *LAYERS_AND_CHANNELS,
        *PROTECTION,
        *PRIVATE_PREFILL,
        *DECODING,
        *PRETRAINED,
    )
)
