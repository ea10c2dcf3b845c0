"""The store: ``runs/<name>/run.json`` and parquet records under it, in a local folder or at any URL of fsspec.

``records/<task>/<chunk>/<policy>.parquet``, one file per (task, chunk of contexts, policy). A file is whole or not
there, so that a run that was killed goes on with what is missing.
"""

import difflib
import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from kvbench.atomic import write_atomically, write_text_atomically
from kvbench.errors import KVBenchError, first_line
from kvbench.place import is_remote
from kvbench.record import SCHEMA_VERSION, Record, arrow_schema, fault_in, fault_of_schema, fault_of_values, to_table

RUN_FILE = "run.json"
SUMMARY_FILE = "summary.json"

SAFE = " ()[]=+,"  # in the name of a file, besides letters, digits and _.-~
LONGEST_NAME = 150
PROVENANCE = ("git_revision", "git_dirty")  # parts of an identity that do not make another run
PARTS = ("tasks", "policies")  # of an identity, of which runs that are otherwise the same may share some
ASIDE = ("contexts", "tasks", "ratios", "budgets")  # of a task or policy: how much of it was run, as records tell

RECORDS = TypeAdapter(list[Record])
Status = Literal["started", "complete", "failed"]


class RunFile(BaseModel):
    """``run.json``. ``identity`` is kept as plain data: reading a run needs neither torch nor its model."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int
    status: Status
    reason: str | None
    created: str
    finished: str | None
    command: str
    identity: dict[str, Any]

    @field_validator("identity")
    @classmethod
    def _says_what_is_run(cls, identity: dict[str, Any]) -> dict[str, Any]:
        Outline.model_validate(identity)
        return identity

    @property
    def outline(self) -> "Outline":
        return Outline.model_validate(self.identity)


class _VersionOnly(BaseModel):
    schema_version: int


class NamedTask(BaseModel):
    name: str
    version: str
    contexts: NonNegativeInt
    chance: Annotated[float, Field(ge=0, le=100)]
    instruction: str
    max_new_tokens: PositiveInt


class NamedPolicy(BaseModel):
    name: str
    family: str = ""  # which earlier runs do not tell
    paper: str
    arguments: dict[str, int | float | str]
    ratios: tuple[Annotated[float, Field(ge=0, lt=1)], ...]
    budgets: tuple[PositiveInt, ...] = ()
    tasks: tuple[str, ...]


class Outline(BaseModel):
    """The part of an identity that pages are built from."""

    model: str
    device: str
    dtype: str
    seed: int
    mode: Literal["agnostic", "aware"]
    scope: str
    held_out: bool
    tasks: tuple[NamedTask, ...]
    policies: tuple[NamedPolicy, ...]

    @field_validator("tasks", "policies")
    @classmethod
    def _each_once(cls, entries: tuple[NamedTask | NamedPolicy, ...]) -> tuple[NamedTask | NamedPolicy, ...]:
        if len({entry.name for entry in entries}) < len(entries):
            raise ValueError("a name is there twice")
        return entries


class Store:
    """One run folder."""

    def __init__(self, folder: Path, run: RunFile) -> None:
        self.folder = folder
        self.run = run

    @classmethod
    def open(cls, folder: Path) -> Self:
        """An existing run; :class:`KVBenchError` if there is none, or one of another schema."""
        path = folder / RUN_FILE
        if not path.is_file():
            raise KVBenchError(_no_run(folder))
        content = path.read_bytes()
        try:
            version = _VersionOnly.model_validate_json(content).schema_version  # another has other fields
            run = RunFile.model_validate_json(content) if version == SCHEMA_VERSION else None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "all of it"
            raise KVBenchError(
                f"{path} is damaged ({where}: {first['msg']}): restore it, or delete the folder and run again"
            ) from error
        if run is None:
            raise KVBenchError(
                f"{path} has schema version {version}, this kvbench reads {SCHEMA_VERSION}: "
                "read it with the version that wrote it, or run again"
            )
        return cls(folder, run)

    @classmethod
    def start(cls, folder: Path, identity: dict[str, Any], command: str) -> Self:
        """A new run in ``folder``, or the one that is there if it is the same run."""
        if (folder / RUN_FILE).exists():
            store = cls.open(folder)
            compared = [name for name in identity if name not in PROVENANCE]
            differing = [name for name in compared if identity[name] != store.run.identity.get(name)]
            if differing:
                raise KVBenchError(
                    f"{folder} belongs to another run ({_difference(differing[0], store.run.identity, identity)}): "
                    "choose another --name, or delete that folder"
                )
            store._set(status="started", reason=None)
            _remove_partial(folder)
            return store
        _remove_partial(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise KVBenchError(f"{folder} exists and is no run of kvbench: choose another --name or --out")
        run = RunFile(
            schema_version=SCHEMA_VERSION,
            status="started",
            reason=None,
            created=_now(),
            finished=None,
            command=command,
            identity=identity,
        )
        store = cls(folder, run)
        store._write()
        return store

    @property
    def setting(self) -> dict[str, Any]:
        """What identifies the run, its tasks and policies aside: model, code, seed, mode and more."""
        return {name: part for name, part in self.run.identity.items() if name not in (*PARTS, *PROVENANCE)}

    def entry(self, part: str, name: str) -> dict[str, Any] | None:
        """A task or policy of the run, whatever of it was run; None if it has no such."""
        found = (entry for entry in self.run.identity[part] if entry["name"] == name)
        return next(({key: value for key, value in entry.items() if key not in ASIDE} for entry in found), None)

    def finish(self) -> None:
        self._set(status="complete", reason=None, finished=_now())

    def fail(self, reason: str) -> None:
        self._set(status="failed", reason=reason)

    def _set(self, **changes: Any) -> None:
        self.run = self.run.model_copy(update=changes)
        self._write()

    def _write(self) -> None:
        write_text_atomically(self.folder / RUN_FILE, self.run.model_dump_json(indent=2) + "\n")

    def record_file(self, task: str, chunk: int, policy: str) -> Path:
        """The name of a policy may hold anything, the name of a file may not."""
        name = quote(policy, safe=SAFE)
        if len(name) > LONGEST_NAME:
            name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(policy.encode()).hexdigest()[:8]}"
        return self.folder / "records" / task / f"{chunk:05d}" / f"{name}.parquet"

    def has(self, task: str, chunk: int, policy: str, count: int) -> bool:
        """Whether all ``count`` records are there and none of them failed: the next start tries again what failed."""
        path = self.record_file(task, chunk, policy)
        if not path.is_file():
            return False
        try:
            table = _table(path, columns=["policy", "status"])
        except (pa.ArrowInvalid, OSError) as error:
            raise _unreadable(path, error) from error
        rows = zip(table["policy"].to_pylist(), table["status"].to_pylist(), strict=True)
        return table.num_rows == count and set(rows) == {(policy, "ok")}

    def write_records(self, path: Path, records: list[Record]) -> None:
        """Writes or replaces one record file."""
        self.write_table(path, to_table(records))

    def write_table(self, path: Path, table: pa.Table) -> None:
        write_atomically(path, lambda partial: pq.write_table(table, partial, compression="zstd"))

    def record_files(self) -> list[Path]:
        return sorted((self.folder / "records").glob("*/*/*.parquet"))

    def read_table(self, path: Path) -> pa.Table:
        """The records of one file, as columns of the types of the schema."""
        try:
            table = _table(path)
        except (ValueError, OSError) as error:
            raise _unreadable(path, error) from error
        _refuse(path, fault_of_schema(table.schema))
        return table

    def read_records(self, path: Path) -> list[Record]:
        """The records of one file, each checked against the schema."""
        return RECORDS.validate_python(self._checked_table(path).to_pylist())

    def _checked_table(self, path: Path) -> pa.Table:
        table = self.read_table(path)
        _refuse(path, fault_in(table))
        return table

    def read_files(self) -> Iterator[tuple[Path, list[Record]]]:
        """Every record file with its records."""
        for path in self.record_files():
            yield path, self.read_records(path)

    def frame(self, possible: bool = True) -> pd.DataFrame:
        """All records as one table, in the order of the run's tasks and policies. ``possible``: whether a number that
        no measure can have is refused."""
        with ThreadPoolExecutor() as pool:  # a run has hundreds of small files
            table = pa.concat_tables([arrow_schema().empty_table(), *pool.map(self.read_table, self.record_files())])
        if not table.num_rows:
            raise KVBenchError(f"{self.folder} holds no records yet: start the run again to go on with it")
        if fault_in(table):  # all at once, as it takes as long for one file; then which of them it is
            for path in self.record_files():
                self._checked_table(path)
        if possible and (fault := fault_of_values(table)):
            raise KVBenchError(
                f"{self.folder} holds a record whose {fault}: python -m kvbench check-submission names it"
            )
        frame = _as_frame(table)
        for column in ("task", "policy"):
            plural = {"task": "tasks", "policy": "policies"}[column]
            order = [entry.name for entry in getattr(self.run.outline, plural)]
            unknown = sorted(set(frame[column]) - set(order))
            if unknown:
                raise KVBenchError(
                    f"{self.folder} holds records of the {column} '{unknown[0]}', which {RUN_FILE} does not name"
                )
            frame[column] = pd.Categorical(frame[column], categories=order, ordered=True)
        order = ["task", "policy", "budget", "ratio", "example_index", "question_id"]
        frame = frame.sort_values(order, kind="stable")
        return frame.astype({"task": str, "policy": str}).reset_index(drop=True)

    def write_json(self, name: str, content: Any) -> None:
        """Beside the records, what they add up to."""
        write_text_atomically(self.folder / name, json.dumps(content, indent=1) + "\n")


def _no_run(folder: Path) -> str:
    """That there is none, with the one beside it that was meant, if a name is near."""
    beside = folder.parent if folder.parent.is_dir() else Path()
    runs = {path.parent.name: str(path.parent) for path in beside.glob(f"*/{RUN_FILE}")}
    near = difflib.get_close_matches(folder.name, runs, n=1)
    hint = f"did you mean {runs[near[0]]}?" if near else "runs are made by python -m kvbench run"
    missing = f"{RUN_FILE} is missing" if folder.exists() else "there is no such folder"
    return f"{folder} holds no run: {missing} ({hint})"


def _table(path: Path, columns: list[str] | None = None) -> pa.Table:
    """By a handle, which any place has."""
    with path.open("rb") as file:
        return pq.ParquetFile(file).read(columns)


def _as_frame(table: pa.Table) -> pd.DataFrame:
    """Lists stay in Arrow's memory: few of them are looked at, and a million Python objects are slow to make."""
    return table.to_pandas(types_mapper=_type_of_lists)


def _type_of_lists(kind: pa.DataType) -> pd.ArrowDtype | None:
    return pd.ArrowDtype(kind) if pa.types.is_list(kind) else None


def _refuse(path: Path, fault: str) -> None:
    if fault:
        cause = ValueError(fault)
        raise _unreadable(path, cause) from cause


def _unreadable(path: Path, error: Exception) -> KVBenchError:
    return KVBenchError(f"{path} cannot be read ({first_line(error)}): delete it and start the run again")


def _remove_partial(folder: Path) -> None:
    """What a kill left half written; :func:`write_atomically` names such files so."""
    if not is_remote(folder):
        for path in folder.rglob(".*.partial"):
            path.unlink(missing_ok=True)


def _difference(name: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    before, after = (json.dumps(data.get(name)) for data in (old, new))
    if max(len(before), len(after)) > 40:
        return f"its {name} differ" if name.endswith("s") else f"its {name} differs"
    return f"its {name} is {before}, this one's {after}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
