"""Rows are quantised once, when they leave the window of the latest tokens."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from policies.declaration.lazy import LazyModule
from policies.declaration.policy import HeadRows
from policies.declaration.steps import ABSENT, TENSORS, CacheRows, States
from policies.quantisation.codewords import CodewordRows, StoredCodes
from policies.quantisation.quantisation import Format, Formats

torch = LazyModule("torch")


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

    ways: Sequence[tuple[Formats, int]]  # by answer: formats, and the tokens of its window
    # By layer, tensor, answer and head, how many rows are quantised.
    _coded: dict[tuple[int, States, int, int], int] = field(default_factory=dict)
    _stored: StoredCodes | None = None  # only where something changes codewords

    def codewords(self, cache: CacheRows) -> CacheRows:
        assert self._stored is not None, "keep_codewords comes before the prefill"
        return CodewordRows(cache, self._stored)

    def keep_codewords(self) -> None:
        self._stored = StoredCodes()

    def after_prefill(self, cache: CacheRows) -> None:
        for layer in range(cache.layers):
            held = (cache.tokens(layer) != ABSENT).sum(-1).tolist()
            for tensor in self.ways[0][0]:
                self._quantise(cache, layer, tensor, held)

    def after_step(self, cache: CacheRows, step: int) -> None:
        self.after_prefill(cache)

    def _quantise(self, cache: CacheRows, layer: int, tensor: States, held: list[list[int]]) -> None:
        """Quantises the rows that have left their windows. ``held``: by answer and head, how many rows are there. Those
        that leave together, as many of each head and in one format, are encoded in one call."""
        together: dict[tuple[Format, int], list[tuple[int, int, int]]] = defaultdict(list)
        for place, answer in enumerate(cache.answers):
            formats, residual = self.ways[answer]
            for head, count in enumerate(held[place]):
                before = self._coded.get((layer, tensor, answer, head), 0)
                after = rows_in_codes(count, residual, formats[tensor].over_tokens)
                self._coded[layer, tensor, answer, head] = after
                if before < after:
                    together[formats[tensor], after - before].append((place, head, before - count))
        if not together:
            return
        states = getattr(cache, tensor)(layer)
        written = torch.zeros(states.shape[:-1], dtype=torch.bool, device=states.device)
        for (stored, count), slots in together.items():
            answers, heads, starts = torch.tensor(slots, device=states.device)[..., None].unbind(1)
            rows = starts + states.shape[2] + torch.arange(count, device=states.device)  # absent rows stand in front
            codes = stored.encode(states[answers, heads, rows])
            states[answers, heads, rows] = codes.read()
            written[answers, heads, rows] = True
            if self._stored:
                first = [(cache.answers[place], head, held[place][head] + start) for place, head, start in slots]
                self._stored.add(layer, tensor, first, codes)
        cache.write(layer, rows=written, **{tensor: states})
