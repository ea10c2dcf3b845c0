"""Finds the cliff, where a rate rises fastest over the ratio. [after arXiv 2603.01426]"""

import numpy as np
from numpy.typing import NDArray

from leaderboards.statistics.bootstrap import FLAT, FloatArray


def slopes(ratios: FloatArray, rates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns the middles of neighbouring ratios, shape (levels - 1,), and how fast rates of shape (1 + resamples,
    levels) rise there: the susceptibility by finite differences."""
    return (ratios[:-1] + ratios[1:]) / 2, np.diff(rates, axis=1) / np.abs(np.diff(ratios))


def steepest(slopes: FloatArray) -> NDArray[np.intp]:
    """Returns the place of the steepest slope of each row, the first of those that differ by noise alone."""
    places: NDArray[np.intp] = np.argmax(slopes >= slopes.max(axis=1, keepdims=True) - FLAT, axis=1)
    return places
