"""Finds a small set of tokens with which an answer is right, greedily: an upper bound of the smallest set."""

from collections.abc import Callable, Generator, Sequence
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


Sets = Sequence[Sequence[int]]  # of tokens
Search = Generator[Sets, Sequence[Verdict], SmallestSet | None]
Judge = Callable[[Sequence[tuple[int, Sequence[int]]]], Sequence[Verdict]]


def smallest_sets(searches: Sequence[Sequence[int]], judge: Judge) -> list[SmallestSet | None]:
    """Searches for several sets at once, each among some tokens. ``judge`` gets sets of all searches together, each
    with the number of its search: many branches are decoded in hardly more time than one."""
    running = {number: _search(tokens) for number, tokens in enumerate(searches)}
    asked = {number: next(search) for number, search in running.items()}
    results: list[SmallestSet | None] = [None] * len(running)
    while asked:
        verdicts = iter(judge([(number, tokens) for number, sets in asked.items() for tokens in sets]))
        answers = {number: [next(verdicts) for _ in sets] for number, sets in asked.items()}
        asked = {}
        for number, of_search in answers.items():
            try:
                asked[number] = running[number].send(of_search)
            except StopIteration as end:
                results[number] = end.value
    return results


def _search(tokens: Sequence[int]) -> Search:
    """Leaves tokens out as long as the answer stays right; returns ``None`` where it is wrong with all of them. Yields
    sets that are to be judged.

    In each round it tries to leave out each part of neighbouring tokens, then the most harmless ones together: as many
    as can go. Parts are halved where none can go. At the end no single token can go: a smaller set may exist, one that
    is no subset of what is left. After A. Zeller and R. Hildebrandt, Simplifying and isolating failure-inducing input
    (2002), with the likelihood of the right answer as the order in which parts go.
    """
    left, trials = list(tokens), 1
    if not (yield [left])[0].right:
        return None
    size = max(1, -(-len(left) // PARTS))
    while True:
        parts = [left[start : start + size] for start in range(0, len(left), size)]
        verdicts = yield [_without(left, part) for part in parts]
        order = sorted(range(len(parts)), key=lambda place: verdicts[place].nats)
        harmless = [parts[place] for place in order if verdicts[place].right]
        together = list(accumulate(harmless))[1:]  # the first alone is known to be harmless
        judged = (yield [_without(left, gone) for gone in together]) if together else []
        trials += len(parts) + len(together)
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
