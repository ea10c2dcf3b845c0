"""Finds a small set of tokens with which an answer is right, greedily: an upper bound of the smallest set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

PARTS = 8  # into which the tokens are divided at first


@dataclass(frozen=True)
class Verdict:
    """Says how an answer comes out with some tokens: whether it is right, and how unlikely the right one is."""

    right: bool
    nats: float


@dataclass(frozen=True)
class SmallestSet:
    """Holds the tokens that are left, in order, and how many sets were tried to find them."""

    tokens: tuple[int, ...]
    trials: int


Judge = Callable[[Sequence[Sequence[int]]], Sequence[Verdict]]  # of several sets of tokens at once


def smallest_set(tokens: Sequence[int], judge: Judge) -> SmallestSet | None:
    """Leaves tokens out as long as the answer stays right; ``None`` where it is wrong with all of them.

    In each round it tries to leave out each part of neighbouring tokens, then the most harmless ones together: as many
    as can go. Parts are halved where none can go. At the end no single token can go: a smaller set may exist, one that
    is no subset of what is left. After A. Zeller and R. Hildebrandt, Simplifying and isolating failure-inducing input
    (2002), with the likelihood of the right answer as the order in which parts go.
    """
    left, trials = list(tokens), 1
    if not judge([left])[0].right:
        return None
    size = max(1, -(-len(left) // PARTS))
    while True:
        parts = [left[start : start + size] for start in range(0, len(left), size)]
        verdicts = judge([_without(left, part) for part in parts])
        order = sorted(range(len(parts)), key=lambda place: verdicts[place].nats)
        harmless = [parts[place] for place in order if verdicts[place].right]
        trials += len(parts)
        together = list(accumulate(harmless))[1:]  # the first alone is known to be harmless
        judged = judge([_without(left, gone) for gone in together]) if together else []
        trials += len(together)
        going = next((gone for gone, one in reversed([*zip(together, judged, strict=True)]) if one.right), None)
        if harmless:
            left = _without(left, going if going is not None else harmless[0])
        elif size == 1:
            return SmallestSet(tuple(left), trials)
        else:
            size = -(-size // 2)


def _without(tokens: Sequence[int], gone: Sequence[int]) -> list[int]:
    missing = set(gone)
    return [token for token in tokens if token not in missing]
