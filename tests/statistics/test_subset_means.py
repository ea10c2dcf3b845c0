"""The means of subsets against scipy's sign flips, and the test against its interval."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import permutation_test
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from leaderboards.statistics.context_sums import ContextSums
from leaderboards.statistics.corrections import holm
from leaderboards.statistics.paired_difference import SubsetTest
from leaderboards.statistics.power import smallest_detectable

# Heights of crossed less self-fertilised plants, in eighths of an inch (C. Darwin, 1876).
MAIZE = np.array([6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75], dtype=np.float64)
ALPHA = 0.05


def subset_test(values: np.ndarray) -> SubsetTest:
    """The test of contexts of one question each."""
    return SubsetTest.from_sums(ContextSums(values, np.ones(len(values))), seed=0)


@pytest.mark.parametrize("count", [6, 8, 10])
def test_of_few_clusters_p_is_that_of_all_sign_flips(count: int) -> None:
    values = MAIZE[-count:]
    flips = permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="greater"
    )
    assert subset_test(values).p == pytest.approx(2 * flips.pvalue)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=14), st.floats(0.001, 0.05))
def test_the_interval_leaves_out_0_exactly_where_p_is_below_alpha(
    values: list[int], alpha: float
) -> None:
    test = subset_test(np.array(values, dtype=np.float64))
    ends = test.interval(alpha)
    clear = ends is not None and not ends[0] <= 0 <= ends[1]
    assert clear == (test.p < alpha)


@given(st.lists(st.floats(0.0005, 1), min_size=1, max_size=9))
@example([0.03, 0.04])  # the second is below its own level, but Holm's method stops at the first
def test_intervals_leave_out_0_exactly_where_the_corrected_p_does(p_values: list[float]) -> None:
    found = holm(dict(enumerate(p_values))).values()
    assert [one.p for one in found] == pytest.approx(
        list(multipletests(p_values, ALPHA, method="holm")[1])
    )
    assert [p < one.alpha for p, one in zip(p_values, found, strict=True)] == [
        one.p < ALPHA for one in found
    ]


@pytest.mark.parametrize("contexts", [12, 20, 50])
def test_the_smallest_difference_has_the_power_that_statsmodels_says(contexts: int) -> None:
    smallest = smallest_detectable(10.0, contexts)
    assert smallest is not None
    assert TTestPower().power(smallest / 10, contexts, ALPHA) == pytest.approx(0.8, abs=0.01)
