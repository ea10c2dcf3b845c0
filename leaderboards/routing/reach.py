"""Finds routes through attention from tokens of the context to the place where the answer is
written.

Nodes are (layer, token), layer 0 before the first layer. A layer leads from (layer, key) to (layer
+ 1, query) along :class:`Edges`, and from every token to itself, its residual stream. Tokens are
numbered through: those of the context from 0 on, then those of the question and of the answer.
"Storage, accessibility, use" are told apart as in arXiv 2603.01426, which gives no algorithm.

One pass from the sink back to layer 0 answers for all tokens at once, and for every threshold of an
edge: a token is reached at each up to its width."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
EPSILON = 0.01  # of a query's attention: less is no edge
# The thresholds of a curve: that of an edge, and stricter ones.
EPSILONS = (EPSILON, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Edges:
    """Holds the pairs of one layer in which some head gives a key at least a share epsilon of a
    query's attention, each once. ``queries``, ``keys``: numbers of tokens, shape (edges,).
    ``strongest``: the largest attention of any head, shape (edges,)."""

    queries: npt.NDArray[np.int32]
    keys: npt.NDArray[np.int32]
    strongest: npt.NDArray[np.float32]

    @classmethod
    def of(
        cls, strongest: npt.NDArray[np.float32], epsilon: float = EPSILON, first_query: int = 0
    ) -> "Edges":
        """Picks the edges of a matrix of shape (queries, keys); its first row is the token
        ``first_query``."""
        queries, keys = np.nonzero(strongest >= epsilon)
        numbers = (queries + first_query).astype(np.int32)
        return cls(numbers, keys.astype(np.int32), strongest[queries, keys])


def joined(parts: Sequence[Edges]) -> Edges:
    """Puts edges of one layer together, such as those of the context and those of the question;
    queries differ."""
    return Edges(
        queries=np.concatenate([part.queries for part in parts]),
        keys=np.concatenate([part.keys for part in parts]),
        strongest=np.concatenate([part.strongest for part in parts]),
    )


def widest(layers: Sequence[Edges], tokens: int, sink: int | Sequence[int]) -> FloatArray:
    """Returns of each node the largest smallest edge of any path to the sink, a token or any of
    several, shape (layers + 1, tokens), the first row of the tokens themselves. A residual edge is
    1 wide; 0 where there is no path."""
    width = np.zeros((len(layers) + 1, tokens))
    width[-1, sink] = 1.0
    for number, edges in reversed(list(enumerate(layers))):
        # The residual edge, which is 1 wide: a token reaches what it reaches from behind the layer.
        width[number] = width[number + 1]
        through = np.minimum(edges.strongest, width[number + 1, edges.queries])
        # ``at``, since a key may have several edges in one layer, of which plain indexing keeps the
        # last.
        np.maximum.at(width[number], edges.keys, through)
    return width


def chance_of_reach(width: FloatArray, epsilons: Sequence[float] = EPSILONS) -> list[float]:
    """Returns the share of the context's tokens that reach the sink, whatever they say, for each
    epsilon: how likely a random token is to be reached. ``width``: of the context's tokens, shape
    (tokens,), as the first row of :func:`widest`."""
    return [float((width >= epsilon).mean()) for epsilon in epsilons]
