"""Paths choose tokens by the same random numbers."""

from collections import Counter

import numpy as np
import pytest
import torch

from kvbench.engine.numerics.sampling import TEMPERATURE, sampler

ROW = torch.tensor([2.0, 1.9, 0.0, -1.0, 1.0])


@pytest.mark.parametrize("name", ["greedy", "top_k", "top_p"])
def test_equal_logits_give_equal_tokens(name: str) -> None:
    one, other = sampler(name, 3, "q", 1), sampler(name, 3, "q", 1)
    assert [one(ROW, step) for step in range(50)] == [other(ROW.half().float().clone(), step) for step in range(50)]


def test_tokens_come_as_often_as_they_are_likely() -> None:
    choose = sampler("top_k", 0, "q", 0)
    counts = Counter(choose(ROW, step) for step in range(4000))
    expected = torch.softmax(ROW / TEMPERATURE, -1)
    shares = np.array([counts[token] / 4000 for token in range(5)])
    assert np.abs(shares - expected.numpy()).max() < 0.03


def test_top_p_leaves_the_fewest_tokens_that_have_their_share() -> None:
    row = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05])) * TEMPERATURE
    choose = sampler("top_p", 0, "q", 0)
    assert {choose(row, step) for step in range(300)} == {0, 1, 2}


def test_top_k_leaves_fifty() -> None:
    row = torch.linspace(0, 0.1, 200)
    choose = sampler("top_k", 0, "q", 0)
    assert min(choose(row, step) for step in range(500)) >= 150


def test_steps_and_draws_differ() -> None:
    first, second = sampler("top_k", 0, "q", 0), sampler("top_k", 0, "q", 1)
    assert len({first(ROW, step) for step in range(30)}) > 1
    assert [first(ROW, step) for step in range(30)] != [second(ROW, step) for step in range(30)]
