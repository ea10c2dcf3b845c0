"""Declares treatments that act on the rows of a branch after its press: when they are called, and what they may do."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import torch  # for annotations alone: a list of policies needs no torch

ABSENT = -1  # instead of a token's position: a head that keeps fewer tokens than another has no row there
UNKNOWN = -2  # a row that is no single token of the context as it was: it is merged, turned or rewritten
States = Literal["keys", "values"]
TENSORS: Mapping[str, tuple[States, ...]] = {"K": ("keys",), "V": ("values",), "both": ("keys", "values")}  # in options


class CacheRows(Protocol):
    """The rows of keys and values that the answer to one question reads, in every layer.

    Rows come in one order in every step: kept context, question, answer so far; what is new stands at the end. All
    heads of a layer have as many rows, and some of a head may be absent.
    """

    @property
    def layers(self) -> int:
        """Counts the layers."""

    def tokens(self, layer: int) -> "torch.Tensor":
        """Returns the position of each row's token, ``ABSENT`` or ``UNKNOWN``: int64 (num_kv_heads, rows)."""

    def keys(self, layer: int) -> "torch.Tensor":
        """Returns a copy, shape (num_kv_heads, rows, head_dim); what stands in absent rows means nothing."""

    def values(self, layer: int) -> "torch.Tensor":
        """Returns a copy, shape (num_kv_heads, rows, head_dim); what stands in absent rows means nothing."""

    def write(self, layer: int, keys: "torch.Tensor | None" = None, values: "torch.Tensor | None" = None) -> None:
        """Puts these, of the shape in which they are read, into the cache; absent rows stay as they are."""


class PrefillTreatment(Protocol):
    """Acts once on the kept context of a branch, in the same way for all of its questions.

    What it does may depend on layer, head and token, and on what it was built for, and not on what else is decoded at
    the same time.
    """

    def after_prefill(self, cache: CacheRows) -> None:
        """Is called before any question is read."""


class StepTreatment(PrefillTreatment, Protocol):
    """Acts on the cache of one branch while the answer to one of its questions is written.

    A fresh one is built for each answer, and what it does may depend on the step too.
    """

    def after_step(self, cache: CacheRows, step: int) -> None:
        """Is called when the question has been read (step 0), and when each token of the answer but the last has
        been."""
