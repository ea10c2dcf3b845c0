"""Policies of several parts, such as ``snapkv+pages16+int4+zeros(rate=0.01)``: evict pages, quantise, damage."""

from collections.abc import Mapping

from policies.declaration.names import PLAIN, PolicyError, plain_and_way
from policies.declaration.policy import Policy
from policies.faults.registry import FAULTS, fault_of
from policies.quantisation.registry import QUANTISATIONS, quantisation_of
from policies.registry import POLICIES
from policies.treatments.chain import followed_by
from policies.treatments.deployed import WAYS, deploy, deploy_scorer
from policies.treatments.options import is_one_of

TREATMENTS: Mapping[str, Policy] = {**QUANTISATIONS, **FAULTS}  # of what an eviction leaves, and of the full cache


def is_treatment(name: str) -> bool:
    """Tells whether a name is that of a fault or a quantisation, with options or without."""
    return is_one_of(name, TREATMENTS)


def is_way(name: str) -> bool:
    """Tells whether a name is that of a way to protect or to deploy a policy, with options or without."""
    return is_one_of(name, WAYS)


def treatment_of(name: str) -> Policy:
    """Makes the policy that treats the full cache; raises :class:`PolicyError` in one line for options that it has
    not."""
    return fault_of(name) if is_one_of(name, FAULTS) else quantisation_of(name)


def check_alone(policy: Policy) -> Policy:
    """Returns the policy; raises :class:`PolicyError` for one that acts on what a quantisation before it stores."""
    if policy.check_codewords:
        raise PolicyError(f"{policy.name} stores no codewords: put a quantisation before it, as int4+{policy.name}")
    return policy


def compose(plain: Policy, way: str) -> Policy:
    """Makes the policy ``plain+way``, which protects what another evicts, deploys it, or treats what it leaves; raises
    :class:`PolicyError` in one line if they do not go together."""
    return deploy(plain, way) if is_way(way) else followed_by(plain, treatment_of(way))


def built_in(name: str) -> Policy | None:
    """Finds a policy of this package by any name that a run may have for it, without building a press; None for any
    other, such as a plug-in."""
    plain, way = plain_and_way(name)
    if name in POLICIES:
        return POLICIES[name]
    try:
        if way == PLAIN:
            return treatment_of(name) if is_treatment(name) else None
        known = built_in(plain)
        if known is None or not (is_way(way) or is_treatment(way)):
            return None
        return deploy_scorer(known, way) if is_way(way) else followed_by(known, treatment_of(way))
    except PolicyError:
        return None
