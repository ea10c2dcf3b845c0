"""Every quantisation in the batch against a plain loop, and against transformers' own quantised cache."""

from typing import Any

import pytest

from kvbench.engine.decode.answers import decode
from kvbench.engine.treat.branch import Branch
from kvbench.experiments.catalogue import find_policy
from policies import Level, Policy
from policies.quantisation.registry import QUANTISATIONS
from tests.support.plain import plain_answer
from tests.support.toy import NETWORKS, PLENTY, STEPS, model_of, toy_prompt, treat

# Nats. What is left of the last bits of float32, by which a pass over many branches differs from one alone, moves a
# value of question or answer over the border between two codes now and then.
CLOSE = 5e-3
OPTIONED = (
    "int2(group=16,residual=4)",
    "int4(k_bits=2,v_bits=8,group=48)",
    "int3(scheme=symmetric,k_axis=token,v_axis=channel)",
    "int4(tensor=K,residual=0)",
    "int4(like=transformers,k_axis=token,residual=8)",
    "fp8_e4m3(scale=group,group=48)",
    "mantissa(bits=18,tensor=V)",
)
COMPOSED = (
    "snapkv+int4",
    "adakv_snapkv+int2(residual=8)",
    "merging_snapkv+int8",
    "knorm+fair+int4",
    "knorm+int4+zeros(rate=0.1)",
    "int2(residual=4)+zeros(rate=0.2,phase=every_step,persistence=transient)",
    "zeros(rate=0.1)+int2",
    "decoding_knorm+mantissa(bits=0)",
)
BITS = tuple(Level("bits", value) for value in (0.0, 19.0))


def every() -> list[Policy]:
    return [*QUANTISATIONS.values(), *(find_policy(name) for name in (*OPTIONED, *COMPOSED[:-1]))]


@pytest.mark.parametrize("architecture", NETWORKS)
def test_every_quantisation_is_that_of_a_plain_loop(architecture: str) -> None:
    model, prompt = model_of(architecture), toy_prompt(task="instructions", index=0)
    trace = treat(model, every(), (0.5,), prompt, levels=BITS)
    generations = decode(model, trace, STEPS, PLENTY, gold=True)
    assert [branch.error for branch in trace.branches if branch.error] == []
    assert {branch.treatment.policy.name for branch in trace.branches} == {policy.name for policy in every()}
    for generation in generations:
        branch, number = generation.branch, generation.question
        gold = prompt.questions[number].gold_ids
        answer = plain_answer(model, trace, branch, number, STEPS, treatment_of(branch))
        assert list(generation.token_ids) == answer[0], branch.treatment.policy.name
        nll = plain_answer(model, trace, branch, number, STEPS, treatment_of(branch), gold)[1]
        assert generation.gold_nll == pytest.approx(nll, abs=CLOSE), branch.treatment.policy.name


def treatment_of(branch: Branch) -> Any:
    build = branch.treatment.policy.step_treatment
    assert build
    return build(branch.treatment.situation, "")
