"""Agreement of heads, by hand and against chance."""

import numpy as np
import pytest

from leaderboards.routing.agreement import agreement, chance_of_consensus, consensus, jaccard, kappa

TOP = np.array([[7, 7, 7, 7], [7, 7, 7, 1], [7, 1, 7, 1], [0, 1, 2, 3]])


def test_consensus_and_agreement_by_hand() -> None:
    assert consensus(TOP).tolist() == [0.25, 0.5, 0.5, 1.0]  # the same for 3 : 1 and 2 : 2,
    assert agreement(TOP).tolist() == [1.0, 0.75, 0.5, 0.25]  # which agreement tells apart


def test_the_chance_of_consensus_is_that_of_heads_that_look_at_random() -> None:
    by_hand = [(0.25 * 1 + 0.75 * 2) / 2, 1 / 2]
    assert chance_of_consensus(2, np.array([4.0, 1.0])) == pytest.approx(by_hand)
    drawn = consensus(np.random.default_rng(0).integers(0, 20, (20_000, 8)))
    assert chance_of_consensus(8, np.array([20.0])) == pytest.approx(drawn.mean(), abs=0.005)


def test_jaccard_by_hand() -> None:
    keep = np.array([[[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0]], [[0, 0, 0, 0]] * 3], dtype=bool)
    assert jaccard(keep).tolist() == pytest.approx([(1 / 3 + 1 + 1 / 3) / 3, 1.0])
    assert np.isnan(jaccard(keep[:, :1])).all()


def test_jaccard_and_kappa_of_random_heads_are_at_chance() -> None:
    for share in (0.1, 0.5, 0.9):
        keep = np.random.default_rng(1).random((4, 6, 4000)) < share
        assert jaccard(keep).mean() == pytest.approx(share / (2 - share), abs=0.01)
        assert kappa(keep).mean() == pytest.approx(0, abs=0.01)


def test_kappa_by_hand() -> None:
    """Two heads, four tokens: both keep one, neither keeps one, and they differ in two. Observed
    1/2, by chance 1/2."""
    half = np.array([[1, 0, 1, 0], [1, 0, 0, 1]], dtype=bool)
    same = np.array([[1, 0, 1, 0]] * 2, dtype=bool)
    apart = np.array([[1, 0, 1, 0], [0, 1, 0, 1]], dtype=bool)
    whole = np.ones((2, 4), dtype=bool)
    values = kappa(np.stack([half, same, apart, whole]))
    assert values[:3].tolist() == pytest.approx([0.0, 1.0, -1.0])
    assert np.isnan(values[3])
