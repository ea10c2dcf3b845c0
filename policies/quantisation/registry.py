"""The registry of quantisations: integers in KIVI's layout and in llama.cpp's, floating point of 8
bits, mantissas."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import create_model

from policies.declaration.levels import BITS
from policies.declaration.names import PolicyError, by_name
from policies.declaration.policy import (
    Argument,
    CacheTreatment,
    HeadRows,
    Policy,
    Situation,
)
from policies.declaration.shape import ModelShape
from policies.declaration.steps import TENSORS, States, StepTreatment, WriteTreatment
from policies.eviction.controls import ANY_LENGTH, of_full_cache
from policies.quantisation.around import (
    FormatWithOutliers,
    RotatedFormat,
    check_outliers,
)
from policies.quantisation.formats import (
    FloatFormat,
    IntegerFormat,
    MaskedFormat,
    check_bits,
    check_channels,
)
from policies.quantisation.like_transformers import FlatFormat, QuantisedAsInTransformers
from policies.quantisation.quantisation import (
    USUAL_RESIDUAL,
    BlockOptions,
    FloatOptions,
    Format,
    Formats,
    IntegerOptions,
    MantissaOptions,
    Quantisation,
    QuantisationOptions,
    Scheme,
    StoredTensor,
    StoredTensors,
)
from policies.quantisation.window import QuantisedRows, count_bytes
from policies.quantisation.written import QuantisedWrites
from policies.treatments.options import kind_in, name_with, option_text, options_in
from policies.treatments.parts import chosen
from policies.treatments.writes import change_writes

# With which it is seen whether a format has a window of latest tokens.
LONG_CONTEXT = Situation(ratio=0.0, context_length=2**16, seed=0, example_id="")
AROUND = (
    "values",
    "layers",
    "outliers",
    "rotate",
    "phase",
)  # options that say nothing where they are usual


def check_groups(options: IntegerOptions, shape: ModelShape) -> None:
    """Raises :class:`PolicyError` where groups of channels do not divide a head. How many tokens
    there are is not known before a context is read."""
    axes = [options.axes[tensor] for tensor in TENSORS[options.tensor]]
    if "token" in axes:
        check_channels(options.group, shape.head_size)


def integers(bits: int, **changes: Any) -> Quantisation:
    """Declares integers of so many bits for keys and values. ``changes``: fields in which it is not
    KIVI's."""

    def bits_by_tensor(options: IntegerOptions) -> dict[States, int]:
        both: dict[States, int] = {
            "keys": options.k_bits or bits,
            "values": options.v_bits or bits,
        }
        return {tensor: both[tensor] for tensor in TENSORS[options.tensor]}

    def formats(options: IntegerOptions, situation: Situation) -> Formats:
        stored: dict[States, Format] = {}
        flat = options.like == "transformers"
        for tensor, count in bits_by_tensor(options).items():
            axis = options.axes[tensor]
            grouped = IntegerFormat(count, axis, options.group, options.scheme, in_own_type=flat)
            stored[tensor] = FlatFormat(grouped) if flat else grouped
        return stored

    def codeword_bits(options: IntegerOptions) -> Mapping[States, int]:
        # A fault cannot hit codewords here: transformers' way writes back what is read, and keeps
        # none.
        if options.like == "transformers":
            return {}
        return bits_by_tensor(options)

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


def blocks(bits: int, scheme: Scheme = "asymmetric") -> Quantisation:
    """Declares a type of llama.cpp, which ends in 1 where a block has a least number beside its
    scale. Those of ``q8_0`` are symmetric; of ``q4_0`` and ``q5_0`` the number of the largest
    magnitude has the lowest code."""
    ending, shared = 0, "a scale"
    if scheme == "asymmetric":
        ending, shared = 1, "a scale and a least number"
    return integers(
        bits,
        name=f"q{bits}_{ending}",
        paper="llama.cpp, ggml-quants.c",
        description=f"llama.cpp: {bits} bits, 32 share {shared}",
        # The scheme is the default of a type of its own, so that the name of the policy leaves it
        # out.
        options=create_model("BlockOptions", __base__=BlockOptions, scheme=(Scheme, scheme)),
        paper_arguments={},
    )


