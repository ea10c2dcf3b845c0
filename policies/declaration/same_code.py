"""Finds presses that run the same code and differ in their arguments alone, as a subclass that sets another window."""

import inspect
import sys
from collections.abc import Sequence
from typing import Any

from policies.declaration.lazy import LazyModule
from policies.declaration.policy import Policy, Press, arguments_of

kvpress = LazyModule("kvpress")

SOME_LENGTH = 1024
SETTING = ("__init__", "__post_init__")  # what sets arguments alone, as far as can be seen
Code = tuple[Any, ...]  # a class, and the code of each press inside


def code_of(press: Press) -> Code:
    """Returns the class whose code a press runs, with that of the presses inside it: a subclass that overrides nothing
    runs the code of its parent."""
    return (_class_of(type(press)), *map(code_of, presses_inside(press)))


def presses_inside(press: Press) -> list[Press]:
    """Lists the presses that are arguments of a press, but not those inside these."""
    return [
        value for name in inspect.signature(type(press)).parameters for value in _presses(getattr(press, name, None))
    ]


def argument_warnings(policy: Policy, others: Sequence[Policy]) -> list[str]:
    """Names each other policy that runs the same code as this one, with the arguments in which the two differ."""
    press = _built(policy)
    if press is None:
        return []
    return [
        f"{policy.name} and {other.name} run the same code, {code_of(press)[0].__name__}, and differ in "
        f"{_differences(press, their)} alone (of a context of {SOME_LENGTH:,} tokens)"
        for other in others
        if (their := _built(other)) is not None and _places(press) == _places(their)
    ]


def _places(press: Press) -> list[tuple[str | None, str]]:
    """Tells the file and the name of each class that a press runs: a file is read once for each plug-in in it, so that
    a class of it is several."""
    return [
        (getattr(sys.modules[kind.__module__], "__file__", None), kind.__qualname__) for kind in _flat(code_of(press))
    ]


def _flat(code: Code) -> list[type]:
    first, *inside = code
    return [first, *(kind for one in inside for kind in _flat(one))]


def _differences(press: Press, other: Press) -> str:
    one, two = arguments_of(press), arguments_of(other)
    names = [name for name in {**one, **two} if one.get(name) != two.get(name)]
    return ", ".join(f"{name} ({one.get(name, '-')} and {two.get(name, '-')})" for name in names) or "their names"


def _class_of(kind: type) -> type:
    while not _overrides(kind):
        kind = kind.__bases__[0]
    return kind


def _overrides(kind: type) -> bool:
    """Tells whether a class has code of its own: those of kvpress have."""
    if kind.__module__.partition(".")[0] == "kvpress" or len(kind.__bases__) != 1:
        return True
    generated = vars(kind).get("__dataclass_params__") is not None
    names = [
        name
        for name, value in vars(kind).items()
        if callable(value) or isinstance(value, property | classmethod | staticmethod)
    ]
    overrides = [name for name in names if name not in SETTING and not (generated and name.startswith("__"))]
    return bool(overrides)


def _presses(value: Any) -> list[Press]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, kvpress.BasePress)]


def _built(policy: Policy) -> Press | None:
    """Returns the press of a typical context; None of one that cannot be built, or draws or knows what others do
    not."""
    if policy.random or policy.per_question:
        return None
    try:
        return policy.build(policy.typical_situation(SOME_LENGTH, SOME_LENGTH // 8))
    except Exception:  # a plug-in's, which each record tells of
        return None
