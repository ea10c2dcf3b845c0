"""Intervals of shares and of paired losses: by hand, against statsmodels, and by how often they
hold the truth."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom
from statsmodels.stats.proportion import proportion_confint

from leaderboards.statistics.context_sums import FloatArray, context_values
from leaderboards.statistics.intervals import (
    Moments,
    difference_interval,
    effective_number,
    interval_over_tasks,
    mean_interval,
)
from leaderboards.statistics.paired_difference import PairedDifference
from leaderboards.statistics.safe_ratio import contexts_that_agree, excluded_by

RUNS = 1000
# By how much 1,000 runs may miss a rate of so many percent, in one of the 380 cells of a
# simulation.
MISSED = 1 - binom.ppf(1e-4, RUNS, 0.94) / RUNS - 0.06
TOO_SAFE = binom.ppf(1 - 1e-4, RUNS, 0.025) / RUNS
# The correlation of the questions of a context: usual, and the highest that was measured.
MEASURED = (0.1, 0.3)


@pytest.mark.parametrize("right", [0, 1, 6, 11, 12])
def test_of_one_question_a_context_it_is_the_interval_of_clopper_and_pearson(right: int) -> None:
    """The end towards which one more context speaks: there the number of independent answers is
    that of contexts."""
    values = np.array([1.0] * right + [0.0] * (12 - right))
    low, high = mean_interval(values)
    assert (low, high) == pytest.approx(proportion_confint(right, 12, method="beta"), abs=1e-9)


def test_the_effective_number_is_that_of_a_hand() -> None:
    """Two contexts of 1 and 0.5, and one of 0 more: their mean is 0.5, the squares are 0.25, 0 and
    0.25, so that they tell as much as 2 * 3 * 0.25 / 0.5 answers; of a context of 1 more the mean
    is 5/6, the squares 1/36, 4/36, 1/36."""
    moments = Moments.of(np.array([1.0, 0.5]))
    assert effective_number((moments, 0.0)) == pytest.approx(3)
    assert effective_number((moments, 1.0)) == pytest.approx(6 * (5 / 36) / (6 / 36))
    low, high = mean_interval(np.array([1.0, 0.5]))
    assert low == pytest.approx(proportion_confint(0.75 * 3, 3, method="beta")[0])
    assert high == pytest.approx(proportion_confint(0.75 * 5, 5, method="beta")[1])


def test_contexts_that_agree_have_the_width_of_as_many_answers() -> None:
    """However many questions each has: they may all have failed together in another context."""
    for contexts in (2, 12, 96):
        low, high = mean_interval(np.ones(contexts))
        assert low == pytest.approx(0.025 ** (1 / contexts))
        assert high == 1
        nothing = np.zeros(contexts)
        ends = difference_interval(nothing, nothing)
        assert ends == pytest.approx((-excluded_by(contexts), excluded_by(contexts)))
        assert excluded_by(contexts) == pytest.approx(1 - low)
    assert contexts_that_agree(0.05) == 72  # log 0.025 / log 0.95 is 71.9
    assert excluded_by(72) < 0.05 <= excluded_by(71)


@pytest.mark.parametrize("contexts", [5, 6, 12])
def test_where_every_context_is_worse_it_is_the_sign_test_turned_round(contexts: int) -> None:
    """All of n on one side have a p of 2 / 2 ** n: the interval of that level ends at 0."""
    low, _ = difference_interval(np.ones(contexts), np.zeros(contexts), alpha=2 * 0.5**contexts)
    assert low == pytest.approx(0, abs=1e-9)


def test_a_loss_needs_as_many_contexts_as_show_it() -> None:
    one_in_forty = PairedDifference(np.eye(1, 40)[0], np.zeros(40))  # 2.5 points
    needed = one_in_forty.contexts_below(0.05)
    assert needed is not None
    shown = []
    for times in (needed // 40, needed // 40 + 1):
        repeated = PairedDifference(np.tile(one_in_forty.more, times), np.zeros(40 * times))
        shown.append(repeated.interval()[1] < 0.05)
    assert shown == [False, True]
    assert PairedDifference(np.zeros(12), np.zeros(12)).contexts_below(0.05) == 72
    at_bound = PairedDifference(np.full(12, 0.05), np.zeros(12))
    assert (at_bound.contexts_below(0.05), at_bound.contexts_above(0.05)) == (None, None)


def test_a_large_loss_needs_as_many_contexts_as_show_that_it_is_large() -> None:
    four_in_forty = PairedDifference(np.repeat([1.0, 0.0], [4, 36]), np.zeros(40))  # 10 points
    assert four_in_forty.contexts_below(0.05) is None
    needed = four_in_forty.contexts_above(0.05)
    assert needed is not None
    shown = []
    for times in (needed // 40, needed // 40 + 1):
        repeated = PairedDifference(np.tile(four_in_forty.more, times), np.zeros(40 * times))
        shown.append(repeated.interval()[0] > 0.05)
    assert shown == [False, True]


def test_values_of_contexts_average_to_the_mean_over_questions() -> None:
    """One of one question and two of four: the mean is 5/9, and a context without an answer adds
    nothing."""
    sums, counts = np.array([1.0, 4.0, 0.0, 0.0]), np.array([1.0, 4.0, 4.0, 0.0])
    values = context_values(sums, counts)
    assert values.mean() == pytest.approx(5 / 9)
    assert values[3] == pytest.approx(5 / 9)
    assert context_values(np.array([1.0, 3.0]), np.array([4.0, 4.0])) == pytest.approx([0.25, 0.75])


def test_a_mean_over_tasks_has_the_interval_of_a_hand() -> None:
    """Distances of 3 and 4 join to 5, over two tasks."""
    low, high = interval_over_tasks(
        np.array([10.0, 20.0]), np.array([7.0, 16.0]), np.array([14.0, 23.0])
    )
    assert (low, high) == pytest.approx((15 - 2.5, 15 + 2.5))


# How often they hold the truth


@dataclass(frozen=True)
class Cell:
    contexts: int
    questions: int
    correlation: float


def simulated_cells() -> Iterator[Cell]:
    for contexts in (12, 24, 48, 96):
        yield Cell(contexts, 1, 0.0)
        for questions in (4, 6):
            yield from (
                Cell(contexts, questions, correlation) for correlation in (0.0, *MEASURED, 1.0)
            )


def draw_means(
    shares: tuple[float, ...], cell: Cell, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Means of contexts of answers of a few kinds, shape (runs, contexts, kinds); the shares of the
    kinds vary among contexts by Dirichlet's distribution, which gives the answers of a context this
    correlation."""
    size = (RUNS, cell.contexts)
    if cell.correlation == 1:
        return rng.multinomial(1, shares, size).astype(float)
    chances = np.broadcast_to(np.array(shares), (*size, len(shares)))
    if cell.correlation:
        spread = (1 - cell.correlation) / cell.correlation
        gammas = (
            rng.gamma(np.maximum(np.array(shares) * spread, 1e-9), size=(*size, len(shares)))
            + 1e-300
        )
        chances = gammas / gammas.sum(axis=-1, keepdims=True)
    return rng.multinomial(cell.questions, chances) / cell.questions


