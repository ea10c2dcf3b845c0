"""Measures what heads look at, and whether those of a layer look at, or keep, the same tokens."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from policies.declaration.lazy import LazyModule

# Its import takes a second, and few sites need it.
inter_rater = LazyModule("statsmodels.stats.inter_rater")
FloatArray = npt.NDArray[np.float64]


def consensus(top: npt.NDArray[np.integer]) -> FloatArray:
    """Returns the distinct top-attended tokens over the heads, shape (layers,): 1 / heads where all
    agree, 1 where no two do [arXiv 2603.01426]. ``top``: shape (layers, heads), the token that each
    head attends to most."""
    # Sorted, so that each change from one head to the next is one distinct token more.
    ordered = np.sort(top, axis=1)
    changes = (np.diff(ordered, axis=1) != 0).sum(axis=1)
    shares: FloatArray = (1 + changes) / top.shape[1]
    return shares


def chance_of_consensus(heads: int, tokens: FloatArray) -> FloatArray:
    """Returns the expected consensus of heads that look at one of ``tokens`` tokens at random, each
    for itself. ``tokens``: of any shape, which the result has too."""
    missed = (1 - 1 / tokens) ** heads  # how likely no head looks at a token
    seen: FloatArray = tokens * (1 - missed)
    return seen / heads


def agreement(top: npt.NDArray[np.integer]) -> FloatArray:
    """Returns the largest share of heads that look at one token, shape (layers,): 1 where all
    agree, at least 1 / heads. ``top``: shape (layers, heads), as for :func:`consensus`, of which it
    is the other end."""
    shares = []
    for layer in top:
        _, counts = np.unique(layer, return_counts=True)
        shares.append(counts.max() / len(layer))
    return np.array(shares)


def jaccard(keep: npt.NDArray[np.bool_]) -> FloatArray:
    """Returns the tokens that both of two heads keep over those that either keeps, mean over pairs,
    shape (layers,): NaN for a single head, 1 of two that keep nothing. ``keep``: shape
    (layers, heads, tokens)."""
    sets = keep.astype(np.float64)
    # A product of rows of 0 and 1 counts the tokens that both heads keep.
    both = sets @ sets.transpose(0, 2, 1)
    sizes = sets.sum(axis=2)
    either = sizes[:, :, None] + sizes[:, None] - both
    ratio = np.divide(both, either, out=np.ones_like(both), where=either > 0)
    first, second = np.triu_indices(keep.shape[1], k=1)
    if not len(first):
        return np.full(len(keep), np.nan)
    means: FloatArray = ratio[:, first, second].mean(axis=1)
    return means


def kappa(keep: npt.NDArray[np.bool_]) -> FloatArray:
    """Returns Fleiss' kappa of the heads of each layer, that "rate" each token as kept or not,
    shape (layers,): 1 where all heads keep the same, 0 at chance, NaN where all is kept or nothing.
    ``keep``: shape (layers, heads, tokens). [J. L. Fleiss, Psychological Bulletin 76 (1971)
    378-382]"""
    heads = keep.shape[1]
    kept = keep.sum(axis=1)
    values = np.full(len(keep), np.nan)
    for layer, ratings in enumerate(kept):
        keeps_all_or_nothing = (ratings == heads).all() or not ratings.any()
        if heads > 1 and not keeps_all_or_nothing:
            table = np.stack([ratings, heads - ratings], axis=1)  # shape (tokens, 2)
            values[layer] = inter_rater.fleiss_kappa(table)
    return values


def slope(by_layer: FloatArray) -> float:
    """Returns how much the mean of the late half of the layers is above that of the early half, NaN
    of one layer; an odd middle layer is in neither. Chance: 0. Claim R6 is about its sign.
    ``by_layer``: shape (layers,)."""
    half = len(by_layer) // 2
    if not half:
        return float("nan")
    late, early = by_layer[-half:].mean(), by_layer[:half].mean()
    return float(late - early)


def reads_span(top: npt.NDArray[np.integer], span: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Tells which heads have their top token in a span, shape (layers, heads): where it is the
    answer's, heads that do so in most questions retrieve [the copy-paste criterion of W. Wu et al.,
    arXiv 2404.15574, for one place]. Chance: the span's share of all tokens. ``top``: shape
    (layers, heads), as for :func:`consensus`."""
    return np.isin(top, list(span))
