"""A model with longrope turns its keys by other angles beyond a length: contexts across it are
refused."""

import pytest
from transformers import Phi3Config, Phi3ForCausalLM

from kvbench.engine.decode.answers import decode
from kvbench.models.load import LoadedModel
from kvbench.system.errors import KVBenchError
from policies import POLICIES
from tests.support.models.toy import (
    PLENTY,
    by_question,
    kvpress_answers_branch,
    sizes,
    toy_model,
    toy_prompt,
    treat,
)

FACTORS = 8  # half the size of a head, which Phi 3 has from the width and the heads
NAMES = ("full", "knorm", "streaming_llm", "rerotated_snapkv", "decoding_knorm")
STEPS = 8
PROMPT = toy_prompt(questions=2)
LENGTH = len(PROMPT.token_ids)


def switching_at(tokens: int) -> LoadedModel:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0] * FACTORS,
        "long_factor": [1.0 + number / 10 for number in range(FACTORS)],
        "original_max_position_embeddings": tokens,
        "factor": 4.0,
    }
    fields = sizes(
        head_dim=2 * FACTORS, original_max_position_embeddings=tokens, rope_parameters=rope
    )
    return toy_model("phi3", lambda: Phi3ForCausalLM(Phi3Config(**fields)))


@pytest.mark.parametrize("switch", [LENGTH + 200, LENGTH - 1, LENGTH // 2])
def test_on_either_side_of_the_switch_answers_are_those_of_kvpress(switch: int) -> None:
    """What is renumbered to before the switch is refused; a wave would turn its questions as those
    of the others."""
    model = switching_at(switch)
    trace = treat(model, [POLICIES[name] for name in NAMES], (0.3, 0.9), PROMPT)
    answers = by_question(decode(model, trace, STEPS, PLENTY))
    for branch in trace.branches:
        policy, ratio = branch.treatment.policy.name, branch.treatment.ratio
        if branch.error:
            assert policy == "rerotated_snapkv"
            assert "(longrope)" in branch.error
            assert (1 - ratio) * LENGTH <= switch < LENGTH
            continue
        theirs = kvpress_answers_branch(model, PROMPT, branch, STEPS)
        assert [answers[policy, ratio, number] for number in (0, 1)] == [
            tuple(ids) for ids in theirs
        ]
    assert len(set(answers.values())) > 4


@pytest.mark.parametrize("beyond", [0, STEPS])
def test_a_context_that_crosses_the_switch_with_question_and_answer_is_refused(beyond: int) -> None:
    model = switching_at(LENGTH + beyond)
    with pytest.raises(
        KVBenchError, match=rf"has {LENGTH} tokens, .* beyond {LENGTH + beyond} .*\(longrope\)"
    ):
        decode(model, treat(model, [POLICIES["knorm"]], (0.3,), PROMPT), STEPS, PLENTY)
