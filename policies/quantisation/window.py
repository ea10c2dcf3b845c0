"""Rows are quantised once, when they leave the window of the latest tokens.

Their codewords are kept where a fault is to change them as they lie in memory. Scales and zero points stay as they are:
there is one for a whole group, so an engine can afford to protect them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import zip_longest

from policies.declaration.lazy import torch
from policies.declaration.policy import HeadRows
from policies.declaration.steps import ABSENT, TENSORS, CacheRows, States
from policies.quantisation.quantisation import Codes, Format, Formats

NO_ANSWER = -1


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


ROWS_AT_ONCE = 2**16  # of several layers: more would take as much memory as the cache itself
RowCounts = tuple[tuple[int, ...], ...]  # by answer and head


@dataclass(frozen=True)
class Block:
    """Describes rows that are quantised in one call, as many of each head."""

    stored: Format
    count: int  # of rows of each head
    # Place of the answer, head, which of the rows that the head holds is the first, and the same counted from behind
    # the last, as absent rows stand in front: int64 (heads, 4).
    slots: "torch.Tensor"


@dataclass
class Encoded:
    """Holds rows of several heads that were encoded in one call, as many of each."""

    # Answer or ``NO_ANSWER``, head, and which of the rows that the head holds is the first.
    slots: Sequence[tuple[int, int, int]]
    codes: Codes
    numbers: "torch.Tensor"  # the codewords as they are now, int32 (slots, rows, head_dim)


StoredCodes = dict[tuple[int, States], list[Encoded]]  # of some answers, by layer and tensor


class CodewordRows:
    """Gives access to codewords in place of the rows of a cache, as a :class:`CacheRows`.

    Keys and values are int32 codewords, and 0 in rows that are not quantised. Whoever writes codewords changes what is
    read; rows that are not quantised are left out.
    """

    def __init__(self, cache: CacheRows, stored: StoredCodes) -> None:
        self.cache, self.stored = cache, stored
        self.answers, self.layers = cache.answers, cache.layers
        self.lengths, self.tokens = cache.lengths, cache.tokens

    def keys(self, layer: int) -> "torch.Tensor":
        return self._codes(layer, "keys")

    def values(self, layer: int) -> "torch.Tensor":
        return self._codes(layer, "values")

    def write(
        self,
        layer: int,
        keys: "torch.Tensor | None" = None,
        values: "torch.Tensor | None" = None,
        rows: "torch.Tensor | None" = None,
    ) -> None:
        given: dict[States, torch.Tensor | None] = {"keys": keys, "values": values}
        for tensor, codes in given.items():
            if codes is not None:
                self._recode(layer, tensor, codes, rows)

    def _codes(self, layer: int, tensor: States) -> "torch.Tensor":
        states: torch.Tensor = getattr(self.cache, tensor)(layer)
        codes = torch.zeros_like(states, dtype=torch.int32)
        for encoded, left, place in self._encoded_rows(layer, tensor):
            codes[place] = encoded.numbers[left]
        return codes

    def _recode(
        self, layer: int, tensor: States, codes: "torch.Tensor", rows: "torch.Tensor | None"
    ) -> None:
        states: torch.Tensor = getattr(self.cache, tensor)(layer)
        written = torch.zeros(states.shape[:-1], dtype=torch.bool, device=states.device)
        for encoded, left, place in self._encoded_rows(layer, tensor):
            written[place] = True if rows is None else rows[place]
            numbers = encoded.numbers.clone()
            numbers[left] = torch.where(written[place][..., None], codes[place], numbers[left])
            encoded.numbers = numbers
            states[place] = encoded.codes.decode(numbers)[left]
        self.cache.write(layer, rows=written, **{tensor: states})

    def _encoded_rows(
        self, layer: int, tensor: States
    ) -> "Iterator[tuple[Encoded, torch.Tensor, tuple[torch.Tensor, ...]]]":
        """Yields what was encoded together, which slots are of answers that are still here, and the answers, heads and
        rows where these stand now: newer rows may have come behind them."""
        tokens = self.cache.tokens(layer)
        absent = (tokens == ABSENT).sum(-1)
        places = {answer: place for place, answer in enumerate(self.cache.answers)}
        for encoded in self.stored[layer, tensor]:
            here = [
                (slot, places[answer], *others)
                for slot, (answer, *others) in enumerate(encoded.slots)
                if answer in places
            ]
            if here:
                left, answers, heads, firsts = torch.tensor(here, device=tokens.device).unbind(1)
                count = torch.arange(encoded.numbers.shape[1], device=tokens.device)
                rows = (absent[answers, heads] + firsts)[:, None] + count
                yield encoded, left, (answers[:, None], heads[:, None], rows)


@dataclass
class QuantisedRows:
    """Quantises rows of the kept context before the question is read, and those of question and answer when they are
    old enough. A pass over several tokens reads its own rows as they are, as any attention does whose keys are written
    to a cache behind it."""

    ways: Sequence[tuple[Formats, int]]  # by answer: formats, and the tokens of its window
    _coded: dict[tuple[int, States], RowCounts] = field(
        default_factory=dict
    )  # by layer and tensor, what is quantised
    _stored: StoredCodes | None = None  # only where something changes codewords

    def codewords(self, cache: CacheRows) -> CacheRows:
        assert self._stored is not None, "keep_codewords comes before the prefill"
        return CodewordRows(cache, self._stored)

    def keep_codewords(self) -> None:
        self._stored = defaultdict(list)

    def after_prefill(self, cache: CacheRows) -> None:
        leaving = lru_cache(
            partial(self._leaving, tuple(cache.answers))
        )  # most layers hold as many rows as another
        alike: dict[tuple[States, int, str], tuple[list[Block], list[int]]] = {}
        for layer in range(cache.layers):
            tokens = cache.tokens(layer)
            held = tuple(map(tuple, (tokens != ABSENT).sum(-1).tolist()))
            for tensor in self.ways[0][0]:
                before = self._coded.get((layer, tensor), ((0,) * len(held[0]),) * len(self.ways))
                blocks, self._coded[layer, tensor] = leaving(tensor, held, before)
                if blocks:
                    alike.setdefault((tensor, id(blocks), str(tokens.device)), (blocks, []))[
                        1
                    ].append(layer)
        for (tensor, _, _), (blocks, layers) in alike.items():
            count = (
                1
                if self._stored is not None
                else max(1, ROWS_AT_ONCE // cache.tokens(layers[0]).numel())
            )
            for start in range(0, len(layers), count):
                self._quantise(cache, layers[start : start + count], tensor, blocks)

    def after_step(self, cache: CacheRows, step: int) -> None:
        self.after_prefill(cache)

    def copy_answers(self, copies: Mapping[int, int]) -> None:
        for place, before in self._coded.items():
            after = list(before)
            for copy, answer in copies.items():
                after[copy] = before[answer]
            self._coded[place] = tuple(after)
        of_answer: dict[int, list[int]] = defaultdict(list)
        for copy, answer in copies.items():
            of_answer[answer].append(copy)
        for encoded in (self._stored or {}).values():
            for one in encoded.copy():
                for copied in zip_longest(
                    *(of_answer[slot[0]] for slot in one.slots), fillvalue=NO_ANSWER
                ):
                    slots = [
                        (copy, *slot[1:]) for copy, slot in zip(copied, one.slots, strict=True)
                    ]
                    encoded.append(Encoded(slots, one.codes, one.numbers))

    def _leaving(
        self, answers: Sequence[int], tensor: States, held: RowCounts, before: RowCounts
    ) -> tuple[list[Block], RowCounts]:
        """Returns the rows that leave their windows, and how many of each answer and head are quantised then.

        ``held``: how many rows are there of the answers that are left. Rows that leave together, as many of each head
        and in one format, are one block.
        """
        after = list(before)
        together: dict[tuple[Format, int], list[tuple[int, int, int, int]]] = defaultdict(list)
        for place, answer in enumerate(answers):
            formats, residual = self.ways[answer]
            stored, rows = formats[tensor], held[place]
            after[answer] = tuple(
                rows_in_codes(count, residual, stored.over_tokens) for count in rows
            )
            for head, (first, end) in enumerate(zip(before[answer], after[answer], strict=True)):
                if first < end:
                    together[stored, end - first].append((place, head, first, first - rows[head]))
        blocks = [
            Block(stored, count, torch.tensor(slots)) for (stored, count), slots in together.items()
        ]
        return blocks, tuple(after)

    def _quantise(
        self, cache: CacheRows, layers: Sequence[int], tensor: States, blocks: Sequence[Block]
    ) -> None:
        """Quantises the rows that leave the windows of some layers, which are the same in all of these."""
        states: list[torch.Tensor] = [getattr(cache, tensor)(layer) for layer in layers]
        written = torch.zeros(states[0].shape[:-1], dtype=torch.bool, device=states[0].device)
        for block in blocks:
            places, heads, _, starts = block.slots.to(written.device)[..., None].unbind(1)
            index = (
                places,
                heads,
                starts + written.shape[2] + torch.arange(block.count, device=written.device),
            )
            codes = block.stored.encode(torch.cat([of_layer[index] for of_layer in states]))
            for of_layer, rows in zip(states, codes.read().chunk(len(layers)), strict=True):
                of_layer[index] = rows
            written[index] = True
            if self._stored is not None:
                slots = [
                    (cache.answers[place], head, first)
                    for place, head, first, _ in block.slots.tolist()
                ]
                self._stored[layers[0], tensor].append(Encoded(slots, codes, codes.numbers))
        for layer, of_layer in zip(layers, states, strict=True):
            cache.write(layer, rows=written, **{tensor: of_layer})
