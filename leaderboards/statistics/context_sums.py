"""Adds up what the answers about each context have of a measure.

Questions about one context are not independent, so contexts are the units of every interval and of
every test. Whatever is computed over contexts begins with these sums: the cells of a summary, the
profiles of a board, the comparison of two policies, the evidence of claims, the estimates of
studies."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ContextSums:
    """Holds the sums of a measure over the answers of each context, both of shape (...,
    contexts)."""

    sums: FloatArray  # of the values
    counts: FloatArray  # of the answers, or of their weights where the measure has some

    @property
    def contexts(self) -> int:
        """Counts the contexts."""
        return int(self.counts.shape[-1])

    @property
    def values(self) -> FloatArray:
        """Returns a value for each context, as :func:`context_values` does, of the shape of the
        sums."""
        return context_values(self.sums, self.counts)

    def stacked(self) -> FloatArray:
        """Returns the sums above the counts, shape (..., 2, contexts)."""
        return np.stack([self.sums, self.counts], axis=-2)


def sum_by_context(
    values: FloatArray,
    contexts: NDArray[np.intp],
    count: int,
    weights: FloatArray | None = None,
) -> ContextSums:
    """Adds up the values of each context, and their weights, which are 1 by default. A context
    without an answer has 0 of both; a NaN makes the sum of its context NaN.

    ``values``: of each answer, shape (..., answers). ``contexts``: the number of each answer's
    context, below ``count``, shape (answers,). ``weights``: shape (..., answers), as the values."""
    if weights is None:
        weights = np.ones(values.shape)
    return ContextSums(_add_up(values, contexts, count), _add_up(weights, contexts, count))


def sum_values_present(
    values: FloatArray,
    contexts: NDArray[np.str_] | NDArray[np.intp],
    weights: FloatArray | None = None,
) -> ContextSums:
    """Adds up the same of the answers that have a value, over the contexts that have any such
    answer, in the order of their names. All three have the shape (answers,)."""
    has_value = ~np.isnan(values)
    # As bytes, since the cache of :func:`_number_contexts` cannot hash an array.
    names = contexts[has_value]
    count, numbers = _number_contexts(names.dtype.str, names.tobytes())
    if weights is not None:
        weights = weights[has_value]
    return sum_by_context(values[has_value], numbers, count, weights)


def context_values(sums: FloatArray, counts: FloatArray) -> FloatArray:
    """Returns a value for each context whose mean is the mean over all answers, and whose spread is
    that of the mean: to first order a share moves with a context by what its sum is beyond the
    share of its count. Where contexts have as many answers each, it is their mean. [W. G. Cochran,
    Sampling Techniques (1977), section 6.4]

    ``sums``, ``counts``: of the answers of each context, shape (..., contexts)."""
    share = sums.sum(axis=-1, keepdims=True) / counts.sum(axis=-1, keepdims=True)
    values: FloatArray = share + (sums - share * counts) / counts.mean(axis=-1, keepdims=True)
    return values


def _add_up(numbers: FloatArray, contexts: NDArray[np.intp], count: int) -> FloatArray:
    """Adds up the numbers of each context one after the other, shape (..., contexts)."""
    if numbers.ndim == 1:
        return np.bincount(contexts, numbers, count).astype(np.float64)
    # np.bincount takes weights of one dimension alone.
    totals = np.empty((*numbers.shape[:-1], count))
    for place in np.ndindex(numbers.shape[:-1]):
        totals[place] = np.bincount(contexts, numbers[place], count)
    return totals


# The measures of a cell, and the cells of a task, are about the same contexts.
@lru_cache(maxsize=256)
def _number_contexts(kind: str, names: bytes) -> tuple[int, NDArray[np.intp]]:
    """Returns how many contexts an array of names of dtype ``kind``, given as bytes, has, and the
    number of each."""
    distinct, numbers = np.unique(np.frombuffer(names, dtype=kind), return_inverse=True)
    return len(distinct), numbers
