"""Declares the options of any fault: where it hits, when, and how much of it."""

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policies.declaration.shape import ModelShape
from policies.declaration.steps import States
from policies.treatments.parts import Parts, check_heads, check_layers, chosen

Tensor = Literal["K", "V", "both"]
Phase = Literal["resident", "write", "prefill_write", "every_step", "step"]
WRITING: tuple[Phase, ...] = ("write", "prefill_write")  # they act in a prefill of their own
FIRST = re.compile(r"first([1-9][0-9]{0,6})")
AIMED = ("evidence", "answer", "other", "random")  # their tokens differ from question to question


class FaultOptions(BaseModel):
    """Declares the options of every fault; a kind may add its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tensor: Tensor = "both"
    layers: Parts = ("all",)  # indices, ranges such as 0-3, halves H1 and H2, quarters Q1 to Q4
    heads: Parts = ("all",)  # of keys and values: indices and ranges
    tokens: str = (
        "all"  # all, evidence, answer, other than evidence, as many random ones as evidence, first4
    )
    # Of which the rate is a share; a row is one layer, head and token.
    unit: Literal["bit", "row", "value", "token"] = "row"
    # Once after the prefill; on every row when it is written, or on those of the context alone;
    # before every pass that reads, or before one.
    phase: Phase = "resident"
    # With phase=step: 0 is before the question is read, 1 before the first answer token is.
    step: int = Field(0, ge=0)
    persistence: Literal["persistent", "transient"] = (
        "persistent"  # transient: clean again at the next step
    )
    rate: float | None = Field(None, ge=0, le=1)  # instead of a level

    @model_validator(mode="after")
    def _fit_together(self) -> "FaultOptions":
        if self.tokens not in ("all", *AIMED) and not FIRST.fullmatch(self.tokens):
            raise ValueError(
                f"tokens={self.tokens}: say all, {', '.join(AIMED)}, or such as first4"
            )
        check_layers(self.layers)
        check_heads(self.heads)
        if self.unit == "bit" and "bits" not in type(self).model_fields:
            raise ValueError("unit=bit: only bitflip counts bits; say row, value or token")
        if self.step and self.phase != "step":
            raise ValueError("step goes with phase=step")
        if self.persistence == "transient" and self.phase in ("resident", *WRITING):
            raise ValueError(
                f"persistence=transient goes with phase=every_step or step, not {self.phase}"
            )
        return self

    @property
    def on_codewords(self) -> bool:
        """Tells whether it hits the codewords of quantised rows instead of what is read of them."""
        return False

    @property
    def may_overflow(self) -> bool:
        """Tells whether infinity or NaN may come of it in numbers that are neither."""
        return False

    def check_model(self, shape: ModelShape) -> None:
        """Raises :class:`PolicyError` in one line for layers, heads or bits that a model has
        not."""
        self.choose_layers(shape.layers)
        self.choose_heads(shape.kv_heads)

    def check_codewords(self, bits: Mapping[States, int]) -> None:
        """Raises :class:`PolicyError` for what codewords of so many bits, by tensor, have not."""

    def numbers_hit(self, rate: float, dtype: str) -> float:
        """Returns the share of the numbers of a cache that a rate hits: the rate itself, unless it
        is one of bits."""
        return rate

    def choose_layers(self, count: int) -> tuple[int, ...]:
        """Lists the layers of a model of so many layers; raises :class:`PolicyError` for one that
        it has not."""
        return chosen("layer", self.layers, count)

    def choose_heads(self, count: int) -> tuple[int, ...]:
        """Lists the key-value heads of a layer of so many; raises :class:`PolicyError` for one that
        it has not."""
        return chosen("head", self.heads, count)
