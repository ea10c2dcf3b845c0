"""How far one row of logits is from another, by hand and by properties; paths choose tokens by the same random
numbers."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kvbench.engine.studies.walks import TEMPERATURE, difference, sampler

ROW = torch.tensor([2.0, 1.9, 0.0, -1.0, 1.0])
LOGITS = arrays("float64", (7,), elements=st.floats(-30, 30))


def test_two_tokens_by_hand() -> None:
    """Probabilities 3/4 and 1/4 against 1/2 and 1/2."""
    first, second = torch.tensor([math.log(3), 0.0]), torch.tensor([0.0, 0.0])
    measured = difference(first, second)
    assert measured.kl == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), abs=1e-7)
    assert measured.largest == pytest.approx(math.log(2), abs=1e-7)
    assert measured.margin == pytest.approx(math.log(3), abs=1e-6)
    assert measured.same_top


def test_another_top_is_noted() -> None:
    assert not difference(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([1.0, 2.0, 0.0])).same_top


@given(LOGITS, LOGITS)
def test_divergences_stay_within_their_bounds(first: object, second: object) -> None:
    rows = torch.as_tensor(first), torch.as_tensor(second)
    measured = difference(*rows)
    assert 0.0 <= measured.kl <= measured.largest + 1e-12
    plain = sum(p.exp() * (p - q) for p, q in zip(*(torch.log_softmax(row, -1) for row in rows), strict=True))
    assert measured.kl == pytest.approx(float(plain), rel=1e-6, abs=1e-12)


@given(LOGITS, st.floats(-5, 5))
def test_equal_rows_and_shifted_rows_are_the_same_distribution(logits: object, shift: float) -> None:
    row = torch.as_tensor(logits)
    same = difference(row, row.clone())
    assert (same.kl, same.largest) == (0.0, 0.0)
    assert difference(row, row + shift).kl < 1e-25


def test_a_tiny_divergence_is_the_quadratic_one() -> None:
    """Of 2 log-probabilities moved by e apart from a half, KL is e^2 / 8 and the sum over p d would be all noise."""
    apart = 1e-9
    measured = difference(
        torch.tensor([0.0, 0.0], dtype=torch.float64), torch.tensor([0.0, apart], dtype=torch.float64)
    )
    assert measured.kl == pytest.approx(apart**2 / 8, rel=1e-5)


def test_what_is_not_finite_is_unknown() -> None:
    measured = difference(torch.tensor([0.0, math.inf]), torch.tensor([0.0, 1.0]))
    assert math.isnan(measured.kl)
    assert math.isnan(measured.margin)


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
