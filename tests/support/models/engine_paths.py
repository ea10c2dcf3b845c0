"""Chooses one policy for each path through the engine, where trying all of them would tell little
more.

The others are marked ``slow``: ``make test-all`` tries them too.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from kvbench.engine.decode.loop import Generation
from policies import Policy
from tests.support.models.toy import NETWORKS

SLIDING = "gemma3_text"


def path_of(policy: Policy) -> tuple[object, ...]:
    """Returns what the engine looks at when it treats a context and decodes: policies that agree in
    it run through the same code but for their press or treatment."""
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
        policy.treatment.prefill_treatment is not None,
        policy.treatment.step_treatment is not None,
        policy.treatment.write_treatment is not None,
        policy.treatment.own_rows,
        policy.needs.donor,
    )


def first_of_each_path(policies: Iterable[Policy]) -> list[Policy]:
    """Returns the first policy of each path, in the order of the policies."""
    firsts: dict[tuple[object, ...], Policy] = {}
    for policy in policies:
        firsts.setdefault(path_of(policy), policy)
    return list(firsts.values())


def one_of_each_path(policies: Iterable[Policy]) -> list[Any]:
    """Returns all of them as parameters of a test, slow but for the first of each path."""
    policies = list(policies)
    firsts = first_of_each_path(policies)
    return [
        pytest.param(policy, id=policy.name, marks=[] if policy in firsts else [pytest.mark.slow])
        for policy in policies
    ]


def all_on_one_architecture() -> list[Any]:
    """Returns parameters of a test, an architecture and whether it tries all policies: all on the
    first architecture, the first of each path on one whose layers slide, and everything else where
    slow tests run."""
    first, *others = NETWORKS
    return [
        pytest.param(first, True, id=f"{first}-all"),
        *(
            pytest.param(
                n, False, id=f"{n}-each path", marks=[] if n == SLIDING else pytest.mark.slow
            )
            for n in others
        ),
        *(pytest.param(name, True, id=f"{name}-all", marks=pytest.mark.slow) for name in others),
    ]


def first_architecture() -> list[Any]:
    """Returns all architectures as parameters of a test, slow but for the first."""
    first, *others = NETWORKS
    return [first, *(pytest.param(name, marks=pytest.mark.slow) for name in others)]


def of_some_questions(generations: Iterable[Generation]) -> list[Generation]:
    """Returns the answers to the first question of a context, whose row treats the context, and to
    the last, whose row gets a copy. Those between tell little more."""
    generations = list(generations)
    last = max(generation.question for generation in generations)
    return [generation for generation in generations if generation.question in (0, last)]
