"""Turns the arguments of a call into options as the command line has them: texts, and names for
what is in memory."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_gen import KNOWN_TASKS, Task, questions_task
from kvbench.api.results import RunResult
from kvbench.experiments.catalogue import known_policies
from kvbench.handed.scope import IN_MEMORY, Handed, HandedModel
from kvbench.handed.tasks import with_code
from kvbench.models.names import SHIPPED, reference_folder
from kvbench.system.errors import KVBenchError
from policies import LazyModule, PolicyError
from policies.declaration.levels import LEVEL_KINDS

if TYPE_CHECKING:
    from policies import Policy

datasets = LazyModule("datasets")
in_memory = LazyModule("policies.declaration.in_memory")  # needs kvpress

LISTS = ("observe",)  # options that take several names
OF_PRESSES = ("press", "policies", "against", "beside")  # options that take presses


def hand_in(values: Mapping[str, Any], explicit: Set[str]) -> tuple[dict[str, Any], Handed]:
    """Returns the arguments of a call as options, and what of them is in memory. ``explicit``: the
    arguments that stand in the call. Raises :class:`KVBenchError` for what no option can be."""
    texts: dict[str, Any] = dict(values)
    presses = PressesInMemory()
    for option in OF_PRESSES:
        if option in texts:
            texts[option] = presses.join_names(option, texts[option])
    tasks = TasksInMemory()
    if "tasks" in texts:
        texts["tasks"] = tasks.join_names(texts["tasks"])
    for option in LISTS:
        if option in texts:
            texts[option] = _join_names(option, texts[option])
    for kind in LEVEL_KINDS.values():
        if kind.plural in texts:
            texts[kind.plural] = level_text(kind.option, texts[kind.plural])
    if isinstance(texts.get("context_tokens"), int):
        texts["context_tokens"] = str(texts["context_tokens"])
    model = None
    if "model" in texts:
        texts["model"], model = _read_model(texts["model"], texts.pop("tokenizer", None), explicit)
    return texts, Handed(model, presses.policies, tasks.tasks)


def _read_model(model: Any, tokenizer: Any, explicit: Set[str]) -> tuple[str, HandedModel | None]:
    """Returns the name of a model, and the model where it is in memory. Raises
    :class:`KVBenchError` for options that are for a model which is loaded."""
    if isinstance(model, tuple) and len(model) == 2:
        model, tokenizer = model
    if isinstance(model, str | Path):
        if tokenizer is not None:
            raise KVBenchError(f"{model} has its tokenizer in its files: leave tokenizer out")
        return str(model), None
    for option in ("device", "dtype"):
        if option in explicit:
            raise KVBenchError(f"the model is in memory, and runs as it is: leave {option} out")
    handed = HandedModel(_name_model(model), model, tokenizer)
    return handed.name, handed


def _name_model(network: Any) -> str:
    """Names a model in memory by what it was loaded from, else by its class."""
    place = str(getattr(getattr(network, "config", None), "_name_or_path", "") or "")
    for name in SHIPPED:
        if place and Path(place) == reference_folder(name):
            return name + IN_MEMORY
    base = Path(place).name if place else type(network).__name__
    return base + IN_MEMORY


@dataclass
class PressesInMemory:
    """Collects the presses of a call that are in memory, each under a name."""

    policies: "dict[str, Policy]" = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)  # what each name was made of

    def join_names(self, option: str, value: Any) -> str | None:
        """Joins the names of presses as an option takes them. Raises :class:`KVBenchError` for what
        is no press, and for two of one name."""
        if value is None or isinstance(value, str):
            return value
        entries = value if isinstance(value, list | tuple) else [value]
        return ",".join(self._name(option, entry) for entry in entries)

    def _name(self, option: str, entry: Any) -> str:
        if isinstance(entry, str | Path):
            return str(entry)
        if isinstance(entry, RunResult):
            return str(entry.folder)
        try:
            policy: Policy = in_memory.policy_in_memory(entry)
        except PolicyError as error:
            raise KVBenchError(f"{option}: {error}") from error
        registered = known_policies().get(policy.name)
        if registered is not None and registered is not entry:
            # By its name a run would find the other one.
            raise KVBenchError(f"{option}: kvbench has a policy {policy.name} itself: rename yours")
        if self.objects.setdefault(policy.name, entry) is not entry:
            raise KVBenchError(f"two policies are named '{policy.name}': rename yours")
        self.policies[policy.name] = policy
        return policy.name


@dataclass
class TasksInMemory:
    """Collects the tasks of a call that are in memory, each under a name."""

    tasks: dict[str, Task] = field(default_factory=dict)

    def join_names(self, value: Any) -> str | None:
        """Joins the names of tasks as ``--tasks`` takes them. Raises :class:`KVBenchError` for what
        is no task, and for two of one name."""
        if value is None or isinstance(value, str):
            return value
        is_one = isinstance(value, Path | Task) or _is_rows(value)
        if not is_one and not isinstance(value, list | tuple):
            advice = "names, files, lists of dicts, a Dataset, or what kvbench.task makes"
            raise KVBenchError(f"tasks are {advice}, not a {type(value).__name__}")
        return ",".join(self._name(entry) for entry in ([value] if is_one else value))

    def _name(self, entry: Any) -> str:
        if isinstance(entry, str | Path):
            return str(entry)
        if _is_rows(entry):
            name = self._free_name(_name_rows(entry))
            rows = ((f"{name}, row {number}", row) for number, row in enumerate(entry, 1))
            entry = questions_task(name, rows)
        if not isinstance(entry, Task):
            raise KVBenchError(
                f"an object of type {type(entry).__name__} is no task: give a name, a file, a Dataset, or a list of "
                "dicts with context, question and answers"
            )
        task = with_code(entry, entry.name)
        if self.tasks.setdefault(task.name, task) != task:
            raise KVBenchError(f"two tasks are named '{task.name}': rename yours")
        return task.name

    def _free_name(self, name: str) -> str:
        """Returns a name that no other task has."""
        number = 1
        free = f"my_{name}" if name in KNOWN_TASKS else name
        while free in self.tasks:
            number += 1
            free = f"{name}_{number}"
        return free


def _is_rows(value: Any) -> bool:
    """Tells whether a value is the rows of a task: a Dataset, or a list of dicts."""
    if _is_of_datasets(value):
        return isinstance(value, datasets.Dataset)
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(isinstance(row, Mapping) and not _is_of_datasets(row) for row in value)


def _is_of_datasets(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "datasets"


def _name_rows(rows: Any) -> str:
    """Names a task by its data set, where that has a name."""
    info = getattr(rows, "info", None)
    name = str(getattr(info, "dataset_name", None) or "questions")
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "questions"


def _join_names(option: str, value: object) -> str | None:
    """Joins names as an option takes them."""
    if value is None or isinstance(value, str):
        return value
    names: list[str] = []
    for entry in value if isinstance(value, Sequence) else [value]:
        if not isinstance(entry, str | Path):
            raise KVBenchError(f"--{option} takes names, not a {type(entry).__name__}")
        names.append(str(entry))
    return ",".join(names)


def level_text(option: str, values: Any) -> str | None:
    """Writes levels as their option takes them: numbers, one number, or a text. Raises
    :class:`KVBenchError` for what is no number.

    >>> level_text("--ratios", [0.25, 0.5]), level_text("--ratios", "0.1:0.9:0.2")
    ('0.25,0.5', '0.1:0.9:0.2')
    """
    if values is None or isinstance(values, str):
        return values
    listed = values if isinstance(values, Sequence) else [values]
    try:
        return ",".join(f"{float(value):.12g}" for value in listed)
    except (TypeError, ValueError) as error:
        raise KVBenchError(f"{option} takes numbers, not {values!r:.60}") from error
