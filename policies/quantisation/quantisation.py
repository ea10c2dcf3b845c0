"""A quantisation stores rows of the cache in fewer bits. What reads the rows sees what is left of their values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from policies.declaration.policy import HeadRows, Situation
from policies.declaration.shape import ModelShape
from policies.declaration.steps import States
from policies.quantisation.options import QuantisationOptions

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Codes:
    """Holds rows as they are stored. ``numbers``: int32 codewords, shape (heads, rows, head_dim), of so many ``bits``.
    ``decode`` returns what is read, of the same shape, for these codewords or any others."""

    numbers: "torch.Tensor"
    bits: int
    decode: "Callable[[torch.Tensor], torch.Tensor]"

    def read(self) -> "torch.Tensor":
        return self.decode(self.numbers)


class Format(Protocol):
    """Says how the keys or the values of a layer are stored."""

    @property
    def over_tokens(self) -> bool:
        """Tells whether a group is of several tokens, which are then quantised together."""

    def encode(self, states: "torch.Tensor") -> Codes:
        """Encodes rows that are quantised at one time, shape (heads, rows, head_dim); heads may be those
        of several answers."""

    def bytes(self, head: HeadRows) -> int:
        """Counts the bytes of codewords, scales and zero points of rows that are quantised at one time."""


Formats = Mapping[States, Format]


@dataclass(frozen=True)
class Quantisation:
    """Declares a kind of quantisation."""

    name: str
    paper: str
    description: str
    options: type[QuantisationOptions]
    formats: Callable[[Any, Situation], Formats]  # of the tensors that are quantised
    residual: Callable[[Any, Situation], int] = lambda *_: 0  # how many of the latest tokens are not quantised yet
    # By tensor, the bits of a codeword; of nothing where no codewords are kept, or they are the model's own numbers.
    codeword_bits: Callable[[Any], Mapping[States, int]] = lambda _: {}
    as_in_transformers: Callable[[Any], bool] = lambda _: False  # rows are quantised when ``QuantizedCache`` does
    kinds: Callable[[Any], tuple[str, ...]] = lambda _: ()  # of levels that it takes
    # Raises :class:`PolicyError` for options that do not fit the numbers or the heads of a model.
    check_model: Callable[[Any, ModelShape], None] = lambda *_: None
    paper_arguments: Mapping[str, float] = field(default_factory=dict)
