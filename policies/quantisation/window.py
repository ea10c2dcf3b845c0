"""Rows are quantised once, when they leave the window of the latest tokens.

Their codewords are kept where a fault is to change them as they lie in memory. Scales and zero
points stay as they are: there is one for a whole group, so an engine can afford to protect them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import zip_longest

from policies.declaration.lazy import torch
from policies.declaration.policy import HeadRows
from policies.declaration.steps import ABSENT, TENSORS, CacheRows, States
from policies.quantisation.quantisation import Codes, Format, StoredTensors
from policies.treatments.parts import Parts, chosen

NO_ANSWER = -1


def rows_in_codes(held: int, residual: int, over_tokens: bool) -> int:
    """Counts the rows of a head that are quantised, as in KIVI (arXiv 2402.02750, algorithm 1).

    Groups over tokens are made of whole windows: when a window is full, all of it is quantised. A
    row whose groups are its own is quantised as soon as so many newer ones are there.

    >>> [rows_in_codes(held, 4, over_tokens=True) for held in (3, 4, 7, 8)]
    [0, 4, 4, 8]
    >>> [rows_in_codes(held, 4, over_tokens=False) for held in (3, 4, 7, 8)]
    [0, 0, 3, 4]
    """
    if over_tokens and residual:
        return held - held % residual
    # Also groups over tokens without a window: there is no multiple to wait for.
    return max(0, held - residual)


def count_bytes(stored: StoredTensors, head: HeadRows) -> int:
    """Counts the bytes of keys and values of one head after the prefill: what is quantised, and the
    window in full."""
    total = 0
    for tensor in TENSORS["both"]:
        way = stored.get(tensor)
        coded = 0
        if way:
            coded = rows_in_codes(head.rows, way.residual, way.format.over_tokens)
        total += (head.rows - coded) * head.size * head.exact_bytes
        if way and coded:
            total += way.format.bytes(replace(head, rows=coded))
    return total


ROWS_AT_ONCE = 2**16  # of several layers: more would take as much memory as the cache itself
RowCounts = tuple[tuple[int, ...], ...]  # by answer and head


@dataclass(frozen=True)
class Block:
    """Describes rows that are quantised in one call, as many of each head."""

    stored: Format
    count: int  # of rows of each head
    # Place of the answer, head, which of the rows that the head holds is the first, and the same
    # counted from behind the last, as absent rows stand in front: int64 (heads, 4).
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

    Keys and values are int32 codewords, and 0 in rows that are not quantised. Whoever writes
    codewords changes what is read; rows that are not quantised are left out."""

    def __init__(self, cache: CacheRows, stored: StoredCodes) -> None:
        self.cache = cache
        self.stored = stored
        self.answers = cache.answers
        self.layers = cache.layers
        self.lengths = cache.lengths
        self.tokens = cache.tokens

    def keys(self, layer: int) -> "torch.Tensor":
        """Returns the codewords of the keys: int32 (answers, num_kv_heads, rows, head_dim)."""
        return self._codes(layer, "keys")

    def values(self, layer: int) -> "torch.Tensor":
        """Returns the codewords of the values: int32 (answers, num_kv_heads, rows, head_dim)."""
        return self._codes(layer, "values")

    def write(
        self,
        layer: int,
        keys: "torch.Tensor | None" = None,
        values: "torch.Tensor | None" = None,
        rows: "torch.Tensor | None" = None,
    ) -> None:
        """Writes codewords, int32 (answers, num_kv_heads, rows, head_dim). ``rows``: bool (answers,
        num_kv_heads, rows), the only ones that are written; by default all."""
        if keys is not None:
            self._recode(layer, "keys", keys, rows)
        if values is not None:
            self._recode(layer, "values", values, rows)

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
            is_written = written[place][..., None]
            # Copies of an answer share codewords until one of them is written.
            numbers = encoded.numbers.clone()
            numbers[left] = torch.where(is_written, codes[place], numbers[left])
            encoded.numbers = numbers
            states[place] = encoded.codes.decode(numbers)[left]
        self.cache.write(layer, rows=written, **{tensor: states})

    def _encoded_rows(
        self, layer: int, tensor: States
    ) -> "Iterator[tuple[Encoded, torch.Tensor, tuple[torch.Tensor, ...]]]":
        """Yields what was encoded together, which slots are of answers that are still here, and the
        answers, heads and rows where these stand now: newer rows may have come behind them."""
        tokens = self.cache.tokens(layer)
        absent = (tokens == ABSENT).sum(-1)
        places = {answer: place for place, answer in enumerate(self.cache.answers)}
        for encoded in self.stored[layer, tensor]:
            here = []
            for slot, (answer, head, first) in enumerate(encoded.slots):
                if answer in places:
                    here.append((slot, places[answer], head, first))
            if here:
                left, answers, heads, firsts = torch.tensor(here, device=tokens.device).unbind(1)
                offsets = torch.arange(encoded.numbers.shape[1], device=tokens.device)
                starts = absent[answers, heads] + firsts
                rows = starts[:, None] + offsets
                yield encoded, left, (answers[:, None], heads[:, None], rows)


