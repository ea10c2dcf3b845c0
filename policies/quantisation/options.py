"""The options of every quantisation."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policies.declaration.policy import Situation

Axis = Literal["channel", "token"]
Scheme = Literal["asymmetric", "symmetric", "signed"]
USUAL_RESIDUAL = 128  # tokens, in KIVI
LARGEST_SHARE = 8  # of what is kept, the window is at most one in so many where it is not given


class QuantisationOptions(BaseModel):
    """Declares the options of every quantisation; a kind may add its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tensor: Literal["K", "V", "both"] = "both"  # the other is left as it is


class IntegerOptions(QuantisationOptions):
    """Declares KIVI's layout, which is the default, and that of transformers' ``QuantizedCache``."""

    k_bits: int | None = Field(None, ge=2, le=8)  # by default those of the name
    v_bits: int | None = Field(None, ge=2, le=8)
    # As many numbers share a scale. Along tokens the last group may have fewer; along channels groups divide a head, or
    # one of them is all of it.
    group: int = Field(64, ge=1, le=2**16)
    # The latest tokens, which are not quantised yet. By default 128, or an eighth of what is kept if that is less.
    residual: int | None = Field(None, ge=0, le=2**20)
    k_axis: Axis = "channel"  # a group is of one channel and several tokens
    v_axis: Axis = "token"  # a group is of one token and several channels
    scheme: Scheme = "asymmetric"
    like: Literal["kivi", "transformers"] = "kivi"  # when rows are quantised

    @model_validator(mode="after")
    def _fit_together(self) -> "IntegerOptions":
        if self.like == "transformers" and (self.scheme, self.tensor) != ("asymmetric", "both"):
            raise ValueError("like=transformers goes with scheme=asymmetric and tensor=both alone")
        return self

    def residual_in(self, situation: Situation) -> int:
        """Counts the tokens of the window; none where there is one for each eight that are kept."""
        if self.residual is not None:
            return self.residual
        if self.like == "transformers":
            return USUAL_RESIDUAL
        kept = round(situation.context_length * (1 - situation.ratio))
        return min(USUAL_RESIDUAL, kept // LARGEST_SHARE)


class BlockOptions(IntegerOptions):
    """Declares the blocks of llama.cpp: 32 numbers of a row share a scale, and every row is quantised at once."""

    group: int = Field(32, ge=1, le=2**16)
    residual: int | None = Field(0, ge=0, le=2**20)
    k_axis: Axis = "token"


class SymmetricBlockOptions(BlockOptions):
    """Declares the blocks of ``q8_0``, which have no zero point."""

    scheme: Scheme = "symmetric"


class SignedBlockOptions(BlockOptions):
    """Declares the blocks of ``q4_0`` and ``q5_0``, whose number of the largest magnitude has the lowest code."""

    scheme: Scheme = "signed"


class FloatOptions(QuantisationOptions):
    """Declares whether numbers are scaled before they are cast."""

    scale: Literal["none", "group"] = "none"  # none: cast as they are, as vLLM does unless it is given scales
    group: int = Field(64, ge=1, le=2**16)  # with scale=group: as many channels of a token share a scale


class MantissaOptions(QuantisationOptions):
    """Declares how many bits are masked, where no level says it."""

    bits: int | None = Field(None, ge=0, le=23)
