"""The registry of quantisations: add one by writing its file and naming it here."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from policies.declaration.errors import PolicyError
from policies.declaration.naming import by_name
from policies.declaration.policy import HeadRows, Policy, Situation
from policies.declaration.steps import StepTreatment
from policies.eviction.controls import FULL
from policies.quantisation.floats import FLOATS
from policies.quantisation.integers import INTEGERS, LLAMA_CPP
from policies.quantisation.like_transformers import QuantisedAsInTransformers
from policies.quantisation.mantissa import MANTISSA
from policies.quantisation.quantisation import Quantisation
from policies.quantisation.window import QuantisedRows, bytes_of
from policies.treatments.options import kind_in, name_with, options_in, text_of

KINDS: Mapping[str, Quantisation] = by_name("quantisations", (*INTEGERS, *LLAMA_CPP, *FLOATS, MANTISSA), PolicyError)


def quantisation_of(name: str) -> Policy:
    """Makes the policy that quantises the full cache, such as ``int4(v_bits=2)``; raises :class:`PolicyError` in one
    line for options that it has not."""
    kind = KINDS[kind_in(name)]
    options = options_in(name, kind)

    def residual(situation: Situation) -> int:
        return kind.residual(options, situation)

    def treat(situations: Sequence[Situation], question_ids: Sequence[str] = ()) -> StepTreatment:
        treatment = QuantisedAsInTransformers if kind.as_in_transformers(options) else QuantisedRows
        return treatment([(kind.formats(options, situation), residual(situation)) for situation in situations])

    def stored_bytes(situation: Situation, head: HeadRows) -> int:
        window = 0 if kind.as_in_transformers(options) else residual(situation)
        return bytes_of(kind.formats(options, situation), window, head)

    return replace(
        FULL,
        name=name_with(kind, options),
        family="quantisation",
        paper=kind.paper,
        description=kind.description,
        kinds=kind.kinds(options),
        arguments={option: text_of(value) for option, value in options if value is not None},
        fitted=lambda situation: {"residual": residual(situation)},
        paper_arguments=kind.paper_arguments,
        step_treatment=treat,
        codeword_bits=kind.codeword_bits(options),
        check_model=lambda shape: kind.check_model(options, shape),
        stored_bytes=stored_bytes,
        same_as=(),
        baseline=None,
        by_default=False,
    )


QUANTISATIONS: Mapping[str, Policy] = {name: quantisation_of(name) for name in KINDS}
