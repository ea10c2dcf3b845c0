"""Heads that read the answer, by hand and against chance."""

import numpy as np
import pytest

from leaderboards.routing.evidence import reads_span


def test_heads_whose_top_token_is_in_the_span_read_it() -> None:
    assert reads_span(np.array([[5, 0], [3, 9]]), [5, 9]).tolist() == [[True, False], [False, True]]
    assert not reads_span(np.array([[5, 0], [3, 9]]), []).any()


def test_heads_that_look_at_random_read_a_span_at_chance() -> None:
    tops = np.random.default_rng(0).integers(0, 20, (10_000, 2))
    assert reads_span(tops, [3, 4]).mean() == pytest.approx(2 / 20, abs=0.01)
