"""The store: ``runs/<name>/run.json`` and the tables of a run under it.

``contexts/<task>/<chunk>.parquet`` and ``questions/<task>/<chunk>.parquet`` say once what
``records/<task>/<chunk>/<policy>.parquet`` is about, one file per (task, chunk of contexts,
policy). A file is whole or not there, and records are written last, so that a run that was killed
goes on with what is missing. A run that is packed (:mod:`kvbench.store.packing`) has one file for
each table beside its ``run.json``, and is read like any other.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel

from kvbench.store.run_file import RUN_FILE, Identity, Job, RunFile, read_run_file
from kvbench.store.tables import (
    CONTEXTS,
    JOINED,
    QUESTIONS,
    RECORDS,
    SCHEMA_VERSION,
    StoredAnswer,
    StoredTable,
    find_table,
    is_known,
)
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.files import file_name, remove_partial, write_atomically, write_text_atomically
from leaderboards.metrics import METRICS, Metric

SUMMARY_FILE = "summary.json"


def write_parquet(path: Path, table: pa.Table, is_packed: bool = False) -> None:
    """Writes a table whole or not at all. The types of its columns are those of parquet: a second
    schema, and least and greatest values that nobody asks for, would be more than half of such a
    file. ``is_packed``: in a sixth fewer bytes, which take longer to write."""
    options: dict[str, Any] = {}
    if is_packed:
        # Likelihoods hardly repeat, and their bytes are alike by place.
        by_bytes: list[str] = []
        by_dictionary: list[str] = []
        for field in table.schema:
            is_number = pa.types.is_floating(field.type)
            (by_bytes if is_number else by_dictionary).append(field.name)
        options = {"compression_level": 19, "use_byte_stream_split": by_bytes}
        options["use_dictionary"] = by_dictionary
    write_atomically(path, lambda partial: _write(partial, table, options))


def _write(file: Path, table: pa.Table, options: Mapping[str, Any]) -> None:
    with pq.ParquetWriter(
        file,
        table.schema,
        compression="zstd",
        write_statistics=False,
        store_schema=False,
        **options,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(table.schema.metadata or {})


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> tuple[pa.Schema, pa.Table]:
    """Returns the schema with all columns of a file, and its rows with the columns that are asked
    for, by default all. Raises :class:`KVBenchError` for a file that is no parquet or is damaged.
    """
    # By a handle, which any place has. And without threads, those that read ahead among them: a
    # process that ends while a thread of pyarrow starts is aborted ("terminate called without an
    # active exception"; 4 of 25 runs that ended with an error had it).
    try:
        with path.open("rb") as file:
            parquet = pq.ParquetFile(file, pre_buffer=False)
            schema = parquet.schema_arrow
            chosen = None if columns is None else [name for name in schema.names if name in columns]
            return schema, parquet.read(chosen, use_threads=False)
    except (ValueError, OSError) as error:
        raise KVBenchError(
            f"{path} cannot be read ({first_line(error)}): delete it and start the run again"
        ) from error


class Store:
    """One run folder."""

    def __init__(self, folder: Path, run: RunFile) -> None:
        self.folder = folder
        self.run = run

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Opens an existing run; raises :class:`KVBenchError` if there is none, or one of another
        schema."""
        return cls(folder, read_run_file(folder))

    @classmethod
    def start(cls, folder: Path, identity: Identity, command: str, job: Job | None = None) -> Self:
        """Starts a new run in ``folder``, or resumes the one that is there if it is the same run.
        Raises :class:`KVBenchError` where the folder holds anything else."""
        remove_partial(folder)
        if (folder / RUN_FILE).exists():
            store = cls.open(folder)
            if store.is_packed:
                raise KVBenchError(
                    f"{folder} is packed, and nothing is added to it: give the run another name"
                )
            if store._differs_in_what_failed_alone(identity):
                store._set(identity=identity)
            if identity.differences(store.identity):
                other = f"another run ({identity.described_against(store.identity)})"
                raise KVBenchError(
                    f"{folder} belongs to {other}: give the run another name, or delete that folder"
                )
            store._set(status="started", reason=None)
            return store
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise KVBenchError(
                f"{folder} exists and is no run of kvbench: choose another name, or another --out"
            )
        begun = {
            "schema_version": SCHEMA_VERSION,
            "status": "started",
            "created": _timestamp(),
            "command": command,
        }
        store = cls(folder, RunFile.model_validate({**begun, "job": job, "identity": identity}))
        store._write()
        return store

    @property
    def identity(self) -> Identity:
        return self.run.identity

    def _differs_in_what_failed_alone(self, identity: Identity) -> bool:
        """Tells whether another identity has nothing but other code of policies without any answer
        here: a press that failed everywhere may be mended, and its run goes on."""
        if identity.differences(self.identity) != ["policies"]:
            return False
        for policy in identity.policies:
            stored = self.identity.policy(policy.name)
            if stored is None or stored.model_copy(update={"origin": policy.origin}) != policy:
                return False
            if stored.origin != policy.origin and self._has_answers(policy.name):
                return False
        return len(identity.policies) == len(self.identity.policies)

    def _has_answers(self, policy: str) -> bool:
        for path in self.record_files():
            rows = self.read(RECORDS, path, ["policy", "status"])
            if (policy, "ok") in zip(
                rows["policy"].to_pylist(), rows["status"].to_pylist(), strict=True
            ):
                return True
        return False

    def finish(self) -> None:
        self._set(status="complete", reason=None, finished=_timestamp())

    def fail(self, reason: str) -> None:
        self._set(status="failed", reason=reason)

    def _set(self, **changes: Any) -> None:
        self.run = self.run.model_copy(update=changes)
        self._write()

    def _write(self) -> None:
        write_text_atomically(self.folder / RUN_FILE, self.run.model_dump_json(indent=2) + "\n")

    @property
    def tables(self) -> tuple[StoredTable, ...]:
        """Returns the tables that the run fills, a parent before what belongs to it, and records
        last."""
        return (CONTEXTS, QUESTIONS, *self.study_tables, RECORDS)

    @property
    def study_tables(self) -> tuple[StoredTable, ...]:
        """Returns the tables of studies that are known here: others are left alone."""
        return tuple(find_table(name) for name in self.identity.tables if is_known(name))

    def path(self, table: StoredTable, task: str, chunk: int, policy: str = "") -> Path:
        """Names the file of a chunk of contexts, and of one policy, whose name may hold what a
        file's may not."""
        folder = self.folder / table.name / task
        if not table.by_policy:
            return folder / f"{chunk:05d}.parquet"
        return folder / f"{chunk:05d}" / f"{file_name(policy)}.parquet"

    @property
    def is_packed(self) -> bool:
        """Tells whether each table is one file."""
        return self.packed_file(RECORDS).is_file()

    def packed_file(self, table: StoredTable) -> Path:
        return self.folder / f"{table.name}.parquet"

    def files(self, table: StoredTable) -> list[Path]:
        if self.is_packed:
            file = self.packed_file(table)
            return [file] if file.is_file() else []
        return sorted(
            (self.folder / table.name).glob("*/*/*.parquet" if table.by_policy else "*/*.parquet")
        )

    def record_files(self) -> list[Path]:
        return self.files(RECORDS)

    def has(self, task: str, chunk: int, policy: str, count: int) -> bool:
        """Tells whether all ``count`` records are there and none failed: the next start tries
        failed ones again."""
        for table in self.tables:
            if not self.path(table, task, chunk, policy).is_file():
                return False
        path = self.path(RECORDS, task, chunk, policy)
        records = self.read(RECORDS, path, ["policy", "status"])
        rows = zip(records["policy"].to_pylist(), records["status"].to_pylist(), strict=True)
        return records.num_rows == count and set(rows) == {(policy, "ok")}

    def has_questions(self, task: str, chunk: int, contexts: int, count: int) -> bool:
        """Tells whether a chunk has all its contexts, and ``count`` questions about them."""
        for table, rows in ((CONTEXTS, contexts), (QUESTIONS, count)):
            path = self.path(table, task, chunk)
            if not path.is_file() or self.read(table, path).num_rows != rows:
                return False
        return True

    def write_chunk(self, task: str, chunk: int, rows: Mapping[str, pa.Table]) -> None:
        """Writes the rows of a chunk of contexts by the names of their tables. What is said of
        contexts and questions is written where it is not there yet; of a policy, its file is
        written anew."""
        for table in self.tables:
            fresh = rows.get(table.name, table.schema.empty_table())
            if table.by_policy:
                # By the policies of the records: one without a row in a study's table gets an empty
                # file, by which it counts as done.
                for policy in rows[RECORDS.name]["policy"].unique().to_pylist():
                    of_policy = fresh.filter(pc.equal(fresh["policy"], policy))
                    write_parquet(self.path(table, task, chunk, policy), of_policy)
                continue
            path = self.path(table, task, chunk)
            stored = [self.read(table, path)] if path.is_file() else []
            together = together_once(table, [*stored, fresh])
            if not stored or len(together) > len(stored[0]):
                write_parquet(path, together)

    def write_rows(self, table: StoredTable, path: Path, rows: Sequence[BaseModel]) -> None:
        write_parquet(path, table.to_arrow(rows))

    def read(
        self,
        table: StoredTable,
        path: Path,
        columns: Sequence[str] | None = None,
        add_metrics: bool = False,
    ) -> pa.Table:
        """Reads the rows of one file, as columns of the types of the schema. ``add_metrics``: a
        score that the version which wrote the file did not have is null. Raises
        :class:`KVBenchError` for a file that lacks any other column or has a column too many, and,
        without ``add_metrics``, for one that lacks such a score."""
        schema, rows = read_parquet(path, columns)
        if table is RECORDS and (missing := _missing_metrics(schema)):
            unknown = [metric for metric in missing if not metric.follows_from_store]
            if unknown or not add_metrics:
                metric = (unknown or missing)[0]
                fault = f"{path} lacks '{metric.name}': the kvbench that wrote it did not have it."
                advice = (
                    f"python -m kvbench score {self.folder} computes it from the stored outputs"
                )
                if unknown:
                    advice = "It does not follow from what is stored: run again under another name"
                raise KVBenchError(f"{fault} {advice}")
            for metric in missing:
                column = table.schema.field(metric.name)
                rows = rows.add_column(
                    table.columns.index(metric.name), column, pa.nulls(len(rows), column.type)
                )
            schema = rows.schema
        later = [name for name in table.later_columns if name not in schema.names]
        for name in later:
            column = table.schema.field(name)
            schema = schema.insert(min(table.columns.index(name), len(schema)), column)
            if columns is None or name in columns:
                rows = rows.append_column(column, pa.nulls(len(rows), column.type))
        _refuse(path, table.fault_of_schema(schema))
        return rows.select([name for name in table.columns if name in rows.column_names])

    def record_files_without_metrics(self) -> set[Path]:
        """Finds the record files of an earlier version, which lack metrics of this one."""
        return {path for path in self.record_files() if _missing_metrics(read_parquet(path, ())[0])}

    def read_rows(self, table: StoredTable, path: Path, add_metrics: bool = False) -> list[Any]:
        """Reads the rows of one file, each checked against its model. ``add_metrics``: as for
        :meth:`read`."""
        rows = self.read(table, path, add_metrics=add_metrics)
        _refuse(path, table.fault_in(rows))
        return [table.row.model_validate(row) for row in rows.to_pylist()]

    def table(self, table: StoredTable, columns: Sequence[str] | None = None) -> pa.Table:
        files = [self.read(table, path, columns) for path in self.files(table)]
        names = [name for name in table.columns if columns is None or name in columns]
        rows = pa.concat_tables([table.schema.empty_table().select(names), *files])
        # All at once, as it takes as long for one file; then which of them it is.
        if table.fault_in(rows):
            for path, rows_of_file in zip(self.files(table), files, strict=True):
                _refuse(path, table.fault_in(rows_of_file))
        return rows

    def study_table(self, table: StoredTable) -> pa.Table:
        """Reads a study's table. Raises :class:`KVBenchError` where a row belongs to nothing or has
        an impossible number."""
        rows = self.table(table)
        if fault := table.fault_of_values(rows):
            raise KVBenchError(
                f"{self.folder} holds a row of {table.name} whose {fault}: run it again"
            )
        if table.parent:
            parent = find_table(table.parent)
            keys = rows.select(parent.key).to_pandas()
            self._with_parents(table, keys, _objects(self.table(parent, parent.key)))
        return rows

    def _with_parents(
        self, table: StoredTable, rows: pd.DataFrame, parents: pd.DataFrame
    ) -> pd.DataFrame:
        """Adds to each row the columns of its parent. Raises :class:`KVBenchError` where it has
        none, or two."""
        parent = find_table(str(table.parent))
        key = list(parent.key)
        joined = rows.merge(parents, how="left", on=key, indicator="_parent")
        orphans, twice = joined[joined.pop("_parent") != "both"], parents[parents.duplicated(key)]
        faulty = orphans if len(orphans) else twice
        if len(faulty):
            where = ", ".join(f"{name} {faulty.iloc[0][name]}" for name in key)
            fault = f"{parent.name} hold {where} twice"
            if len(orphans):
                fault = f"{table.name} tell of {where}, which {parent.name} do not hold"
            raise KVBenchError(
                f"{self.folder} is damaged ({fault}): start the run again, which writes missing "
                "files; if that does not help, delete its files of that task first"
            )
        return joined

    def read_answers(self, path: Path) -> list[StoredAnswer]:
        """Reads the records of one file, each with its question and context."""
        return next(self._answers([path]))[1]

    def read_files(self, add_metrics: bool = False) -> Iterator[tuple[Path, list[StoredAnswer]]]:
        """Yields every record file with its answers. ``add_metrics``: as for :meth:`read`."""
        yield from self._answers(self.record_files(), add_metrics)

    def _answers(
        self, paths: Sequence[Path], add_metrics: bool = False
    ) -> Iterator[tuple[Path, list[StoredAnswer]]]:
        for folder, paths_of_chunk in groupby(paths, lambda path: path.parent):
            contexts = self.read_rows(CONTEXTS, self._file_about(CONTEXTS, folder))
            questions = self.read_rows(QUESTIONS, self._file_about(QUESTIONS, folder))
            by_index = {(row.task, row.example_index): row for row in contexts}
            by_id = {(row.task, row.question_id): row for row in questions}
            for path in paths_of_chunk:
                records = self.read_rows(RECORDS, path, add_metrics)
                try:
                    answers = []
                    for record in records:
                        question = by_id[record.task, record.question_id]
                        context = by_index[question.task, question.example_index]
                        answers.append(StoredAnswer(record, question, context))
                except KeyError as error:
                    where = f"{folder.parent.name}/{folder.name}"
                    _refuse(path, f"records tell of {error}, which {where} does not hold")
                yield path, answers

    def _file_about(self, table: StoredTable, folder: Path) -> Path:
        """Names the file of contexts or questions that the records of a folder are about."""
        if folder == self.folder:
            return self.packed_file(table)
        return self.folder / table.name / folder.parent.name / f"{folder.name}.parquet"

    def frame(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Joins records, or some columns, with questions and contexts, in the order of the run's
        tasks and policies. Raises :class:`KVBenchError` where there are none, or one that no run
        writes."""
        needed = None
        if columns is not None:
            needed = [*CONTEXTS.key, *QUESTIONS.key, *RECORDS.key, *columns]
        contexts = self.table(CONTEXTS, needed)
        questions = self.table(QUESTIONS, needed)
        records = self.table(RECORDS, needed)
        if not records.num_rows:
            raise KVBenchError(
                f"{self.folder} holds no records yet: start the run again to go on with it"
            )
        if fault := RECORDS.fault_of_values(records):
            raise KVBenchError(f"{self.folder} holds a record whose {fault}, which no run writes")
        # Lists stay in arrow: few of them are looked at.
        frame = records.to_pandas(
            types_mapper=lambda kind: pd.ArrowDtype(kind) if pa.types.is_list(kind) else None
        )
        frame = self._with_parents(RECORDS, frame, _objects(questions))
        frame = self._with_parents(QUESTIONS, frame, _objects(contexts))
        by = frame[
            ["task", "policy", "level_kind", "level", "repeat", "example_index", "question_id"]
        ].copy()
        for column, entries in (("task", self.identity.tasks), ("policy", self.identity.policies)):
            order = [entry.name for entry in entries]
            if unknown := sorted(set(by[column]) - set(order)):
                strange = f"records of the {column} '{unknown[0]}'"
                raise KVBenchError(f"{self.folder} holds {strange}, which {RUN_FILE} does not name")
            by[column] = pd.Categorical(by[column], categories=order, ordered=True)
        rows = by.sort_values(list(by.columns), kind="stable").index
        return frame.loc[rows, [*(JOINED if columns is None else columns)]].reset_index(drop=True)


def _objects(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    for field in table.schema:
        if pa.types.is_list(field.type):
            frame[field.name] = pd.Series(table[field.name].to_pylist(), dtype=object)
    return frame


def together_once(table: StoredTable, parts: Sequence[pa.Table]) -> pa.Table:
    """Joins the rows of several parts, each key once: the first is kept."""
    rows = pa.concat_tables(parts)
    keys = pd.MultiIndex.from_arrays([rows[name].to_pandas() for name in table.key])
    return rows.filter(pa.array(~keys.duplicated(), pa.bool_()))


def _missing_metrics(schema: pa.Schema) -> list[Metric]:
    """Lists the metrics for which records have no column, because an earlier version wrote them."""
    names = set(schema.names)
    return [metric for name, metric in METRICS.items() if name not in names]


def _refuse(path: Path, fault: str) -> None:
    if fault:
        raise KVBenchError(f"{path} cannot be read ({fault}): delete it and start the run again")


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
