"""A quantisation stores rows of the cache in fewer bits. What reads the rows sees what is left of
their values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policies.declaration.lazy import torch
from policies.declaration.policy import HeadRows, Situation
from policies.declaration.shape import ModelShape
from policies.declaration.steps import States
from policies.treatments.parts import Parts, check_layers

Axis = Literal["channel", "token"]
Scheme = Literal["asymmetric", "symmetric", "signed"]
USUAL_RESIDUAL = 128  # tokens, in KIVI
LARGEST_SHARE = 8  # of what is kept, the window is at most one in so many where it is not given


class QuantisationOptions(BaseModel):
    """Declares the options of every quantisation; a kind may add its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tensor: Literal["K", "V", "both"] = "both"  # the other is left as it is
    # The format of the values, by its name, where it is another one than that of the keys.
    values: str | None = None
    layers: Parts = ("all",)  # the others are left as they are
    # So many channels of a head are left as they are: those with the largest magnitude among the
    # rows that are quantised together, as LLM.int8() leaves outlier features (arXiv 2208.07339).
    outliers: int = Field(0, ge=0, le=1024)
    # Keys and values are turned by a Hadamard matrix first, so that no channel stands out, and
    # turned back when they are read (QuaRot, arXiv 2404.00456; llama.cpp, since April 2026).
    rotate: Literal["no", "hadamard"] = "no"
    # stored: the prefill reads exact rows. write: each row is quantised by itself when it is
    # written, so that the prefill reads quantised rows too, as in llama.cpp and vLLM.
    phase: Literal["stored", "write"] = "stored"

    @model_validator(mode="after")
    def _names_parts(self) -> Self:
        check_layers(self.layers)
        if self.values is not None and self.tensor != "both":
            raise ValueError(f"values={self.values} goes with tensor=both")
        if self.phase == "write" and self.outliers:
            raise ValueError(
                "outliers are chosen among rows that are stored together, and phase=write stores "
                "each by itself"
            )
        return self


class IntegerOptions(QuantisationOptions):
    """Declares KIVI's layout, which is the default, and that of transformers'
    ``QuantizedCache``."""

    k_bits: int | None = Field(None, ge=2, le=8)  # by default those of the name
    v_bits: int | None = Field(None, ge=2, le=8)
    # As many numbers share a scale. Along tokens the last group may have fewer; along channels
    # groups divide a head, or one of them is all of it.
    group: int = Field(64, ge=1, le=2**16)
    # The latest tokens, which are not quantised yet. By default 128, or an eighth of what is kept
    # if that is less.
    residual: int | None = Field(None, ge=0, le=2**20)
    k_axis: Axis = "channel"  # a group is of one channel and several tokens
    v_axis: Axis = "token"  # a group is of one token and several channels
    scheme: Scheme = "asymmetric"
    like: Literal["kivi", "transformers"] = "kivi"  # when rows are quantised

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.like == "transformers":
            usual = ("asymmetric", "both", None, ("all",), 0, "no", "stored")
            chosen = (self.scheme, self.tensor, self.values, self.layers)
            if (*chosen, self.outliers, self.rotate, self.phase) != usual:
                raise ValueError(
                    "like=transformers goes with scheme=asymmetric, and with all layers, keys and "
                    "values alike"
                )
        return self

    @property
    def axes(self) -> Mapping[States, Axis]:
        return {"keys": self.k_axis, "values": self.v_axis}

    def residual_in(self, situation: Situation) -> int:
        """Counts the tokens of the window; none where there is one for each eight that are kept."""
        if self.residual is not None:
            return self.residual
        if self.like == "transformers":
            return USUAL_RESIDUAL
        kept = round(situation.context_length * (1 - situation.ratio))
        return min(USUAL_RESIDUAL, kept // LARGEST_SHARE)


class BlockOptions(IntegerOptions):
    """Declares the blocks of llama.cpp: 32 numbers of a row share a scale, and every row is
    quantised at once."""

    group: int = Field(32, ge=1, le=2**16)
    residual: int | None = Field(0, ge=0, le=2**20)
    k_axis: Axis = "token"


class FloatOptions(QuantisationOptions):
    """Declares whether numbers are scaled before they are cast."""

    scale: Literal["none", "group"] = (
        "none"  # none: cast as they are, as vLLM does unless it is given scales
    )
    # With scale=group: as many channels of a token share a scale.
    group: int = Field(64, ge=1, le=2**16)


class MantissaOptions(QuantisationOptions):
    """Declares how many bits are masked, where no level says it."""

    bits: int | None = Field(None, ge=0, le=23)


@dataclass(frozen=True)
class Codes:
    """Holds rows as they are stored. ``numbers``: int32 codewords, shape (heads, rows, head_dim),
    of so many ``bits``. ``decode`` returns what is read, of the same shape, for these codewords or
    any others."""

    numbers: "torch.Tensor"
    bits: int
    decode: "Callable[[torch.Tensor], torch.Tensor]"

    def read(self) -> "torch.Tensor":
        """Returns the rows as they are read, shape (heads, rows, head_dim)."""
        return self.decode(self.numbers)


class Format(Protocol):
    """Says how the keys or the values of a layer are stored."""

    @property
    def over_tokens(self) -> bool:
        """Tells whether a group is of several tokens, which are then quantised together."""

    def encode(self, states: "torch.Tensor") -> Codes:
        """Encodes rows quantised at one time, (heads, rows, head_dim); heads may be those of
        several answers."""

    def bytes(self, head: HeadRows) -> int:
        """Counts the bytes of codewords, scales and zero points of rows that are quantised at one
        time."""


Formats = Mapping[States, Format]


class StoredTensor(NamedTuple):
    """Says how the keys or the values of some answers are stored, but for the latest tokens."""

    format: Format
    residual: int  # tokens that are not quantised yet


StoredTensors = Mapping[States, StoredTensor]


@dataclass(frozen=True)
class Quantisation:
    """Declares a kind of quantisation."""

    name: str
    paper: str
    description: str
    options: type[QuantisationOptions]
    formats: Callable[[Any, Situation], Formats]  # of the tensors that are quantised
    # How many of the latest tokens are not quantised yet.
    residual: Callable[[Any, Situation], int] = lambda *_: 0
    # By tensor, the bits of a codeword; of nothing where no codewords are kept, or they are the
    # model's own numbers.
    codeword_bits: Callable[[Any], Mapping[States, int]] = lambda _: {}
    # Rows are quantised when ``QuantizedCache`` does.
    as_in_transformers: Callable[[Any], bool] = lambda _: False
    kinds: Callable[[Any], tuple[str, ...]] = lambda _: ()  # of levels that it takes
    # Raises :class:`PolicyError` for options that do not fit the numbers or the heads of a model.
    check_model: Callable[[Any, ModelShape], None] = lambda *_: None
    paper_arguments: Mapping[str, float] = field(default_factory=dict)
