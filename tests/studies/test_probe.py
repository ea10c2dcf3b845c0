"""Probes find what is there, and nothing where nothing is."""

import numpy as np
import numpy.typing as npt
import pytest

from leaderboards.studies.routing.probes import probe

CONTEXTS = [f"context {number // 4}" for number in range(120)]


def planted(strength: float, seed: int = 0) -> tuple[npt.NDArray[np.float64], list[str]]:
    """Features of three classes of answers; ``strength``: how far apart their means are."""
    generator = np.random.default_rng(seed)
    numbers = generator.integers(0, 3, len(CONTEXTS))
    features = generator.normal(size=(len(CONTEXTS), 12))
    features[np.arange(len(numbers)), numbers] += strength
    return features, [f"type {number}" for number in numbers]


def test_a_probe_finds_what_is_planted() -> None:
    found, control = probe(*planted(6.0), CONTEXTS)
    assert found > 0.95
    assert control == pytest.approx(1 / 3, abs=0.15)


def test_a_probe_finds_nothing_in_noise() -> None:
    scores = [probe(*planted(0.0, seed), CONTEXTS) for seed in range(3)]
    assert np.mean(scores, axis=0) == pytest.approx(1 / 3, abs=0.1)


def test_macro_f1_by_hand() -> None:
    """Features of one class alone: all answers of "a" and one in three of "b" look alike, so "b" is never guessed."""
    labels = ["a", "a", "b"] * 4
    contexts = [f"context {number // 3}" for number in range(12)]
    found, _ = probe(np.ones((12, 2)), labels, contexts)
    assert found == pytest.approx((2 * 8 / (2 * 8 + 4) + 0) / 2)  # F1 of "a" is 0.8
