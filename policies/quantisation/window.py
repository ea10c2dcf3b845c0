"""Rows are quantised once, when they leave the window of the latest tokens."""

from collections import defaultdict
from dataclasses import dataclass, field, replace

from policies.declaration.policy import HeadRows
from policies.declaration.steps import ABSENT, TENSORS, CacheRows, States
from policies.quantisation.quantisation import Format, Formats


def rows_in_codes(held: int, residual: int, over_tokens: bool) -> int:
    """Counts the rows of a head that are quantised, as in KIVI (arXiv 2402.02750, algorithm 1).

    Groups over tokens are made of whole windows: when a window is full, all of it is quantised. A row whose groups are
    its own is quantised as soon as so many newer ones are there.

    >>> [rows_in_codes(held, 4, over_tokens=True) for held in (3, 4, 7, 8)]
    [0, 4, 4, 8]
    >>> [rows_in_codes(held, 4, over_tokens=False) for held in (3, 4, 7, 8)]
    [0, 0, 3, 4]
    """
    if over_tokens and residual:
        return held - held % residual
    return max(0, held - residual)


def bytes_of(formats: Formats, residual: int, head: HeadRows) -> int:
    """Counts the bytes of keys and values of one head after the prefill: what is quantised, and the window in full."""
    total = 0
    for tensor in TENSORS["both"]:
        stored = formats.get(tensor)
        coded = rows_in_codes(head.rows, residual, stored.over_tokens) if stored else 0
        total += (head.rows - coded) * head.size * head.number_bytes
        total += stored.bytes(replace(head, rows=coded)) if stored and coded else 0
    return total


@dataclass
class QuantisedRows:
    """Quantises rows of the kept context before the question is read, and those of question and answer when they are
    old enough. A pass over several tokens reads its own rows as they are, as any attention does whose keys are written
    to a cache behind it."""

    formats: Formats
    residual: int  # tokens
    # By layer and tensor, how many rows of each head are quantised.
    _coded: dict[tuple[int, States], list[int]] = field(default_factory=dict)

    def after_prefill(self, cache: CacheRows) -> None:
        for layer in range(cache.layers):
            held = (cache.tokens(layer) != ABSENT).sum(-1).tolist()
            for tensor, stored in self.formats.items():
                self._quantise(cache, layer, tensor, stored, held)

    def after_step(self, cache: CacheRows, step: int) -> None:
        self.after_prefill(cache)

    def _quantise(self, cache: CacheRows, layer: int, tensor: States, stored: Format, held: list[int]) -> None:
        before = self._coded.get((layer, tensor), [0] * len(held))
        after = [rows_in_codes(count, self.residual, stored.over_tokens) for count in held]
        if before == after:
            return
        states = getattr(cache, tensor)(layer)
        missing = [states.shape[1] - count for count in held]  # absent rows stand in front
        places = defaultdict(list)
        for head, (absent, first, last) in enumerate(zip(missing, before, after, strict=True)):
            places[absent + first, absent + last].append(head)
        for (first, last), heads in places.items():
            if first < last:
                states[heads, first:last] = stored.encode(states[heads, first:last]).read()
        cache.write(layer, **{tensor: states})
        self._coded[layer, tensor] = after
