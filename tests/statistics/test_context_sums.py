"""The sums by context, from which all intervals and tests over contexts are computed, by hand."""

import numpy as np

from leaderboards.statistics.context_sums import sum_by_context, sum_values_present


def test_sums_and_counts_are_those_of_a_hand_and_a_context_without_answers_has_0() -> None:
    values = np.array([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])

    added = sum_by_context(values, np.array([2, 0, 2]), count=4)

    assert added.contexts == 4
    np.testing.assert_array_equal(added.sums, [[2, 0, 5, 0], [16, 0, 40, 0]])
    np.testing.assert_array_equal(added.counts, [[1, 0, 2, 0], [1, 0, 2, 0]])
    np.testing.assert_array_equal(added.stacked()[1], [[16, 0, 40, 0], [1, 0, 2, 0]])


def test_answers_without_a_value_and_contexts_of_such_answers_alone_are_left_out() -> None:
    values = np.array([1.0, np.nan, 3.0, np.nan])
    weights = np.array([0.0, 7.0, 0.5, 7.0])

    added = sum_values_present(values, np.array(["b", "b", "a", "c"]), weights)

    np.testing.assert_array_equal(added.sums, [3, 1])  # of a and b
    np.testing.assert_array_equal(added.counts, [0.5, 0])


def test_values_of_contexts_have_the_mean_of_the_answers_however_many_each_context_has() -> None:
    values = np.array([1.0, 0.0, 0.0, 1.0, 1.0])

    added = sum_by_context(values, np.array([0, 1, 1, 1, 2]), count=3)

    assert added.values.mean() == values.mean()
    np.testing.assert_allclose(added.values, [0.84, 0.12, 0.84])
