"""The rows that a format stores, and what the model says behind them."""

import math

import pytest
import torch

from kvbench.engine.studies.stored_rows import (
    StoredRows,
    answer_log_probabilities,
    mean_divergence,
    store_rows,
)
from policies.composition import make_treatment
from tests.support.models.toy import model_of, toy_prompt, treat


@pytest.mark.parametrize("architecture", ["llama", "gemma3_text"])
def test_over_exact_rows_the_right_answer_is_as_likely_as_in_one_pass(architecture: str) -> None:
    model, prompt = model_of(architecture), toy_prompt(questions=1)
    trace = treat(model, [make_treatment("int2")], (), prompt)
    (question,) = prompt.questions
    ids = (*prompt.token_ids, *question.token_ids, *question.gold_ids)
    with torch.inference_mode():
        logits = model.network(input_ids=torch.tensor([ids])).logits[0]
    behind = len(ids) - len(question.gold_ids) - 1
    expected = torch.log_softmax(logits[behind:-1].float(), dim=-1)
    exact = StoredRows(trace.keys, trace.values)
    answer = question.token_ids, question.gold_ids
    measured = answer_log_probabilities(model.network, exact, *answer)
    torch.testing.assert_close(measured, expected, atol=1e-4, rtol=1e-4)
    assert mean_divergence(expected, measured) == pytest.approx(0, abs=1e-6)
    treatment = trace.branches[0].treatment
    stored = store_rows(treatment.policy, treatment.situation, trace.keys, trace.values)
    treated = answer_log_probabilities(model.network, stored, *answer)
    assert mean_divergence(measured, treated) > 1e-3
    again = answer_log_probabilities(model.network, exact, *answer)
    assert torch.equal(again, measured), "the rows are left as they were"


def test_the_divergence_by_hand() -> None:
    """Of two tokens one has other odds, a half each against a quarter, and one the same."""
    exact = torch.log(torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
    other = torch.log(torch.tensor([[0.25, 0.75], [0.9, 0.1]]))
    of_first = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert mean_divergence(exact, other) == pytest.approx(of_first / 2, rel=1e-5)
