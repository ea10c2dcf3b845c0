"""How far one row of logits is from another, by hand and by properties."""

import math
import tracemalloc

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kvbench.engine.numerics.measures import difference

LOGITS = arrays("float64", (7,), elements=st.floats(-30, 30))


def test_two_tokens_by_hand() -> None:
    """Probabilities 3/4 and 1/4 against 1/2 and 1/2."""
    first, second = torch.tensor([math.log(3), 0.0]), torch.tensor([0.0, 0.0])
    measured = difference(first, second)
    assert measured.kl == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), abs=1e-7)
    mean = (0.625, 0.375)
    of_first = 0.75 * math.log(0.75 / mean[0]) + 0.25 * math.log(0.25 / mean[1])
    of_second = 0.5 * math.log(0.5 / mean[0]) + 0.5 * math.log(0.5 / mean[1])
    assert measured.js == pytest.approx((of_first + of_second) / 2, abs=1e-7)
    assert measured.largest == pytest.approx(math.log(2), abs=1e-7)
    assert measured.mean_difference == pytest.approx((math.log(1.5) + math.log(2)) / 2, abs=1e-7)
    assert measured.margin == pytest.approx(math.log(3), abs=1e-6)
    assert measured.other_margin == 0.0
    assert measured.same_top


def test_another_top_is_noted() -> None:
    assert not difference(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([1.0, 2.0, 0.0])).same_top


@given(LOGITS, LOGITS)
def test_divergences_stay_within_their_bounds(first: object, second: object) -> None:
    rows = torch.as_tensor(first), torch.as_tensor(second)
    measured, turned = difference(*rows), difference(*rows[::-1])
    assert measured.kl >= 0.0
    assert 0.0 <= measured.js <= math.log(2) + 1e-12
    assert measured.js == pytest.approx(turned.js, rel=1e-9, abs=1e-15)
    assert measured.js <= (measured.kl + turned.kl) / 4 + 1e-12
    assert measured.kl <= measured.largest + 1e-12
    assert measured.mean_difference <= measured.largest
    plain = sum(p.exp() * (p - q) for p, q in zip(*(torch.log_softmax(row, -1) for row in rows), strict=True))
    assert measured.kl == pytest.approx(float(plain), rel=1e-6, abs=1e-12)


@given(LOGITS, st.floats(-5, 5))
def test_equal_rows_and_shifted_rows_are_the_same_distribution(logits: object, shift: float) -> None:
    row = torch.as_tensor(logits)
    same = difference(row, row.clone())
    assert (same.kl, same.js, same.largest, same.mean_difference) == (0.0, 0.0, 0.0, 0.0)
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


def test_rows_of_a_large_vocabulary_leave_nothing_behind() -> None:
    first, second = torch.randn(256_000), torch.randn(256_000)
    difference(first, second)
    tracemalloc.start()
    try:
        kept = [difference(first, second) for _ in range(20)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len({one.kl for one in kept}) == 1
    assert held < 100_000, "a step keeps its seven numbers and no row"
