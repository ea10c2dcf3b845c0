"""What is told of the traps of kvpress's code holds of the kvpress that is installed."""

import pytest

from kvbench.models.load import LoadedModel
from policies import POLICIES
from policies.eviction.scorers import SINK
from tests.support.models.toy import toy_prompt, treat

# Of the toy's template, "<|begin|><|user|> ", before a user's text.
PREFIX = 10
PROVEN = ("kvzip", "kvzip_plus", "kvgrad")


def test_each_caveat_is_proven_here() -> None:
    assert {policy.name for policy in POLICIES.values() if policy.caveat} == {*PROVEN}


@pytest.mark.parametrize("name", PROVEN)
def test_kvzip_evicts_the_beginning_first(llama: LoadedModel, name: str) -> None:
    prompt = toy_prompt(questions=1)
    length = len(prompt.token_ids)
    # Fewer than there are without a score.
    trace = treat(llama, [POLICIES[name]], [(PREFIX - SINK - 1) / length], prompt)
    (branch,) = trace.branches
    evicted: set[int] = set()
    for layer in branch.layers:
        assert layer.keep is not None
        evicted.update((~layer.keep).nonzero()[:, -1].tolist())
    assert evicted
    assert evicted <= {*range(SINK, PREFIX)}
