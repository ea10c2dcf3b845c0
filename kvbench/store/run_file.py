"""``run.json``: the identity of a run, the options that made it, and how far it has come."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from datasets_gen.tasks.ifeval import Placement
from kvbench.engine.treat.time_limit import CELL_SECONDS
from kvbench.prompts.answers import AnswerPrefix
from kvbench.prompts.mode import Mode, Scope
from kvbench.store.identity import Identity
from kvbench.store.tables import SCHEMA_VERSION
from kvbench.system.errors import KVBenchError, fault_of_fields

RUN_FILE = "run.json"

Status = Literal["started", "complete", "failed"]


class Job(BaseModel):
    """The options of ``run`` or ``compare`` that decide which records it makes, as they were given. Their help says
    what each of them is; their defaults are those of the command line."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = "reference"
    device: str = "auto"
    dtype: str = "auto"
    device_map: Literal["auto"] | None = None
    suite: str | None = None
    tasks: str | None = None
    press: str | None = None  # of ``compare``; ``run`` has none, and controls beside its policies
    policies: str | None = None  # of ``compare``: the others
    controls: bool = True  # beside the policies of a ``run``; the full cache always is, and ``claims`` needs no other
    levels: dict[str, str] = {}  # the text of each kind's option
    repeats: int | None = None  # 1, or what the suite has
    profile: str = "quick"
    limit: int | None = None
    phrasings: Literal["common", "held-out"] = "common"
    context_tokens: int | Literal["usual"] | None = (
        None  # usual: as many as each task has in a run; None: its own length
    )
    depth: float | None = None
    data: Path | None = None
    defence: Placement | None = None
    essays: Path | None = None
    max_new_tokens: int | None = None
    answer_prefix: AnswerPrefix = "auto"
    difficulty: str | None = None  # a level for all tasks, or task=level,task=level; None: the highest of each
    dtypes: str | None = None  # of the study of numerics
    sampling: str | None = None  # likewise
    seed: int = 0
    mode: Mode = "agnostic"
    compress: Scope | None = None
    observe: str | None = None  # tables, beside those of the suite
    keep_attention: bool = False
    cell_seconds: float = CELL_SECONDS
    max_kv_gb: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_removed_options(cls, given: Any) -> Any:
        """Leaves out an option that runs once took, so that an earlier run.json is read and not called damaged."""
        return {name: value for name, value in given.items() if name != "deterministic"} if given else given

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Takes the options of a command that are a job's; the others do not decide what a run records."""
        return cls.model_validate({name: value for name, value in options.items() if name in cls.model_fields})


class RunFile(BaseModel):
    """The content of ``run.json``. Reading it needs neither torch nor the run's model."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int
    status: Status
    reason: str | None  # why it failed
    created: str
    finished: str | None
    command: str  # as it was typed
    job: Job | None = None  # none where Python code made the run
    identity: Identity


class _VersionOnly(BaseModel):
    schema_version: int


def read_run_file(folder: Path) -> RunFile:
    """Reads the ``run.json`` of a folder; :class:`KVBenchError` where there is none, or one of another schema."""
    path = folder / RUN_FILE
    if not path.is_file():
        raise KVBenchError(_no_run(folder))
    content = path.read_bytes()
    try:
        version = _VersionOnly.model_validate_json(content).schema_version  # another has other fields
        run = RunFile.model_validate_json(content) if version == SCHEMA_VERSION else None
    except ValidationError as error:
        raise KVBenchError(
            f"{path} is damaged ({fault_of_fields(error)}): restore it, or delete the folder and run again"
        ) from error
    if run is None:
        raise KVBenchError(
            f"{path} was written by kvbench with record schema {version}; this one reads {SCHEMA_VERSION}: run it "
            "again, or read it with the version that wrote it"
        )
    return run


def _no_run(folder: Path) -> str:
    """Says that a folder holds no run, and names the run beside it that may be meant."""
    beside = folder.parent if folder.parent.is_dir() else Path()
    runs = {path.parent.name: str(path.parent) for path in beside.glob(f"*/{RUN_FILE}")}
    near = difflib.get_close_matches(folder.name, runs, n=1)
    hint = f"did you mean {runs[near[0]]}?" if near else "runs are made by python -m kvbench run"
    missing = f"{RUN_FILE} is missing" if folder.exists() else "there is no such folder"
    return f"{folder} holds no run: {missing} ({hint})"
