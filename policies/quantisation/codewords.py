"""Keeps the codewords of quantised rows, so that a fault can change them as they lie in memory.

Scales and zero points are kept as they are: there is one for a whole group, so an engine can afford to protect them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from policies.declaration.lazy import LazyModule
from policies.declaration.steps import ABSENT, CacheRows, States
from policies.quantisation.quantisation import Codes

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

NO_ANSWER = -1


@dataclass
class Encoded:
    """Holds rows of several heads that were encoded in one call, as many of each."""

    # Answer or ``NO_ANSWER``, head, and which of the rows that the head holds is the first.
    slots: Sequence[tuple[int, int, int]]
    codes: Codes
    numbers: "torch.Tensor"  # the codewords as they are now, int32 (slots, rows, head_dim)


@dataclass
class StoredCodes:
    """Holds the codewords of some answers, by layer and tensor."""

    encoded: dict[tuple[int, States], list[Encoded]] = field(default_factory=lambda: defaultdict(list))

    def add(self, layer: int, tensor: States, slots: Sequence[tuple[int, int, int]], codes: Codes) -> None:
        self.encoded[layer, tensor].append(Encoded(slots, codes, codes.numbers))

    def copy_answers(self, copies: Mapping[int, int]) -> None:
        of_answer: dict[int, list[int]] = defaultdict(list)
        for copy, answer in copies.items():
            of_answer[answer].append(copy)
        for encoded in self.encoded.values():
            for one in encoded.copy():
                for copied in zip_longest(*(of_answer[slot[0]] for slot in one.slots), fillvalue=NO_ANSWER):
                    slots = [(copy, *slot[1:]) for copy, slot in zip(copied, one.slots, strict=True)]
                    encoded.append(Encoded(slots, one.codes, one.numbers))


@dataclass
class CodewordRows:
    """Gives access to codewords in place of the rows of a cache, as a :class:`CacheRows`.

    Keys and values are int32 codewords, and 0 in rows that are not quantised. Whoever writes codewords changes what is
    read; rows that are not quantised are left out.
    """

    cache: CacheRows
    stored: StoredCodes
    answers: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        self.answers = self.cache.answers

    @property
    def layers(self) -> int:
        return self.cache.layers

    def lengths(self, layer: int) -> "torch.Tensor":
        return self.cache.lengths(layer)

    def tokens(self, layer: int) -> "torch.Tensor":
        return self.cache.tokens(layer)

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

    def _recode(self, layer: int, tensor: States, codes: "torch.Tensor", rows: "torch.Tensor | None") -> None:
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
        for encoded in self.stored.encoded[layer, tensor]:
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
