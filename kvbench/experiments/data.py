"""Gives the task ``ifeval`` its rows, from a file or from its data set on the hub."""

import importlib
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import constants

from datasets_gen import Directive, Task
from datasets_gen.tasks.ifeval import IFEVAL, Placement, ifeval_of
from datasets_gen.tasks.ifeval_rows import Row, read_rows, rows_of
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.hub import fault_of_hub
from leaderboards.metrics import MetricError
from leaderboards.metrics.judges.ifeval import check_directives, official

HUB = "google/IFEval"


def with_data(
    tasks: Sequence[Task], data: Path | None, defence: Placement | None, otherwise: Placement = "none"
) -> list[Task]:
    """Returns the tasks, with rows in ``ifeval``. ``otherwise`` is the place of the defence if none is given."""
    if IFEVAL not in tasks:
        if data is not None or defence is not None:
            names = ", ".join(task.name for task in tasks)
            raise KVBenchError(f"--data and --defence are for the task {IFEVAL.name}, not for {names}")
        return list(tasks)
    ifeval = ifeval_of(read_rows(data) if data is not None else hub_rows(), defence or otherwise)
    return [ifeval if task is IFEVAL else task for task in tasks]


def check_judges(tasks: Sequence[Task], mode: str) -> None:
    """Raises :class:`KVBenchError` if a directive of ifeval cannot be judged, or its contexts cannot be compressed in
    this mode. It runs before anything is loaded."""
    for task in (task for task in tasks if task.name == IFEVAL.name):
        if mode == "aware" and task.role == "user":
            raise KVBenchError("--mode aware: plain rows of ifeval hold their request already: use --mode agnostic")
        try:
            official()
            check_directives(_directives_of(task))
        except MetricError as error:
            raise KVBenchError(str(error)) from error


def _directives_of(task: Task) -> list[tuple[str, Directive]]:
    examples = task.generate(0, task.most or 1)
    return [(one.id, directive) for one in examples for question in one.questions for directive in question.directives]


def hub_rows() -> tuple[Row, ...]:
    """Loads all rows of the data set from the hub, or from an earlier download."""
    datasets = importlib.import_module("datasets")  # takes a second, and few commands need it
    fault = fault_of_hub()
    if fault:  # the library would ask for each file again and again
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    datasets.disable_progress_bars()
    try:
        loaded = datasets.load_dataset(HUB, split="train")
    except Exception as error:  # the network, the hub and the cache raise anything
        raise KVBenchError(
            f"{HUB} cannot be loaded ({fault or f'{type(error).__name__}: {first_line(error)}'}): "
            "give a local file of its rows with --data"
        ) from error
    return rows_of(((f"{HUB}, row {number}", row) for number, row in enumerate(loaded, 1)), HUB)
