"""Makes a function of the library what a command line is: the same checks, the same errors, and
options that are texts, whatever was handed in."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from kvbench.api.arguments import hand_in
from kvbench.api.checked import check_kinds
from kvbench.cli.result import UnmasteredError
from kvbench.cli.words import check_interpreter, check_word
from kvbench.handed.scope import Handed, handed_values, handing_in
from kvbench.system.errors import KVBenchError, as_user_error
from policies import LazyModule
from policies.declaration.levels import LEVEL_KINDS

opening = LazyModule("kvbench.models.opening")  # needs torch

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


@dataclass(frozen=True)
class Call:
    """Holds what a function of the library was called with."""

    # All of its arguments, also those that were not given, as the command line has them.
    values: Mapping[str, Any]
    explicit: frozenset[str]  # the arguments that were given
    changed: Sequence[str]  # those of them that have another value than their default
    handed: Handed  # what of them is in memory

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def levels(self) -> dict[str, str]:
        """Returns the text of each kind of level that was given, such as ``ratios``, by kind."""
        texts: dict[str, str] = {}
        for kind in LEVEL_KINDS.values():
            text = self.values[kind.plural]
            if text is not None:
                texts[kind.name] = text
        return texts

    def path(self, name: str) -> Path | None:
        """Returns a folder that was given; None where none was."""
        value = self.values[name]
        return None if value is None else Path(value)


def library_call(
    function: Callable[Concatenate[Call, Parameters], Returned],
) -> Callable[Parameters, Returned]:
    """Makes a public function of one that takes a :class:`Call` before its other arguments. What
    is in memory has names for as long as it runs, and every error of a user is a
    :class:`~kvbench.system.errors.KVBenchError`."""
    _, *others = inspect.signature(function).parameters.values()
    public = inspect.signature(function).replace(parameters=others)

    @wraps(function)
    def call(*arguments: Parameters.args, **named: Parameters.kwargs) -> Returned:
        bound = public.bind(*arguments, **named)
        explicit = frozenset(bound.arguments)
        changed = _changed(public, bound.arguments)
        bound.apply_defaults()
        try:
            check_interpreter()
            check_kinds(public, bound.arguments)
            texts, handed = hand_in(bound.arguments, explicit)
            for name, value in texts.items():
                _check(name, value)
            with ExitStack() as stack:
                if handed.model is not None:
                    stack.enter_context(opening.left_as_it_was(handed.model))
                stack.enter_context(handing_in(handed))
                return function(
                    Call(handed_values(texts, handed), explicit, changed, handed),
                    *arguments,
                    **named,
                )
        except Exception as error:
            if (explained := as_user_error(error)) is None:
                raise
            for line in _advice(explained):
                explained.add_note(line)
            # In one line, without what called what to find it.
            raise explained.with_traceback(None) from None

    vars(call)["__signature__"] = public
    return call


def _advice(error: KVBenchError) -> list[str]:
    """Returns what a command prints beside an error: the answers of a model that has too few right,
    and what may help."""
    if not isinstance(error, UnmasteredError):
        return []
    answers = []
    for row in error.table.plain():
        answers.append(", ".join(f"{name}: {value}" for name, value in row.items()))
    return [*answers, *error.remedies]


def _changed(signature: inspect.Signature, arguments: Mapping[str, Any]) -> list[str]:
    """Names the arguments of a call that have another value than their default."""
    changed = []
    for name, value in arguments.items():
        default = signature.parameters[name].default
        # What is in memory is no default, and may not be compared with one, as an array.
        is_plain = isinstance(value, str | int | float | Path | None)
        if not is_plain or value != default:
            changed.append(name)
    return changed


def _check(name: str, value: object) -> None:
    """Raises :class:`KVBenchError` for a text or a number that no command would take."""
    if isinstance(value, str | int | float | Path) and not isinstance(value, bool):
        check_word(str(value), option=f"--{name}")
