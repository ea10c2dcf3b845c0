"""Intervals of bounded means over contexts, which have width also where all contexts agree.

Three numbers, and one method for each:

- a mean of values between 0 and 1, such as the share of right answers: the exact binomial interval
  with the number of independent answers that would tell as much [E. L. Korn and B. I. Graubard,
  Survey Methodology 24 (1998), 193-201],
- a mean of paired differences, as the difference of the means of its gains and losses: both
  intervals of the first kind joined [G. Y. Zou and A. Donner, Statistics in Medicine 27 (2008),
  1693-1702],
- a mean over tasks, from the intervals of the tasks in the same way.

The variation among contexts that happen to agree says nothing of other contexts. Hence the
effective number is counted as if there were one context more, all of whose answers speak against
the end of the interval that is looked for. Without it intervals of 95 % hold the truth in 90 % of
runs in which a few contexts fail as a whole; with it in 95 or more
(``tests/statistics/test_intervals.py`` simulates it)."""

from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv

from leaderboards.statistics.context_sums import FloatArray

Ends = tuple[FloatArray, FloatArray]

ALPHA = 0.05
NOISE = 1e-9  # of sums of floats
HALF_ANSWER = 0.5  # added to both kinds of answers, as a share of 0 or 1 has no correlation


class Moments(NamedTuple):
    """Holds mean and variance of the values of so many contexts, each of shape (...), for an
    interval."""

    mean: FloatArray
    variance: FloatArray  # divided by the number of contexts
    contexts: int

    @classmethod
    def of(cls, values: FloatArray) -> "Moments":
        """Takes the moments over the last axis. ``values``: shape (..., contexts)."""
        return cls(values.mean(axis=-1), values.var(axis=-1), values.shape[-1])

    def with_one_more(self, value: float) -> Ends:
        """Returns the variance that independent answers would have, and the sum of squares, with
        one context more."""
        mean = (self.contexts * self.mean + value) / (self.contexts + 1)
        of_contexts = self.contexts * (self.variance + (self.mean - mean) ** 2)
        squares = of_contexts + (value - mean) ** 2
        return mean * (1 - mean), squares


def effective_number(*parts: tuple[Moments, float]) -> FloatArray:
    """Returns how many independent answers, right or wrong, tell as much about some means as their
    contexts do; each with the value of the context that is added. Of contexts that agree it is
    their number. It has the shape (...) of the moments."""
    variances, sums_of_squares = [], []
    for moments, value in parts:
        variance, squares = moments.with_one_more(value)
        variances.append(variance)
        sums_of_squares.append(squares)
    of_answers = np.sum(variances, axis=0)
    # With one context more, the sum of squares over n (n + 1) is the squared standard error of
    # their mean. Divided into the variance of one answer it says how many answers have the same
    # error.
    of_contexts = np.sum(sums_of_squares, axis=0)
    contexts = parts[0][0].contexts
    number = contexts * (contexts + 1) * of_answers / np.maximum(of_contexts, NOISE)
    return np.where(of_contexts > NOISE, number, float(contexts))


def _lowest(share: FloatArray, number: FloatArray, alpha: float) -> FloatArray:
    """Returns the lower end of the exact binomial interval of Clopper and Pearson; ``number`` may
    be a fraction."""
    right = share * number
    # scipy has no number for a first argument of 0, where the end is 0 by definition.
    lowest = betaincinv(np.maximum(right, NOISE), number - right + 1, alpha / 2)
    return np.where(right > NOISE, lowest, 0.0)


def _highest(share: FloatArray, number: FloatArray, alpha: float) -> FloatArray:
    highest: FloatArray = 1 - _lowest(1 - share, number, alpha)
    return highest


def mean_interval(values: FloatArray, alpha: float = ALPHA) -> Ends:
    """Returns both ends for the mean of values between 0 and 1, shape (..., contexts)."""
    moments = Moments.of(values)
    # The noise of sums may carry a mean beyond 0 or 1, where a share has no interval.
    share = np.clip(moments.mean, 0.0, 1.0)
    # The context that is added speaks against the end: it has 0 for the lower one, and 1 for the
    # upper.
    low = _lowest(share, effective_number((moments, 0.0)), alpha)
    high = _highest(share, effective_number((moments, 1.0)), alpha)
    return low, high


def difference_interval(gains: FloatArray, losses: FloatArray, alpha: float = ALPHA) -> Ends:
    """Returns both ends for the mean of gains less that of losses, each between 0 and 1, shape
    (..., contexts): of an answer one of the two is 0. Contexts that differ in nothing have the
    width of a share of 0."""
    up = Moments.of(gains)
    down = Moments.of(losses)
    # The lower end of a difference is the upper end of the difference the other way round.
    lowest = up.mean - down.mean - _reach(down, up, alpha)
    return lowest, highest_difference(up, down, alpha)


def highest_difference(up: Moments, down: Moments, alpha: float = ALPHA) -> FloatArray:
    """Returns the upper end for the mean of gains less that of losses, whose moments have the shape
    (...)."""
    highest: FloatArray = up.mean - down.mean + _reach(up, down, alpha)
    return highest


def _reach(up: Moments, down: Moments, alpha: float) -> FloatArray:
    """Returns how far the true difference may be above the measured one. Gains and losses exclude
    one another, so that they are correlated as the counts of a multinomial distribution are: where
    all answers differ, it is the sign test turned round."""
    # One number for gains and losses, since they are of the same answers.
    number = effective_number((up, 1.0), (down, 0.0))
    more = _highest(up.mean, number, alpha) - up.mean
    less = down.mean - _lowest(down.mean, number, alpha)
    odds = _odds(up.mean, number) * _odds(down.mean, number)
    correlation = -np.minimum(1.0, np.sqrt(odds))
    reach: FloatArray = np.sqrt(more**2 + less**2 - 2 * correlation * more * less)
    return reach


def _odds(mean: FloatArray, number: FloatArray) -> FloatArray:
    """Returns the odds of a share of so many answers, which are finite also where it is 0 or 1."""
    share = (mean * number + HALF_ANSWER) / (number + 2 * HALF_ANSWER)
    return share / (1 - share)


def interval_over_tasks(means: FloatArray, low: FloatArray, high: FloatArray) -> Ends:
    """Returns both ends for the unweighted mean over tasks, whose contexts are independent, shape
    (tasks, ...)."""
    # The distances of the ends add up as errors of independent means do, by their squares.
    mean = means.mean(axis=0)
    below = np.sqrt(((means - low) ** 2).sum(axis=0)) / len(means)
    above = np.sqrt(((means - high) ** 2).sum(axis=0)) / len(means)
    return mean - below, mean + above
