"""The registry of faults: add one by writing its file and naming it here."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace

from pydantic import ValidationError

from policies.declaration.errors import PolicyError
from policies.declaration.lazy import LazyModule
from policies.declaration.levels import RATE
from policies.declaration.naming import by_name, split_outside_brackets
from policies.declaration.policy import Policy, Press, Situation
from policies.declaration.steps import StepTreatment
from policies.eviction.controls import FULL
from policies.faults.bias import BIAS
from policies.faults.bitflip import BITFLIP
from policies.faults.distractor import DISTRACTOR
from policies.faults.fault import Fault, FaultTreatment
from policies.faults.gaussian import GAUSSIAN, GAUSSIAN_MATCHED
from policies.faults.multiplicative import MULTIPLICATIVE_NORMAL, MULTIPLICATIVE_UNIFORM
from policies.faults.options import FaultOptions
from policies.faults.signs import SAME_SIGN, SIGN_FLIP
from policies.faults.stale import STALE
from policies.faults.zeros import ZEROS

presses = LazyModule("policies.presses.writing")

KINDS: Mapping[str, Fault] = by_name(
    "faults",
    (
        *(ZEROS, GAUSSIAN, GAUSSIAN_MATCHED, DISTRACTOR, STALE),
        *(MULTIPLICATIVE_UNIFORM, MULTIPLICATIVE_NORMAL, BIAS, SIGN_FLIP, SAME_SIGN, BITFLIP),
    ),
    PolicyError,
)
NAME = re.compile(r"(?P<kind>[a-z][a-z0-9_]*)(\((?P<options>[^()]*)\))?")


def is_fault(name: str) -> bool:
    """Tells whether a name is that of a kind of fault, with options or without."""
    matched = NAME.fullmatch(name)
    return matched is not None and matched["kind"] in KINDS


def fault_of(name: str) -> Policy:
    """Makes the policy that damages the full cache, such as ``zeros(tokens=evidence)``; raises :class:`PolicyError` in
    one line for options that it has not."""
    fault, options = _parsed(name)
    return _policy(FULL, fault, options, _name(fault, options))


def damaged(plain: Policy, way: str) -> Policy:
    """Makes the policy that damages what another leaves, named ``plain+way``: its level is that of the other."""
    fault, options = _parsed(way)
    name = f"{plain.name}+{_name(fault, options)}"
    if options.rate is None:
        raise PolicyError(f"{name}: say at which rate, as in {plain.name}+{fault.name}(rate=0.01)")
    if plain.prefill_treatment or plain.step_treatment:
        raise PolicyError(f"{name}: {plain.name} treats the cache after its press already; one of the two is enough")
    if plain.while_decoding and options.phase != "resident":
        raise PolicyError(f"{name}: {plain.name} decodes alone: use phase=resident")
    return _policy(plain, fault, options, name)


def _parsed(name: str) -> tuple[Fault, FaultOptions]:
    matched = NAME.fullmatch(name)
    assert matched is not None
    fault, given = KINDS[matched["kind"]], dict[str, str]()
    for part in split_outside_brackets(matched["options"] or ""):
        option, equals, value = part.partition("=")
        if not equals:
            raise PolicyError(f"{name}: write options as {fault.name}(tokens=evidence), not '{part}'")
        given[option.strip()] = value.strip()
    try:
        return fault, fault.options.model_validate(given)
    except ValidationError as error:
        raise PolicyError(f"{name}: {_first_problem(error, fault)}") from error


def _first_problem(error: ValidationError, fault: Fault) -> str:
    problem = error.errors()[0]
    option = str(problem["loc"][0]) if problem["loc"] else ""
    if problem["type"] == "extra_forbidden":
        known = list(fault.options.model_fields)
        close = difflib.get_close_matches(option, known, n=1)
        meant = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
        return f"{fault.name} has no option {option}: {meant}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{option}={problem['input']}: {message}" if option else message


def _name(fault: Fault, options: FaultOptions) -> str:
    """Returns the one name of a fault with these options: defaults are left out, and the order is as declared."""
    given = [f"{name}={_text(value)}" for name, value in options if value != fault.options.model_fields[name].default]
    return f"{fault.name}({','.join(given)})" if given else fault.name


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else f"[{','.join(value)}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _policy(plain: Policy, fault: Fault, options: FaultOptions, name: str) -> Policy:
    def treat(situation: Situation, question_id: str = "") -> StepTreatment:
        return FaultTreatment(fault, options, situation)

    def build(situation: Situation) -> Press:
        return presses.WriteFaultPress(plain.build(situation), FaultTreatment(fault, options, situation).write)

    once = options.phase == "resident" or (options.phase == "step" and not options.step)
    once = once and options.persistence == "persistent"
    at_write = options.phase == "prefill_write"
    return replace(
        plain,
        name=name,
        family="fault",
        paper=fault.paper,
        description=fault.description if plain is FULL else f"{plain.name}, then: {fault.description.lower()}",
        kinds=(RATE.name,) if options.rate is None else plain.kinds,
        random=True,
        corrupts=True,
        own_rows=fault.may_overflow(options),
        rates_below=fault.rates_below,
        default_levels={RATE.name: fault.default_rates},
        arguments={option: _text(value) for option, value in options},
        build=build if at_write else plain.build,
        prefill="private" if at_write else plain.prefill,
        prefill_treatment=treat if once else None,
        step_treatment=None if once or at_write else treat,
        needs_donor=fault.needs_donor,
        check_model=lambda shape: fault.check_model(options, shape),
        per_question=plain.per_question or options.is_aimed,
        same_as=(),
        baseline=None,
        by_default=False,
    )


FAULTS: Mapping[str, Policy] = {name: fault_of(name) for name in KINDS}