INTEGERS = tuple(integers(bits) for bits in (8, 4, 3, 2))
LLAMA_CPP = (blocks(8, "symmetric"), blocks(5), blocks(5, "signed"), blocks(4), blocks(4, "signed"))


def floats(kind: str, description: str) -> Quantisation:
    """Declares a type of torch, such as ``float8_e4m3fn``."""

    def formats(options: FloatOptions, situation: Situation) -> Formats:
        stored = FloatFormat(kind, options.group if options.scale == "group" else None)
        return dict.fromkeys(TENSORS[options.tensor], stored)

    def check_groups(options: FloatOptions, shape: ModelShape) -> None:
        if options.scale == "group":
            check_channels(options.group, shape.head_size)

    return Quantisation(
        name=kind.replace("float8", "fp8").removesuffix("fn"),
        paper="FP8 formats, arXiv 2209.05433",
        description=description,
        options=FloatOptions,
        formats=formats,
        check_model=check_groups,
        codeword_bits=lambda options: dict.fromkeys(TENSORS[options.tensor], 8),
    )


FLOATS = (
    floats(
        "float8_e4m3fn", "Floating point of 8 bits, 3 of them mantissa, as vLLM’s without scales"
    ),
    floats("float8_e5m2", "Floating point of 8 bits, 2 of them mantissa, as vLLM’s without scales"),
)


def _formats(options: MantissaOptions, situation: Situation) -> Formats:
    masked = int(situation.level.value) if options.bits is None else options.bits
    return dict.fromkeys(TENSORS[options.tensor], MaskedFormat(masked))


MANTISSA = Quantisation(
    name="mantissa",
    paper="-",
    description="The low bits of every mantissa set to zero",
    options=MantissaOptions,
    formats=_formats,
    check_model=lambda options, shape: check_bits(options.bits or 0, shape.dtype),
    kinds=lambda options: (BITS.name,) if options.bits is None else (),
)
QUANTISATION_KINDS: Mapping[str, Quantisation] = by_name(
    "quantisations", (*INTEGERS, *LLAMA_CPP, *FLOATS, MANTISSA), PolicyError
)


def make_quantisation(name: str) -> Policy:
    """Makes the policy of a name such as ``int4(v_bits=2)``; raises :class:`PolicyError` for other
    options."""
    kind = QUANTISATION_KINDS[kind_in(name)]
    options = options_in(name, kind)
    by_tensor = _kinds_of_tensors(kind, options)
    as_in_transformers = kind.as_in_transformers(options)

    def stored(situation: Situation) -> StoredTensors:
        tensors: dict[States, StoredTensor] = {}
        for tensor, (of_tensor, its_options) in by_tensor.items():
            inner = of_tensor.formats(its_options, situation)[tensor]
            residual = of_tensor.residual(its_options, situation)
            tensors[tensor] = StoredTensor(_with_surroundings(inner, options), residual)
        return tensors

    def treat(situations: Sequence[Situation], question_ids: Sequence[str] = ()) -> StepTreatment:
        ways = [stored(situation) for situation in situations]
        if as_in_transformers:
            return QuantisedAsInTransformers(ways)
        return QuantisedRows(ways, options.layers)

    def treat_writing(situations: Sequence[Situation]) -> WriteTreatment:
        return QuantisedWrites([stored(situation) for situation in situations], options.layers)

    def stored_bytes(situation: Situation, head: HeadRows) -> int:
        ways = stored(situation)
        if as_in_transformers:
            # There the whole first pass is quantised, with nothing left in the window.
            ways = {tensor: way._replace(residual=0) for tensor, way in ways.items()}
        if head.layer not in chosen("layer", options.layers, head.layers):
            ways = {}
        return count_bytes(ways, head)

    def fitted(situation: Situation) -> dict[str, Argument]:
        first, *others = stored(situation).values()
        arguments: dict[str, Argument] = {"residual": first.residual}
        if any(other.residual != first.residual for other in others):
            arguments["v_residual"] = others[0].residual
        return arguments

    def check_model(shape: ModelShape) -> None:
        for of_tensor, its_options in by_tensor.values():
            of_tensor.check_model(its_options, shape)
        # For its error: a layer that the model has not.
        chosen("layer", options.layers, shape.layers)
        check_outliers(options.outliers, shape.head_size)

    if options.phase == "write":
        _check_single_rows(name, stored(LONG_CONTEXT))
    arguments = {}
    for option, value in options:
        is_usual = option in AROUND and value == type(options).model_fields[option].default
        if value is not None and not is_usual:
            arguments[option] = option_text(value)
    codeword_bits: dict[States, int] = {}
    for tensor, (of_tensor, its_options) in by_tensor.items():
        bits = of_tensor.codeword_bits(its_options)
        if tensor in bits:
            codeword_bits[tensor] = bits[tensor]
    treatment = CacheTreatment(
        stored_bytes=stored_bytes,
        arguments=arguments,
        fitted=fitted,
    )
    if options.phase != "write":
        treatment = replace(treatment, step_treatment=treat, codeword_bits=codeword_bits)
    policy = of_full_cache(
        name=name_with(kind, options),
        family="quantisation",
        paper=kind.paper,
        description=_describe(kind, options),
        kinds=kind.kinds(options),
        paper_arguments=kind.paper_arguments,
        needs=replace(ANY_LENGTH, check_model=check_model),
        treatment=treatment,
    )
    if options.phase == "write":
        return change_writes(policy, treat_writing)
    return policy


