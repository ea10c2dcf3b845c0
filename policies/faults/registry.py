"""The registry of faults: add one by writing its file and naming it here."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from policies.declaration.errors import PolicyError
from policies.declaration.lazy import LazyModule
from policies.declaration.levels import RATE
from policies.declaration.naming import by_name
from policies.declaration.policy import Policy, Press, Situation
from policies.declaration.steps import StepTreatment
from policies.eviction.controls import FULL
from policies.faults.bias import BIAS
from policies.faults.bitflip import BITFLIP
from policies.faults.distractor import DISTRACTOR
from policies.faults.fault import Fault, FaultTreatment
from policies.faults.gaussian import GAUSSIAN, GAUSSIAN_MATCHED
from policies.faults.multiplicative import MULTIPLICATIVE_NORMAL, MULTIPLICATIVE_UNIFORM
from policies.faults.signs import SAME_SIGN, SIGN_FLIP
from policies.faults.stale import STALE
from policies.faults.zeros import ZEROS
from policies.treatments.options import kind_in, name_with, options_in, text_of

presses = LazyModule("policies.presses.writing")

KINDS: Mapping[str, Fault] = by_name(
    "faults",
    (
        *(ZEROS, GAUSSIAN, GAUSSIAN_MATCHED, DISTRACTOR, STALE),
        *(MULTIPLICATIVE_UNIFORM, MULTIPLICATIVE_NORMAL, BIAS, SIGN_FLIP, SAME_SIGN, BITFLIP),
    ),
    PolicyError,
)


def fault_of(name: str) -> Policy:
    """Makes the policy that damages the full cache, such as ``zeros(tokens=evidence)``; raises :class:`PolicyError` in
    one line for options that it has not."""
    fault = KINDS[kind_in(name)]
    options = options_in(name, fault)

    def treat(situations: Sequence[Situation], question_ids: Sequence[str] = ()) -> StepTreatment:
        return FaultTreatment(fault, options, situations)

    def wrap(press: Press, situation: Situation) -> Press:
        return presses.WriteFaultPress(press, FaultTreatment(fault, options, [situation]).write)

    once = options.phase == "resident" or (options.phase == "step" and not options.step)
    once = once and options.persistence == "persistent"
    at_write = options.phase == "prefill_write"
    return replace(
        FULL,
        name=name_with(fault, options),
        family="fault",
        paper=fault.paper,
        description=fault.description,
        kinds=(RATE.name,) if options.rate is None else (),
        random=True,
        corrupts=True,
        own_rows=fault.may_overflow(options),
        levels_below={} if fault.rates_below is None else {RATE.name: fault.rates_below},
        default_levels={RATE.name: fault.default_rates},
        arguments={option: text_of(value) for option, value in options},
        build=(lambda situation: wrap(FULL.build(situation), situation)) if at_write else FULL.build,
        wrap=wrap if at_write else None,
        prefill="private" if at_write else FULL.prefill,
        prefill_treatment=treat if once else None,
        step_treatment=None if once or at_write else treat,
        needs_donor=fault.needs_donor,
        check_model=lambda shape: fault.check_model(options, shape),
        check_codewords=partial(fault.check_codewords, options) if options.on_codewords else None,
        per_question=options.is_aimed,
        same_as=(),
        baseline=None,
        by_default=False,
    )


FAULTS: Mapping[str, Policy] = {name: fault_of(name) for name in KINDS}
