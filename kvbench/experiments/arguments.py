"""Reads and writes what stands in brackets behind the value of an option, as policies have it:
``--suite "numerics(dtypes=fp16)"``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, Field

from datasets_gen import Task, unknown_name
from kvbench.engine.time_limit import CELL_SECONDS
from kvbench.experiments.data import with_data
from kvbench.experiments.task_options import options_by_task
from kvbench.handed.tasks import find_task
from kvbench.prompts.context_length import lengthen_by_tokenizer
from kvbench.prompts.mode import Mode, Scope
from kvbench.store.run_file import EVERY_TASK, Job, TaskOptions
from kvbench.studies.declaration import NoArguments
from kvbench.studies.registry import SUITES
from kvbench.system.errors import KVBenchError
from policies.declaration.names import PolicyError, split_outside_brackets
from policies.treatments.options import read_options, split_name

SPECIAL = ',()[]{}"'  # characters of a value that is written in double quotes


class LocalArguments(NoArguments):
    """Declares what any executor takes in brackets."""

    cell_seconds: float | None = None  # that a press may take with one context


class RayArguments(LocalArguments):
    """Declares what ``--executor ray`` takes in brackets besides."""

    address: str | None = None  # of a cluster: auto or HOST:PORT; None starts one on this machine
    workers: int | None = None  # at most; as many as there is room for
    cpus: float | None = None  # of each worker; 1
    gpus: float | None = None  # of each worker; 1 if there are any and the device is no processor


class ModeArguments(NoArguments):
    """Declares what ``--mode`` takes in brackets."""

    compress: Scope | None = None  # any context, or only system prompts


class DeviceArguments(NoArguments):
    """Declares what ``--device`` of ``run`` takes in brackets."""

    device_map: Literal["auto"] | None = Field(None, alias="map")  # over all GPUs of a worker


EXECUTORS: Mapping[str, type[BaseModel]] = {"local": LocalArguments, "ray": RayArguments}
MODES: Mapping[str, type[BaseModel]] = dict.fromkeys((*get_args(Mode), "both"), ModeArguments)
DEVICES: Mapping[str, type[BaseModel]] = dict.fromkeys(("auto", "cpu", "cuda"), DeviceArguments)
Arguments = TypeVar("Arguments", bound=BaseModel)


def read_arguments(
    noun: str, text: str, kinds: Mapping[str, type[BaseModel]]
) -> tuple[str, dict[str, Any]]:
    """Returns the name in a text such as ``ray(workers=4)``, and the arguments that stand there.
    ``kinds``: the arguments of each name. ``noun``: the word for a name. Raises
    :class:`KVBenchError` for an unknown name or argument, and for brackets that hold none."""
    name, written = _split_arguments(text)
    if name not in kinds:
        raise KVBenchError(unknown_name(noun, name, kinds))
    arguments = parse_arguments(text, written, name, kinds[name])
    return name, arguments.model_dump(exclude_unset=True)


def _split_arguments(text: str) -> tuple[str, str]:
    """Splits ``name(arguments)`` into both. Raises :class:`KVBenchError` for brackets that hold no
    argument, as in ``base(,)``: something was meant to stand there."""
    name, written = split_name(text)
    if name != text.strip() and not split_outside_brackets(written):
        advice = f"write {name} alone, or put options into the brackets"
        raise KVBenchError(f"{text.strip()}: nothing stands in the brackets: {advice}")
    return name, written


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
    if not written:
        return name
    return f"{name}({','.join(written)})"


def _write_value(value: object) -> str:
    if value is True:
        return "yes"
    if value is False:
        return "no"
    # A comma outside of brackets would begin the next argument.
    if isinstance(value, tuple) and len(value) > 1:
        return f"[{','.join(value)}]"
    if isinstance(value, tuple):
        (value,) = value
    text = str(value)
    if text == text.strip() and not set(text) & set(SPECIAL):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def suite_options(text: str | None) -> dict[str, Any]:
    """Returns what ``--suite`` says, as the fields of a job; raises :class:`KVBenchError` for a
    suite that there is not."""
    if text is None:
        return {"suite": None}
    named, _ = split_name(text)
    if named not in SUITES:
        raise KVBenchError(unknown_name("suite", named, SUITES))
    # Only the suite that is named is imported, and not all of them.
    name, arguments = read_arguments("suite", text, {named: SUITES[named].arguments})
    return {"suite": name, **arguments}


def write_suite(job: Job) -> str | None:
    """Writes the suite of a job as ``--suite`` takes it."""
    if job.suite is None:
        return None
    arguments: dict[str, Any] = {}
    # A stored run may name a suite that is gone by now.
    for name in SUITES[job.suite].arguments.model_fields if job.suite in SUITES else ():
        value = getattr(job, name)
        arguments[name] = tuple(value.split(",")) if isinstance(value, str) else value
    return write_arguments(job.suite, arguments)


def task_options(text: str | None) -> dict[str, Any]:
    """Returns what ``--tasks`` says, as the fields of a job: the names, and by name what stands
    behind it in brackets. ``all(...)`` names no task: it is for each that takes its options. Raises
    :class:`KVBenchError` for a task that has options twice."""
    if text is None or "(" not in text:
        return {"tasks": text, "task_options": {}}
    names, options_by_word = [], dict[str, TaskOptions]()
    for word in split_outside_brackets(text):
        name, options = one_task(word)
        if options is not None and name in options_by_word:
            raise KVBenchError(f"--tasks has {name} twice with options: name it once")
        if options is not None:
            options_by_word[name] = options
        if options is None or name != EVERY_TASK:
            names.append(name)
    return {"tasks": ",".join(names) or None, "task_options": options_by_word}


def one_task(text: str) -> tuple[str, TaskOptions | None]:
    """Returns the name of a task, or its file, and what stands behind it in brackets, if anything.
    Raises :class:`KVBenchError` for an option that no task takes, and for brackets without one."""
    name, written = _split_arguments(text)
    if not written:
        return name, None
    return name, parse_arguments(text, written, name, TaskOptions)


def write_tasks(job: Job) -> str | None:
    """Writes the tasks of a job as ``--tasks`` takes them."""
    if not job.task_options:
        return job.tasks
    options_by_word = dict(job.task_options)
    words = split_outside_brackets(job.tasks or "")
    if len(words) == 1 and [*options_by_word] == [EVERY_TASK]:
        options_by_word = {words[0]: options_by_word[EVERY_TASK]}  # as in earlier runs of one task
    written = []
    for word in dict.fromkeys((*words, *options_by_word)):
        options = options_by_word.get(word, TaskOptions())
        written.append(write_arguments(word, dict(options)))
    return ",".join(written)


def job_values(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a command with what stands in their brackets, as fields of a job."""
    values = dict(params)
    if "suite" in params:
        values |= suite_options(params["suite"])
    if "tasks" in params:
        values |= task_options(params["tasks"])
    if "executor" in params:
        values |= executor_options(params["executor"])
    for option, kinds in (("mode", MODES), ("device", DEVICES)):
        if option in params:
            name, arguments = read_arguments(option, params[option], kinds)
            values |= {option: name, **arguments}
    return values


