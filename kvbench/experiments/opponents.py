"""Reads the sides of a comparison: each is a policy, a press of one's own, or the folder of a
run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kvbench.handed.scope import find_handed_policy
from kvbench.handed.tasks import name_code
from kvbench.store.run_file import RUN_FILE, Job, RunFile
from kvbench.system.errors import KVBenchError
from policies import FULL, LEVEL_KINDS, POLICIES, Level
from policies.declaration.levels import shared_levels
from policies.declaration.names import split_outside_brackets
from policies.declaration.plug_in import is_plug_in


def is_run(text: str) -> bool:
    """Tells whether a side is a folder: it holds a run, or is written as a path and names no
    press."""
    if text in POLICIES or find_handed_policy(text) is not None or is_plug_in(text):
        return False
    return (Path(text) / RUN_FILE).is_file() or "/" in text or text in (".", "..")


@dataclass(frozen=True)
class Opponents:
    """Holds what ``--against`` names: policies to be run, and folders of runs whose answers are
    there."""

    policies: tuple[str, ...]
    folders: tuple[Path, ...]

    @classmethod
    def of(cls, against: str) -> Self:
        """Reads the text of the option. Raises :class:`KVBenchError` where it names nothing."""
        policies: list[str] = []
        folders: list[Path] = []
        for word in dict.fromkeys(split_outside_brackets(against)):
            if is_run(word):
                folders.append(Path(word))
            else:
                policies.append(word)
        if not policies and not folders:
            raise KVBenchError(
                "--against names nothing: give policies, file.py:Press, or folders of runs"
            )
        return cls(tuple(policies), tuple(folders))


def job_like(run: RunFile, press: str, name: str, from_command: Mapping[str, Any]) -> Job:
    """Returns the job that asks a press what a stored run asked the policy of that name.
    ``from_command``: the options that stand on the command line, which count before those of the
    run. Raises :class:`KVBenchError` for a task of code that only the stored run names."""
    job = run.job or Job(model=run.identity.model, seed=run.identity.seed, mode=run.identity.mode)
    stored = run.identity.policy(name)
    levels: dict[str, str] = {}
    if stored is not None:
        for kind, values in stored.levels.items():
            levels[kind] = ",".join(map(str, values))
    options = job.model_dump()
    options["levels"] = levels
    # A run that was asked in the faster type has that of its machine.
    options["dtype"] = run.identity.dtype
    # The options of studies, which change no answer, are none of a comparison's.
    for option in ("suite", "observe", "dtypes", "sampling", "deterministic", "directions"):
        options[option] = None
    code = name_code((job.tasks or "").split(","))
    if code and "tasks" not in from_command:
        raise KVBenchError(f"the run asks a task of Python code: give --tasks {code} to run it")
    if job.suite is not None and job.tasks is None:
        options["tasks"] = ",".join(task.name for task in run.identity.tasks)
    options |= {"press": press, "policies": FULL, "controls": False}
    # What stood behind the tasks of the run still does, unless something else is task_options.
    task_options = {**options["task_options"], **from_command.get("task_options", {})}
    return Job.of({**options, **from_command, "task_options": task_options})


def check_common_level(
    name: str, mine: Sequence[Level], theirs: Sequence[Level], folder: Path
) -> None:
    """Raises :class:`KVBenchError` where a policy of a stored run has no level of the policy that
    is compared with."""
    if shared_levels(mine, theirs):
        return
    levels = sorted(theirs, key=lambda level: level.amount)
    option = LEVEL_KINDS[levels[0].kind].option
    values = ",".join(str(level) for level in levels if level.kind == levels[0].kind)
    here = ", ".join(level.where for level in mine)
    raise KVBenchError(
        f"{folder} has {name} at no level that it has here ({here}): give {option} {values}"
    )
