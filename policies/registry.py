"""The registry of policies: add a policy by writing its file and naming it here."""

from collections.abc import Iterable, Mapping

from policies.adakv import ADAKV_SNAPKV
from policies.controls import FULL, ORACLE, RANDOM, RECENCY
from policies.errors import PolicyError
from policies.h2o import H2O
from policies.kvpress_scorers import EXPECTED_ATTENTION, KNORM, SNAPKV, STREAMING_LLM, TOVA
from policies.policy import Policy


def by_name(policies: Iterable[Policy]) -> Mapping[str, Policy]:
    """Policies by name; a name taken twice raises."""
    named: dict[str, Policy] = {}
    for policy in policies:
        if policy.name in named:
            raise PolicyError(f"two policies are named '{policy.name}': give one of them another name")
        named[policy.name] = policy
    return named


POLICIES = by_name(
    (
        FULL,
        ORACLE,
        RANDOM,
        RECENCY,
        STREAMING_LLM,
        SNAPKV,
        TOVA,
        H2O,
        KNORM,
        EXPECTED_ATTENTION,
        ADAKV_SNAPKV,
    )
)
