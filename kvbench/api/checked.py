"""Checks that the arguments of a call are of the kinds that its function takes, as a command line
does by reading texts."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, ParamSpec, TypeVar, get_args

from kvbench.system.errors import KVBenchError

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

NONE = type(None)
IN_WORDS: Mapping[type, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    NONE: "None",
}


def check_kinds(signature: inspect.Signature, arguments: Mapping[str, Any]) -> None:
    """Raises :class:`KVBenchError` for an argument that is of another kind than its parameter,
    where that takes numbers, texts and paths alone. ``arguments``: those of a call, by name."""
    for name, value in arguments.items():
        parameter = signature.parameters[name]
        kinds = _plain_kinds(parameter.annotation)
        if not kinds:
            continue
        entries = [(name, value)]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            entries = [(name, entry) for entry in value]
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            entries = [*value.items()]
        for named, entry in entries:
            if not _fits(entry, kinds):
                expected = " or ".join(IN_WORDS[kind] for kind in kinds if kind is not NONE)
                raise KVBenchError(f"{named} is {expected}, not {entry!r:.60}")


def checked(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Makes a function check the kinds of its arguments first."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*arguments: Parameters.args, **named: Parameters.kwargs) -> Returned:
        if arguments and callable(arguments[0]):  # as a decorator without brackets has it
            raise KVBenchError(f"write @kvbench.{function.__name__}(), with brackets")
        check_kinds(signature, signature.bind(*arguments, **named).arguments)
        return function(*arguments, **named)

    return call


def _plain_kinds(annotation: Any) -> tuple[type, ...]:
    """Returns the kinds of a parameter; none where it takes what is not plain."""
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    if all(isinstance(kind, type) and kind in IN_WORDS for kind in kinds):
        return kinds
    return ()


def _fits(value: Any, kinds: tuple[type, ...]) -> bool:
    # True is a whole number to Python, and numbers of numpy are none of its own.
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, Integral):
        return int in kinds or float in kinds
    if isinstance(value, Real):
        return float in kinds
    return isinstance(value, tuple(kind for kind in kinds if kind not in (int, float)))
