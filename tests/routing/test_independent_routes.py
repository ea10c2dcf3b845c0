"""The fit of the number of independent routes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboards.routing.independent_routes import chance_to_reach, fit, fit_routes

SHARES = np.array([0.1, 0.3, 0.5, 0.7, 0.9])


def test_one_share_by_hand() -> None:
    """Half of the slots are left and three in four answers are reached: 1 - 0.5² = 0.75, so two routes."""
    assert fit_routes(np.array([0.5]), np.array([3.0]), np.array([4.0])) == pytest.approx(2)
    assert chance_to_reach(np.array([0.5, 0.0, 1.0]), 2).tolist() == pytest.approx([0.75, 0, 1])


def test_no_route_all_routes_and_nothing_to_fit() -> None:
    some = np.full(5, 8.0)
    assert fit_routes(SHARES, np.zeros(5), some) == 0
    assert fit_routes(SHARES, some, some) == float("inf")
    assert np.isnan(fit_routes(np.array([0.0, 1.0]), np.array([0.0, 4.0]), np.array([4.0, 4.0])))


@given(st.floats(0.05, 50))
def test_it_finds_the_number_that_it_was_made_with(routes: float) -> None:
    answers = np.full(5, 1000.0)
    assert fit_routes(SHARES, answers * chance_to_reach(SHARES, routes), answers) == pytest.approx(routes, rel=1e-4)


def test_the_interval_holds_the_true_number_and_resamples_contexts() -> None:
    generator = np.random.default_rng(3)
    contexts = np.repeat([f"context {number}" for number in range(60)], 5)
    shares = np.tile(SHARES, 60)
    reached = generator.random(300) < chance_to_reach(shares, 3.0)
    fitted = fit(shares.tolist(), reached.tolist(), contexts.tolist(), 0, resamples=300)
    assert fitted.low is not None
    assert fitted.high is not None
    assert fitted.low < 3.0 < fitted.high
    assert fitted.low < fitted.routes < fitted.high
    doubled = fit([*shares] * 2, [*reached] * 2, [*contexts] * 2, 0, resamples=300)  # the same contexts, asked twice
    assert doubled == fitted
    alone = fit(shares.tolist(), reached.tolist(), ["one"] * 300, 0)
    assert (alone.low, alone.high) == (None, None)
