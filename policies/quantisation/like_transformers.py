"""Quantises when transformers' ``QuantizedCache`` does, to be compared with it.

Read in transformers 5.2 (``cache_utils.py: QuantizedLayer.update``). The same as in KIVI's way
(``window.py``): the first pass reads exact rows, and any later one reads quantised rows of the
context behind exact ones of a window. Not the same: the whole first pass is quantised, with nothing
left in the window; the window then fills, and when it is full *all* rows are quantised again from
what they had become, old groups with new borders; and groups run through all heads of a layer, as
if these were one long row."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policies.declaration.lazy import torch
from policies.declaration.names import PolicyError
from policies.declaration.policy import HeadRows
from policies.declaration.steps import ABSENT, CacheRows
from policies.quantisation.formats import IntegerFormat
from policies.quantisation.quantisation import Codes, StoredTensors


@dataclass(frozen=True)
class FlatFormat:
    """Encodes the rows of all heads as one, in groups that divide them."""

    inner: IntegerFormat
    over_tokens: bool = False

    def encode(self, states: "torch.Tensor") -> Codes:
        """Encodes the rows of each answer, of all its heads, shape (answers, rows, head_dim).
        Raises :class:`PolicyError` where quanto refuses: groups that do not divide."""
        answers, rows, size = states.shape
        by_channel = self.inner.axis == "channel"
        length = rows if by_channel else rows * size
        if length % self.inner.group:
            raise PolicyError(
                f"groups of {self.inner.group} do not divide {length} numbers, as "
                f"like=transformers asks"
            )
        # By token, groups run over all numbers as if they were one row; by channel, over the rows
        # of all heads.
        return self.inner.encode(states if by_channel else states.reshape(answers, 1, length))

    def bytes(self, head: HeadRows) -> int:
        """Counts the share of one head; groups that reach over two heads count for both in part."""
        groups = head.rows * head.size / self.inner.group
        return self.inner.code_bytes(head) + round(2 * groups * head.exact_bytes)


@dataclass
class QuantisedAsInTransformers:
    """Follows ``QuantizedLayer.update`` call by call."""

    # By answer; the tokens at which its window is full are those that are not quantised yet.
    ways: Sequence[StoredTensors]
    # By answer, that the cache had after the last pass.
    _rows: dict[int, int] = field(default_factory=dict)
    # By answer, rows that are not quantised; None where all are.
    _window: dict[int, int | None] = field(default_factory=dict)

    def after_prefill(self, cache: CacheRows) -> None:
        """Quantises all rows; raises :class:`PolicyError` for those that :class:`FlatFormat`
        refuses."""
        lengths = cache.lengths(0).tolist()
        for answer, rows in zip(cache.answers, lengths, strict=True):
            self._rows[answer] = rows
            self._window[answer] = None
        self._quantise(cache, list(cache.answers))

    def after_step(self, cache: CacheRows, step: int) -> None:
        """Quantises all rows of the answers whose window is full; raises as
        :meth:`after_prefill` does."""
        full = []
        lengths = cache.lengths(0).tolist()
        for answer, rows in zip(cache.answers, lengths, strict=True):
            longest = self.ways[answer]["keys"].residual
            window = self._window[answer]
            # The condition of transformers. A window that was just emptied has one dimension there
            # and is never taken to be full, however short it may be: that is None.
            if window is not None and window + 1 >= longest:
                full.append(answer)
                self._window[answer] = None
            else:
                new_rows = rows - self._rows[answer]
                self._window[answer] = (window or 0) + new_rows
            self._rows[answer] = rows
        if full:
            self._quantise(cache, full)

    def copy_answers(self, copies: Mapping[int, int]) -> None:
        for copy, answer in copies.items():
            self._rows[copy] = self._rows[answer]
            self._window[copy] = self._window[answer]

    def _quantise(self, cache: CacheRows, answers: Sequence[int]) -> None:
        """Quantises all rows of some answers; those of answers that hold as many are encoded in one
        call."""
        tensors = self.ways[0]
        for layer in range(cache.layers):
            present = cache.tokens(layer) != ABSENT
            counts = present.sum((1, 2)).tolist()
            alike: dict[int, list[int]] = defaultdict(list)
            for place, answer in enumerate(cache.answers):
                if answer in answers:
                    alike[counts[place]].append(place)
            for tensor, stored in tensors.items():
                states = getattr(cache, tensor)(layer)
                for count, places in alike.items():
                    chosen = torch.zeros_like(present)
                    chosen[places] = present[places]
                    # A mask takes rows answer by answer, so that all rows of one, over its heads,
                    # lie together.
                    rows = states[chosen].view(len(places), count, -1)
                    quantised = stored.format.encode(rows).read()
                    states[chosen] = quantised.view(len(places) * count, -1)
                cache.write(layer, **{tensor: states})
