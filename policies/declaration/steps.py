"""Declares treatments that act on the rows of a branch after its press: when they are called, and
what they may do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from policies.declaration.lazy import torch

# Instead of a token's position: a head that keeps fewer tokens than another has no row there.
ABSENT = -1
# A row that is no single token of the context as it was: it is merged, turned or rewritten.
UNKNOWN = -2
States = Literal["keys", "values"]
# In options.
TENSORS: Mapping[str, tuple[States, ...]] = {
    "K": ("keys",),
    "V": ("values",),
    "both": ("keys", "values"),
}


class CacheRows(Protocol):
    """The rows of keys and values that some answers of one policy read, in every layer.

    Rows of an answer come in one order in every step: kept context, question, answer so far; what
    is new stands at the end. All answers have as many rows: where one reads fewer than another, or
    a head keeps fewer, the first are absent."""

    # Which of the answers that the treatment was built for are here: fewer and fewer, as answers
    # end.
    answers: Sequence[int]

    @property
    def layers(self) -> int:
        """Counts the layers."""

    def lengths(self, layer: int) -> "torch.Tensor":
        """Counts the rows of each answer, those that are absent in some head alone among them:
        int64 (answers,)."""

    def tokens(self, layer: int) -> "torch.Tensor":
        """Returns the position of each row's token, ``ABSENT`` or ``UNKNOWN``: int64 (answers,
        num_kv_heads, rows)."""

    def keys(self, layer: int) -> "torch.Tensor":
        """Returns a copy, shape (answers, num_kv_heads, rows, head_dim); what stands in absent rows
        means nothing."""

    def values(self, layer: int) -> "torch.Tensor":
        """Returns a copy, shape (answers, num_kv_heads, rows, head_dim); what stands in absent rows
        means nothing."""

    def write(
        self,
        layer: int,
        keys: "torch.Tensor | None" = None,
        values: "torch.Tensor | None" = None,
        rows: "torch.Tensor | None" = None,
    ) -> None:
        """Puts these, of the shape in which they are read, into the cache; absent rows are left
        out. ``rows``: bool (answers, num_kv_heads, rows), the only ones that are written; by
        default all."""


@dataclass(frozen=True)
class NewRows:
    """Holds the keys or the values that the model computed for new tokens of some answers, before
    they are written."""

    layer: int
    layers: int  # that the model has
    tensor: States
    answers: Sequence[int]  # which of those that the treatment was built for
    states: "torch.Tensor"  # shape (answers, num_kv_heads, tokens, head_dim)
    positions: "torch.Tensor"  # of the tokens, int64 (answers, tokens)
    end: int  # a position behind all of them


class WriteTreatment(Protocol):
    """Changes rows once, as the model writes them into the cache, so that whoever reads them reads
    them changed.

    What it makes of a row may depend on layer, head, position and the situation of its branch, and
    not on what else is written at the same time: a question is read beside others or alone."""

    def on_write(self, new: NewRows) -> "torch.Tensor":
        """Returns what is written instead of the states, of the same shape and type."""


class PrefillTreatment(Protocol):
    """Acts once on the kept context of branches of one policy, in the same way for all questions of
    a branch.

    What it does to a branch may depend on layer, head and token, and on its situation, and not on
    what else is decoded at the same time."""

    def after_prefill(self, cache: CacheRows) -> None:
        """Is called before any question is read."""


@runtime_checkable
class StepTreatment(PrefillTreatment, Protocol):
    """Acts on the caches of some answers of one policy while these are written.

    A fresh one is built for each group of answers that are decoded together, with a situation for
    each. It acts on the kept context of a branch once for all of its questions. What it does to an
    answer later may depend on its question and the step too."""

    def after_step(self, cache: CacheRows, step: int) -> None:
        """Is called when the questions have been read (step 0), and after each token of an answer
        that another one follows. Nobody reads the cache after the last one."""

    def copy_answers(self, copies: Mapping[int, int]) -> None:
        """Is called after the prefill and after step 0: so far an answer and its copies are one,
        and from now on they are several. ``copies``: by copy, the answer that it is made of. What
        is remembered of the answer holds for its copies too."""