def executor_options(text: str) -> dict[str, Any]:
    """Returns what ``--executor`` says: its name, the bound on a press, which is a job's, and the
    ``cluster`` of Ray."""
    name, cluster = read_arguments("executor", text, EXECUTORS)
    values: dict[str, Any] = {"executor": name, "cluster": cluster}
    if "cell_seconds" in cluster:
        values["cell_seconds"] = cluster.pop("cell_seconds")
    return values


def write_executor(job: Job) -> str | None:
    """Writes the bound on a press as ``--executor`` takes it; None where it is the default."""
    if job.cell_seconds == CELL_SECONDS:
        return None
    return write_arguments("local", {"cell_seconds": job.cell_seconds})


def task_with_options(text: str, tokenizer: str | None, tokens: int | None) -> Task:
    """Returns one task with what stands behind it in brackets, and with contexts of so many tokens.
    Raises :class:`KVBenchError` for an option that it does not take."""
    name, options = one_task(text)
    task = find_task(name)
    if options is None:
        options = TaskOptions()
    if options.prefix is not None:
        raise KVBenchError(f"{name}(prefix=...) begins the answers of a model, and none is asked")
    if options.limit is not None:
        raise KVBenchError(f"{name}(limit=...): one task is asked for here: give --limit instead")
    (with_rows,) = with_data([task], options_by_task([task], {name: options}))
    return lengthen_by_tokenizer(tokenizer, with_rows, tokens, options.depth)
