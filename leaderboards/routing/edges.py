"""The edges of a graph of attention: which tokens a layer carries information from, and to which.

Nodes are (layer, token). Tokens are numbered through: those of the context, from 0 on, and behind them those of the
question and of the answer. A layer leads from (layer, key) to (layer + 1, query).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

EPSILON = 0.01  # of a query's attention: less is no edge


@dataclass(frozen=True)
class Edges:
    """Holds the pairs of one layer in which some head gives a key at least a share epsilon of a query's attention.

    ``queries``, ``keys``: int (edges,), numbers of tokens. ``strongest``: float (edges,), the largest attention of any
    head of the layer. A pair is there once.
    """

    queries: npt.NDArray[np.int32]
    keys: npt.NDArray[np.int32]
    strongest: npt.NDArray[np.float32]

    @classmethod
    def of(
        cls,
        strongest: npt.NDArray[np.float32],
        epsilon: float = EPSILON,
        first_query: int = 0,
    ) -> "Edges":
        """Picks the edges of a matrix of shape (queries, keys); its first row is the token ``first_query``."""
        queries, keys = np.nonzero(strongest >= epsilon)
        numbers = (queries + first_query).astype(np.int32), keys.astype(np.int32)
        return cls(*numbers, strongest[queries, keys])


def joined(parts: Sequence[Edges]) -> Edges:
    """Puts edges of one layer together, such as those of the context and those of the question; queries differ."""
    names = ("queries", "keys", "strongest")
    return Edges(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
