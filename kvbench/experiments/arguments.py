"""Reads and writes what stands in brackets behind the value of an option, as policies have it:
``--suite "numerics(dtypes=fp16)"``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from datasets_gen import unknown_name
from kvbench.experiments.suites import SUITES
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError
from policies.declaration.names import PolicyError
from policies.treatments.options import read_options, split_name

SPECIAL = ',()[]{}"'  # characters of a value that is written in double quotes
Arguments = TypeVar("Arguments", bound=BaseModel)


def read_arguments(
    what: str, text: str, kinds: Mapping[str, type[BaseModel]]
) -> tuple[str, dict[str, Any]]:
    """Returns the name in a text such as ``ray(workers=4)``, and the arguments that stand there.
    ``kinds``: the arguments of each name. ``what``: the word for a name. Raises
    :class:`KVBenchError` for an unknown name or argument."""
    name, written = split_name(text)
    if name not in kinds:
        raise KVBenchError(unknown_name(what, name, kinds))
    arguments = parse_arguments(text, written, name, kinds[name])
    return name, arguments.model_dump(exclude_unset=True)


def parse_arguments(text: str, written: str, name: str, declared: type[Arguments]) -> Arguments:
    """Returns the arguments that are ``written`` in the brackets of a text, checked; raises
    :class:`KVBenchError` for one that is not declared."""
    try:
        return read_options(text, written, _Kind(name, declared))
    except PolicyError as error:
        raise KVBenchError(str(error)) from error


@dataclass(frozen=True)
class _Kind(Generic[Arguments]):
    """Declares what a name takes, as the parser of policies wants it."""

    name: str
    options: type[Arguments]


def write_arguments(name: str, arguments: Mapping[str, Any]) -> str:
    """Writes a name with those of its arguments that are given, so that it is read again alike."""
    written = []
    for argument, value in arguments.items():
        if value is not None:
            written.append(f"{argument}={_write_value(value)}")
    return f"{name}({','.join(written)})" if written else name


def _write_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else f"[{','.join(value)}]"
    text = str(value)
    if text == text.strip() and not set(text) & set(SPECIAL):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def suite_options(text: str | None) -> dict[str, Any]:
    """Returns what ``--suite`` says, as the fields of a job."""
    if text is None:
        return {"suite": None}
    kinds = {name: suite.arguments for name, suite in SUITES.items()}
    name, arguments = read_arguments("suite", text, kinds)
    return {"suite": name, **arguments}


def write_suite(job: Job) -> str | None:
    """Writes the suite of a job as ``--suite`` takes it."""
    if job.suite is None:
        return None
    arguments: dict[str, Any] = {}
    for name in SUITES[job.suite].arguments.model_fields if job.suite in SUITES else ():
        value = getattr(job, name)
        arguments[name] = tuple(value.split(",")) if isinstance(value, str) else value
    return write_arguments(job.suite, arguments)
