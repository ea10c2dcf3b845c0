"""Values at many places and the tests of a family, against numbers computed by hand."""

import numpy as np
import pytest

from leaderboards.statistics.bootstrap import Estimate, resampled_means
from leaderboards.statistics.corrections import PValue, as_family
from leaderboards.statistics.series import average_columns
from leaderboards.statistics.standard_tests import mann_whitney, mcnemar

NAN = float("nan")


def test_each_place_has_the_mean_of_the_rows_that_reach_it() -> None:
    values = np.array([[1.0, 2.0, 8.0], [3.0, 4.0, NAN], [5.0, NAN, NAN]])
    first, second, third = average_columns(values, ["a", "b", "c"])
    assert first is not None
    assert (first.mean, first.n) == (3.0, 3)
    assert second is not None
    assert (second.mean, second.n) == (3.0, 2)
    assert third == Estimate(8.0, None, None, 1), "one context varies with nothing"


def test_a_place_without_a_value_has_none() -> None:
    assert average_columns(np.array([[NAN], [NAN]]), ["a", "b"]) == [None]


def test_an_interval_is_that_of_the_bootstrap_over_contexts() -> None:
    """Two draws of a context are resampled together."""
    values, contexts = np.array([[1.0], [2.0], [4.0], [9.0]]), ["a", "a", "b", "c"]
    (one,) = average_columns(values, contexts)
    drawn = resampled_means(values[:, 0], np.array(contexts), 0)
    assert one == Estimate.of(4.0, drawn, 4)
    assert one is not None
    assert one.low is not None
    assert one.low < 4.0


def test_mcnemar_is_a_toss_of_the_pairs_that_differ() -> None:
    """Of six pairs five and one: twice (1 + 6) of 64."""
    assert mcnemar(5, 1) == pytest.approx(2 * 7 / 64)
    assert mcnemar(1, 5) == mcnemar(5, 1)
    assert mcnemar(3, 0) == pytest.approx(2 / 8)
    assert mcnemar(2, 2) == 1.0
    assert mcnemar(0, 0) == 1.0


def test_three_numbers_above_three_others_are_one_order_of_twenty_at_either_end() -> None:
    assert mann_whitney(np.array([4.0, 5.0, 6.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(
        2 / 20
    )
    assert mann_whitney(np.zeros(3), np.zeros(3)) == 1.0


def test_a_family_is_corrected_in_both_ways() -> None:
    """Of four: times four; and by rank times 4, 2, 4/3 and 1, no larger than the next."""
    found = as_family([0.01, 0.04, None, 0.03, 0.5])
    assert [one.p for one in found] == [0.01, 0.04, None, 0.03, 0.5]
    assert [one.p_bonferroni for one in found] == [0.04, 0.16, None, 0.12, 1.0]
    by_rank = [one.p_bh for one in found if one.p_bh is not None]
    assert by_rank == pytest.approx([0.04, 4 / 3 * 0.04, 4 / 3 * 0.04, 0.5])
    assert found[2] == PValue()


def test_a_family_of_nothing_has_no_p() -> None:
    assert as_family([None, None]) == [PValue(), PValue()]
