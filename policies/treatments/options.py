"""Treatments are named with their options, such as ``zeros(tokens=evidence)`` or
``int4(k_bits=2)``."""

import difflib
import re
from collections.abc import Mapping
from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from policies.declaration.names import PolicyError, split_outside_brackets

# Brackets do not nest: options are plain values, or lists in square brackets.
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


def has_kind(name: str, kinds: Mapping[str, object]) -> bool:
    matched = NAME.fullmatch(name)
    return matched is not None and matched["kind"] in kinds


def options_in(name: str, kind: TreatmentKind[Options]) -> Options:
    """Reads the options of a name; raises :class:`PolicyError` in one line for one that the kind
    has not."""
    matched = NAME.fullmatch(name)
    assert matched is not None
    return read_options(name, matched["options"] or "", kind)


def split_name(text: str) -> tuple[str, str]:
    """Splits ``name(options)`` into both; without a bracket at its end a text is all name, as that
    of a file may be."""
    name, bracket, options = text.strip().partition("(")
    if bracket and options.endswith(")"):
        return name.strip(), options[:-1]
    return text.strip(), ""


def read_options(name: str, text: str, kind: TreatmentKind[Options]) -> Options:
    """Reads what stands between the brackets of a name; raises :class:`PolicyError` in one line for
    one that the kind has not. A value in double quotes may hold commas and brackets."""
    options = dict[str, str]()
    for part in split_outside_brackets(text):
        option, equals, value = part.partition("=")
        if not equals:
            example = next(iter(option_names(kind)), "NAME")
            raise PolicyError(f"{name}: write options as {kind.name}({example}=...), not '{part}'")
        options[option.strip()] = _without_quotes(value.strip())
    try:
        # All values are texts, in which pydantic finds the numbers.
        return kind.options.model_validate(options)
    except ValidationError as error:
        raise PolicyError(f"{name}: {_first_problem(error, kind)}") from error


def _without_quotes(value: str) -> str:
    """Returns a value as it is meant: within quotes, a quote is written twice."""
    is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
    return value[1:-1].replace('""', '"') if is_quoted else value


def _first_problem(error: ValidationError, kind: TreatmentKind[BaseModel]) -> str:
    # The first alone, as an error is one line.
    problem = error.errors()[0]
    option = str(problem["loc"][0]) if problem["loc"] else ""
    if problem["type"] == "extra_forbidden":
        names = option_names(kind)
        if not names:
            return f"{kind.name} takes no options: leave {option} out"
        close = difflib.get_close_matches(option, names, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        return f"{kind.name} has no option {option}: {meant}it has {', '.join(names)}"
    # pydantic sets this before what a validator says.
    message = problem["msg"].removeprefix("Value error, ")
    if option:
        return f"{option}={problem['input']}: {message}"
    return message


def option_names(kind: TreatmentKind[BaseModel]) -> list[str]:
    """Lists the options of a kind as they are written; a word of Python's own, as ``as``, is the
    alias of a field."""
    fields = kind.options.model_fields
    return [field.alias or name for name, field in fields.items()]


def name_with(kind: TreatmentKind[BaseModel], options: BaseModel) -> str:
    """Returns the one name of a kind with these options: defaults are left out, and the order is as
    declared."""
    changed = []
    fields = kind.options.model_fields.values()
    for written, (_, value), field in zip(option_names(kind), options, fields, strict=True):
        if value != field.default:
            changed.append(f"{written}={option_text(value)}")
    if changed:
        return f"{kind.name}({','.join(changed)})"
    return kind.name


def option_text(value: object) -> str:
    """Returns the value of an option as it is written: 0.01, or [0,2] for several parts."""
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else f"[{','.join(value)}]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
