"""Attention to evidence and retrieval heads, by hand and against chance."""

import numpy as np
import pytest

from leaderboards.routing.evidence import attention_shares, chance_of_share, reads_span, retrieval_scores

SPANS = {"answer": [1, 2], "subject": [0], "distractor": []}


def test_shares_of_attention_by_hand() -> None:
    attention = np.array([[[0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.0, 1.0]]])
    np.testing.assert_allclose(attention_shares(attention, SPANS), [[[0.5, 0.1, 0.0], [0.0, 0.0, 0.0]]])


def test_an_even_attention_gives_each_span_its_chance() -> None:
    shares = attention_shares(np.full((2, 3, 8), 1 / 8), SPANS)
    expected = [chance_of_share(span, 8) for span in SPANS.values()]
    assert expected == [0.25, 0.125, 0.0]
    np.testing.assert_allclose(shares, np.broadcast_to(expected, shares.shape))


def test_the_head_that_reads_each_answer_retrieves() -> None:
    tops = [np.array([[5, 0], [3, 9]]), np.array([[5, 7], [0, 8]])]
    assert reads_span(tops[0], [5, 9]).tolist() == [[True, False], [False, True]]
    assert retrieval_scores(tops, [[5, 9], [7, 5]]).tolist() == [[1.0, 0.5], [0.0, 0.5]]


def test_heads_that_look_at_random_retrieve_at_chance() -> None:
    tops = list(np.random.default_rng(0).integers(0, 20, (5000, 2, 2)))
    assert retrieval_scores(tops, [[3, 4]] * 5000) == pytest.approx(
        np.full((2, 2), chance_of_share([3, 4], 20)), abs=0.02
    )
