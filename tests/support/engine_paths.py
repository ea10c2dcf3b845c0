"""One policy for each path through the engine, where trying all of them would tell little more.

The others are marked ``slow``: ``make test-all`` tries them too.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from policies import Policy


def path_of(policy: Policy) -> tuple[object, ...]:
    """What the engine looks at when it treats a context and decodes: policies that agree in it run through the same
    code but for their press."""
    return (
        policy.prefill,
        policy.frees,
        policy.rewrites,
        policy.while_decoding,
        policy.per_question,
        policy.renumbers,
        policy.ratio_free_score,
        not policy.kinds,
        policy.counted,
        policy.baseline is not None,
    )


def first_of_each_path(policies: Iterable[Policy]) -> list[Policy]:
    """The first policy of each path, in the order of the policies."""
    firsts: dict[tuple[object, ...], Policy] = {}
    for policy in policies:
        firsts.setdefault(path_of(policy), policy)
    return list(firsts.values())


def one_of_each_path(policies: Iterable[Policy]) -> list[Any]:
    """All of them as parameters of a test, slow but for the first of each path."""
    policies = list(policies)
    firsts = first_of_each_path(policies)
    return [
        pytest.param(policy, id=policy.name, marks=[] if policy in firsts else [pytest.mark.slow])
        for policy in policies
    ]