@dataclass
class QuantisedRows:
    """Quantises rows of the kept context before the question is read, and those of question and
    answer when they are old enough. A pass over several tokens reads its own rows as they are, as
    any attention does whose keys are written to a cache behind it."""

    ways: Sequence[StoredTensors]  # by answer
    layers: Parts = ("all",)  # that are quantised
    # By layer and tensor, what is quantised.
    _coded: dict[tuple[int, States], RowCounts] = field(default_factory=dict)
    _stored: StoredCodes | None = None  # only where something changes codewords

    def codewords(self, cache: CacheRows) -> CacheRows:
        assert self._stored is not None, "keep_codewords comes before the prefill"
        return CodewordRows(cache, self._stored)

    def keep_codewords(self) -> None:
        self._stored = defaultdict(list)

    def after_prefill(self, cache: CacheRows) -> None:
        """Quantises the rows that leave the windows; raises what a format raises that cannot encode
        them."""
        # Most layers hold as many rows as another.
        leaving = lru_cache(partial(self._leaving, tuple(cache.answers)))
        # By tensor, blocks and device: the blocks, and the layers that quantise the same ones.
        alike: dict[tuple[States, int, str], tuple[list[Block], list[int]]] = {}
        for layer in chosen("layer", self.layers, cache.layers):
            tokens = cache.tokens(layer)
            counts = (tokens != ABSENT).sum(-1).tolist()
            # Tuples, as what leaves the windows is remembered by these counts.
            held = tuple(tuple(of_heads) for of_heads in counts)
            # For every answer that this was built for, also those that have ended.
            nothing = ((0,) * len(held[0]),) * len(self.ways)
            for tensor in self.ways[0]:
                before = self._coded.get((layer, tensor), nothing)
                blocks, self._coded[layer, tensor] = leaving(tensor, held, before)
                if blocks:
                    # By identity: the cache above gives layers that hold as many rows the same
                    # list.
                    key = (tensor, id(blocks), str(tokens.device))
                    _, layers = alike.setdefault(key, (blocks, []))
                    layers.append(layer)
        for (tensor, _, _), (blocks, layers) in alike.items():
            count = self._layers_at_once(cache.tokens(layers[0]).numel())
            for start in range(0, len(layers), count):
                self._quantise(cache, layers[start : start + count], tensor, blocks)

    def _layers_at_once(self, rows: int) -> int:
        """Counts the layers of so many rows that are encoded in one call; each alone where their
        codes are kept."""
        if self._stored is not None:
            return 1
        return max(1, ROWS_AT_ONCE // rows)

    def after_step(self, cache: CacheRows, step: int) -> None:
        self.after_prefill(cache)

    def copy_answers(self, copies: Mapping[int, int]) -> None:
        for place, before in self._coded.items():
            after = list(before)
            for copy, answer in copies.items():
                after[copy] = before[answer]
            self._coded[place] = tuple(after)
        copies_by_answer: dict[int, list[int]] = defaultdict(list)
        for copy, answer in copies.items():
            copies_by_answer[answer].append(copy)
        for stored in (self._stored or {}).values():
            for encoded in stored.copy():
                copies_of_slots = [copies_by_answer[answer] for answer, _, _ in encoded.slots]
                # Each round takes another copy of every answer, of those that have one left.
                for answers in zip_longest(*copies_of_slots, fillvalue=NO_ANSWER):
                    slots = []
                    for answer, (_, head, first) in zip(answers, encoded.slots, strict=True):
                        slots.append((answer, head, first))
                    stored.append(Encoded(slots, encoded.codes, encoded.numbers))

    def _leaving(
        self, answers: Sequence[int], tensor: States, held: RowCounts, before: RowCounts
    ) -> tuple[list[Block], RowCounts]:
        """Returns the rows that leave their windows, and how many of each answer and head are
        quantised then.

        ``held``: how many rows are there of the answers that are left. Rows that leave together, as
        many of each head and in one format, are one block."""
        after = list(before)
        together: dict[tuple[Format, int], list[tuple[int, int, int, int]]] = defaultdict(list)
        for place, answer in enumerate(answers):
            stored, residual = self.ways[answer][tensor]
            ends = []
            for head, rows in enumerate(held[place]):
                first = before[answer][head]
                end = rows_in_codes(rows, residual, stored.over_tokens)
                ends.append(end)
                if first < end:
                    slot = (place, head, first, first - rows)
                    together[stored, end - first].append(slot)
            after[answer] = tuple(ends)
        blocks = []
        for (stored, count), slots in together.items():
            blocks.append(Block(stored, count, torch.tensor(slots)))
        return blocks, tuple(after)

    def _quantise(
        self, cache: CacheRows, layers: Sequence[int], tensor: States, blocks: Sequence[Block]
    ) -> None:
        """Quantises the rows that leave the windows of some layers, which are the same in all of
        these."""
        states: list[torch.Tensor] = [getattr(cache, tensor)(layer) for layer in layers]
        device = states[0].device
        written = torch.zeros(states[0].shape[:-1], dtype=torch.bool, device=device)
        end = written.shape[2]
        for block in blocks:
            # Each (heads of the block, 1), so that with their rows they index (heads, rows,
            # head_dim).
            places, heads, _, starts = block.slots.to(device)[..., None].unbind(1)
            rows = starts + end + torch.arange(block.count, device=device)
            index = places, heads, rows
            # (layers * heads, rows, head_dim): layer behind layer, and taken apart again below.
            leaving = torch.cat([of_layer[index] for of_layer in states])
            codes = block.stored.encode(leaving)
            read = codes.read().chunk(len(layers))
            for of_layer, quantised in zip(states, read, strict=True):
                of_layer[index] = quantised
            written[index] = True
            if self._stored is not None:
                slots = []
                for place, head, first, _ in block.slots.tolist():
                    slots.append((cache.answers[place], head, first))
                self._stored[layers[0], tensor].append(Encoded(slots, codes, codes.numbers))
        for layer, of_layer in zip(layers, states, strict=True):
            cache.write(layer, rows=written, **{tensor: of_layer})