def held(ends: tuple[FloatArray, FloatArray], truth: float) -> float:
    low, high = ends
    return float(np.mean((low <= truth + 1e-12) & (truth - 1e-12 <= high)))


@pytest.mark.parametrize("share", [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99])
def test_intervals_of_shares_hold_the_truth_in_94_percent_of_runs(share: float) -> None:
    rng = np.random.default_rng(7)
    for cell in simulated_cells():
        right = draw_means((share, 1 - share), cell, rng)[..., 0]
        assert held(mean_interval(right), share) >= 0.94 - MISSED, cell


@pytest.mark.parametrize("loss", [0.0, 0.02, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("gain", [0.0, 0.02, 0.2])
def test_intervals_of_losses_hold_the_truth_and_a_loss_is_not_called_safe(
    loss: float, gain: float
) -> None:
    """``gain``: the share of questions that only the compressed cache has right."""
    rng = np.random.default_rng(11)
    for cell in simulated_cells():
        answers = draw_means((loss + gain, gain, 1 - loss - 2 * gain), cell, rng)
        ends = difference_interval(answers[..., 0], answers[..., 1])
        assert held(ends, loss) >= 0.94 - MISSED, cell
        if loss >= 0.05:
            assert np.mean(ends[1] < 0.05) <= TOO_SAFE, cell


def test_what_is_shown_of_few_contexts_is_that_something_is_unsafe() -> None:
    """Of a loss of 40 points twelve contexts of six questions tell nine times in ten; that nothing
    is lost, never."""
    rng = np.random.default_rng(13)
    cell = Cell(12, 6, MEASURED[0])
    lost, nothing = (draw_means((loss, 0.0, 1 - loss), cell, rng) for loss in (0.4, 0.0))
    assert np.mean(difference_interval(lost[..., 0], lost[..., 1])[0] >= 0.05) > 0.9
    assert not np.any(difference_interval(nothing[..., 0], nothing[..., 1])[1] < 0.05)
    enough = draw_means((0.0, 0.0, 1.0), Cell(72, 1, 0.0), rng)
    assert np.all(difference_interval(enough[..., 0], enough[..., 1])[1] < 0.05)


@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_graded_values_have_narrower_intervals_that_hold_as_well(spread: float) -> None:
    """Such as F1 or a Global Eviction Ratio: a mean of 0.6 with this standard deviation, by the
    beta distribution."""
    rng = np.random.default_rng(17)
    both = 0.24 / spread**2 - 1
    values = rng.beta(0.6 * both, 0.4 * both, (RUNS, 24))
    low, high = mean_interval(values)
    assert held((low, high), 0.6) >= 0.94 - MISSED
    binary = mean_interval(rng.binomial(1, 0.6, (RUNS, 24)).astype(float))
    assert np.mean(high - low) < 0.75 * np.mean(binary[1] - binary[0])
