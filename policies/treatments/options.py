"""Treatments are named with their options, such as ``zeros(tokens=evidence)`` or ``int4(k_bits=2)``."""

import difflib
import re
from collections.abc import Mapping
from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from policies.declaration.names import PolicyError, split_outside_brackets

NAME = re.compile(r"(?P<kind>[a-z][a-z0-9_.]*)(\((?P<options>[^()]*)\))?")
Options = TypeVar("Options", bound=BaseModel, covariant=True)


class TreatmentKind(Protocol[Options]):
    """Declares a kind of treatment: its name, and a pydantic model of its options."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> type[Options]: ...


def kind_in(name: str) -> str:
    """Returns the kind that a name with options or without begins with."""
    return name.partition("(")[0].strip()


def is_one_of(name: str, kinds: Mapping[str, object]) -> bool:
    matched = NAME.fullmatch(name)
    return matched is not None and matched["kind"] in kinds


def options_in(name: str, kind: TreatmentKind[Options]) -> Options:
    """Reads the options of a name; raises :class:`PolicyError` in one line for one that the kind has not."""
    matched = NAME.fullmatch(name)
    assert matched is not None
    given = dict[str, str]()
    for part in split_outside_brackets(matched["options"] or ""):
        option, equals, value = part.partition("=")
        if not equals:
            example = next(iter(option_names(kind)), "NAME")
            raise PolicyError(f"{name}: write options as {kind.name}({example}=...), not '{part}'")
        given[option.strip()] = value.strip()
    try:
        return kind.options.model_validate(given)
    except ValidationError as error:
        raise PolicyError(f"{name}: {_first_problem(error, kind)}") from error


def _first_problem(error: ValidationError, kind: TreatmentKind[BaseModel]) -> str:
    problem = error.errors()[0]
    option = str(problem["loc"][0]) if problem["loc"] else ""
    if problem["type"] == "extra_forbidden":
        known = option_names(kind)
        close = difflib.get_close_matches(option, known, n=1)
        meant = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
        return f"{kind.name} has no option {option}: {meant}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{option}={problem['input']}: {message}" if option else message


def option_names(kind: TreatmentKind[BaseModel]) -> list[str]:
    """Lists the options of a kind as they are written; a word of Python's own, as ``as``, is the alias of a field."""
    return [field.alias or name for name, field in kind.options.model_fields.items()]


def name_with(kind: TreatmentKind[BaseModel], options: BaseModel) -> str:
    """Returns the one name of a kind with these options: defaults are left out, and the order is as declared."""
    fields = zip(option_names(kind), options, kind.options.model_fields.values(), strict=True)
    given = [
        f"{written}={text_of(value)}"
        for written, (_, value), field in fields
        if value != field.default
    ]
    return f"{kind.name}({','.join(given)})" if given else kind.name


def text_of(value: object) -> str:
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else f"[{','.join(value)}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