def _check_single_rows(name: str, ways: StoredTensors) -> None:
    """Raises :class:`PolicyError` where rows are not quantised each by itself, and at once."""
    for tensor, way in ways.items():
        if way.format.over_tokens or way.residual:
            option = f"{tensor[0]}_axis"
            raise PolicyError(
                f"{name}: phase=write quantises each row when it is written, and {tensor} here are "
                f"quantised several tokens at a time: say {option}=token and residual=0 too, or "
                "leave phase out"
            )


def _kinds_of_tensors(
    kind: Quantisation, options: QuantisationOptions
) -> dict[States, tuple[Quantisation, QuantisationOptions]]:
    """Returns the kind that stores each tensor, with its options; raises :class:`PolicyError` for
    values in a format that there is not."""
    by_tensor: dict[States, tuple[Quantisation, QuantisationOptions]] = {}
    for tensor in TENSORS[options.tensor]:
        by_tensor[tensor] = (kind, options)
    if options.values is not None:
        of_values = QUANTISATION_KINDS.get(options.values)
        # A kind that takes a level, as the mantissa, has none for the values alone.
        if of_values is None or of_values.kinds(of_values.options()):
            names = [
                name
                for name, other in QUANTISATION_KINDS.items()
                if not other.kinds(other.options())
            ]
            raise PolicyError(
                f"{kind.name}(values={options.values}): give one of {', '.join(names)}"
            )
        by_tensor["values"] = (of_values, of_values.options())
    return by_tensor


def _with_surroundings(inner: Format, options: QuantisationOptions) -> Format:
    """Has rows turned before a format, or channels left as they are, as the options say."""
    # Outliers go around the rotation: they are found in, and left in, the channels as they are.
    if options.rotate == "hadamard":
        inner = RotatedFormat(inner)
    if options.outliers:
        inner = FormatWithOutliers(inner, options.outliers)
    return inner


def _describe(kind: Quantisation, options: QuantisationOptions) -> str:
    """Says what a quantisation does, in one line."""
    parts = [kind.description]
    if options.values is not None:
        parts.append(f"values as {options.values}")
    if options.rotate != "no":
        parts.append("turned by a Hadamard matrix first")
    if options.outliers:
        parts.append(f"{options.outliers} channels of a head left as they are")
    if options.phase == "write":
        parts.append("as it is written, in the prefill too")
    if options.layers != ("all",):
        parts.append(f"layers {option_text(options.layers)} alone")
    return "; ".join(parts)


QUANTISATIONS: Mapping[str, Policy] = {name: make_quantisation(name) for name in QUANTISATION_KINDS}
