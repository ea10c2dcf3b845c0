"""Makes policies of presses that are in memory: classes, functions, objects and policies."""

import copy
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from policies.declaration.cells import find_code
from policies.declaration.lazy import kvpress
from policies.declaration.names import PolicyError
from policies.declaration.plug_in import RATIO, describe_plug_in, make_policy
from policies.declaration.policy import Policy, Press, Situation

IN_MEMORY = "handed in from memory"
BY_FUNCTION = (
    f"hand in a function with a parameter {RATIO}, which builds the press for a ratio, or a Policy"
)


def policy_in_memory(target: Any) -> Policy:
    """Makes the policy of a press: an object is a template whose ratio a run sets, a class or a
    function builds a press for a ratio, and a :class:`Policy` is one. Raises :class:`PolicyError`
    for anything else, and for a press without a ratio that could be set."""
    if isinstance(target, Policy):
        return _with_code(target, target.build)
    if isinstance(target, type) or inspect.isroutine(target):
        name = target.__name__
        if not name.isidentifier():
            raise PolicyError(f"'{name}' is no name of a policy: define a function with a name")
        return _with_code(make_policy(name, target, {}, f"{name}, {IN_MEMORY}"), target)
    if not isinstance(target, kvpress.BasePress):
        kind = type(target).__name__
        raise PolicyError(
            f"an object of type {kind} is no press: give a name, a press of kvpress, its class, a function or a "
            "Policy"
        )
    return _with_code(_template(target), target)


def _template(press: Press) -> Policy:
    """Makes the policy of a press whose other arguments stay as they are."""
    name = name_press(press)
    if isinstance(press, kvpress.ComposedPress):
        raise PolicyError(f"{name} has a ratio in each of its presses: {BY_FUNCTION}")

    def build(situation: Situation) -> Press:
        built = copy.deepcopy(press)
        built.compression_ratio = situation.ratio
        return built

    try:
        built = build(Situation(0.5, 1024, 0, ""))
    except Exception as error:  # of a press of the user, or of kvpress
        raise PolicyError(f"{name} takes no {RATIO} ({error}): {BY_FUNCTION}") from error
    if getattr(press, RATIO, None) is None:
        raise PolicyError(f"{name} has no {RATIO} that a run could set: {BY_FUNCTION}")
    return describe_plug_in(name, built, build, type(press), f"{name}, {IN_MEMORY}")


def name_press(press: Press) -> str:
    """Names a press by its class and by those of its arguments that are not the default ones."""
    kind = type(press)
    written = []
    for argument, value in _changed_arguments(press).items():
        if isinstance(value, kvpress.BasePress):
            written.append(f"{argument}={name_press(value)}")
        elif isinstance(value, bool | int | float | str | None):
            written.append(f"{argument}={value!r}")
        else:
            written.append(f"{argument}={type(value).__name__}")
    if not written:
        return str(kind.__name__)
    return f"{kind.__name__}({', '.join(written)})"


def _changed_arguments(press: Press) -> Mapping[str, Any]:
    changed = {}
    for name, parameter in inspect.signature(type(press)).parameters.items():
        value = getattr(press, name, parameter.default)
        is_plain = isinstance(value, bool | int | float | str | None)
        is_default = value is parameter.default or (is_plain and value == parameter.default)
        if name != RATIO and not is_default:
            changed[name] = value
    return changed


def _with_code(policy: Policy, target: Any) -> Policy:
    """Adds the code of what was handed in, unless that is kvbench's or kvpress's own."""
    if policy.code.origin:
        return policy
    code = find_code(target, policy.name.partition("(")[0])
    return replace(policy, code=code) if code.origin else policy
