"""Integers of few bits: in KIVI's layout unless options say otherwise, and under the names of llama.cpp."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from policies.declaration.policy import Situation
from policies.declaration.shape import ModelShape
from policies.declaration.steps import TENSORS, States
from policies.quantisation.groups import IntegerFormat, check_channels
from policies.quantisation.like_transformers import FlatFormat
from policies.quantisation.options import (
    USUAL_RESIDUAL,
    Axis,
    BlockOptions,
    IntegerOptions,
    SignedBlockOptions,
    SymmetricBlockOptions,
)
from policies.quantisation.quantisation import Format, Formats, Quantisation


def check_groups(options: IntegerOptions, shape: ModelShape) -> None:
    """Raises :class:`PolicyError` where groups of channels do not divide a head. How many tokens there are is not known
    before a context is read."""
    axes: dict[States, Axis] = {"keys": options.k_axis, "values": options.v_axis}
    if "token" in (axes[tensor] for tensor in TENSORS[options.tensor]):
        check_channels(options.group, shape.head_size)


def integers(bits: int, **changes: Any) -> Quantisation:
    """Declares integers of so many bits for keys and values alike, unless options say otherwise. ``changes``: fields of
    a declaration that is not KIVI's."""

    def formats(options: IntegerOptions, situation: Situation) -> Formats:
        layout: dict[States, tuple[int, Axis]] = {
            "keys": (options.k_bits or bits, options.k_axis),
            "values": (options.v_bits or bits, options.v_axis),
        }
        flat = options.like == "transformers"
        formats_by_state: dict[States, Format] = {}
        for tensor in TENSORS[options.tensor]:
            stored = IntegerFormat(*layout[tensor], options.group, options.scheme, in_own_type=flat)
            formats_by_state[tensor] = FlatFormat(stored) if flat else stored
        return formats_by_state

    def codeword_bits(options: IntegerOptions) -> Mapping[States, int]:
        by_tensor: Mapping[States, int] = {"keys": options.k_bits or bits, "values": options.v_bits or bits}
        return {} if options.like == "transformers" else {each: by_tensor[each] for each in TENSORS[options.tensor]}

    kivi = Quantisation(
        name=f"int{bits}",
        paper="KIVI, arXiv 2402.02750",
        description=f"Integers of {bits} bits: groups of keys by channel, of values by token",
        options=IntegerOptions,
        formats=formats,
        residual=lambda options, situation: options.residual_in(situation),
        codeword_bits=codeword_bits,
        as_in_transformers=lambda options: options.like == "transformers",
        check_model=check_groups,
        paper_arguments={"residual": USUAL_RESIDUAL},
    )
    return replace(kivi, **changes)


def blocks(bits: int, options: type[BlockOptions]) -> Quantisation:
    """Declares a type of llama.cpp, which ends in 1 where a block has a least number beside its scale."""
    has_least = options.model_fields["scheme"].default == "asymmetric"
    return integers(
        bits,
        name=f"q{bits}_{int(has_least)}",
        paper="llama.cpp, ggml-quants.c",
        description=f"llama.cpp: {bits} bits, 32 share a scale{' and a least number' if has_least else ''}",
        options=options,
        paper_arguments={},
    )


INTEGERS = tuple(integers(bits) for bits in (8, 4, 3, 2))
LLAMA_CPP = (
    blocks(8, SymmetricBlockOptions),
    blocks(5, BlockOptions),
    blocks(5, SignedBlockOptions),
    blocks(4, BlockOptions),
    blocks(4, SignedBlockOptions),
)
