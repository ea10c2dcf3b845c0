"""Quantises when transformers' ``QuantizedCache`` does, to be compared with it.

Read in transformers 5.2 (``cache_utils.py: QuantizedLayer.update``). The same as in KIVI's way (``window.py``): the
first pass reads exact rows, and any later one reads quantised rows of the context behind exact ones of a window. Not
the same: the whole first pass is quantised, with nothing left in the window; the window then fills, and when it is full
*all* rows are quantised again from what they had become, old groups with new borders; and groups run through all heads
of a layer, as if these were one long row.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.declaration.errors import PolicyError
from policies.declaration.policy import HeadRows
from policies.declaration.steps import ABSENT, CacheRows
from policies.quantisation.groups import IntegerFormat
from policies.quantisation.quantisation import Codes, Formats

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class FlatFormat:
    """Encodes the rows of all heads as one, in groups that divide them."""

    inner: IntegerFormat
    over_tokens: bool = False

    def encode(self, states: "torch.Tensor") -> Codes:
        """Raises :class:`PolicyError` where quanto refuses: groups that do not divide."""
        rows, size = states.flatten(0, -2).shape
        by_channel = self.inner.axis == "channel"
        length = rows if by_channel else rows * size
        if length % self.inner.group:
            raise PolicyError(f"groups of {self.inner.group} do not divide {length} numbers, as like=transformers asks")
        return self.inner.encode(states.reshape((1, rows, size) if by_channel else (1, 1, rows * size)))

    def bytes(self, head: HeadRows) -> int:
        """Counts the share of one head; groups that reach over two heads count for both in part."""
        groups = head.rows * head.size / self.inner.group
        return self.inner.code_bytes(head) + round(2 * groups * head.number_bytes)


@dataclass
class QuantisedAsInTransformers:
    """Follows ``QuantizedLayer.update`` call by call."""

    formats: Formats
    residual: int  # tokens at which the window is full
    _rows: int = 0  # that the cache had after the last pass
    _window: int | None = None  # rows that are not quantised; None where all are

    def after_prefill(self, cache: CacheRows) -> None:
        self._rows = cache.tokens(0).shape[1]
        self._quantise(cache)

    def after_step(self, cache: CacheRows, step: int) -> None:
        rows = cache.tokens(0).shape[1]
        if self._window is not None and self._window + 1 >= self.residual:
            self._quantise(cache)
            self._window = None
        else:
            self._window = (self._window or 0) + rows - self._rows
        self._rows = rows

    def _quantise(self, cache: CacheRows) -> None:
        for layer in range(cache.layers):
            present = cache.tokens(layer) != ABSENT
            for tensor, stored in self.formats.items():
                states = getattr(cache, tensor)(layer)
                states[present] = stored.encode(states[present][None]).read().view(-1, states.shape[-1])
                cache.write(layer, **{tensor: states})
