"""The table of a study is declared once; it is written, read, checked, resumed and given out like
the others."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from datasets_gen import TASKS
from kvbench.cli.program import main
from kvbench.experiments.build_grid import build_grid
from kvbench.experiments.collect import FinishedAnswer
from kvbench.models.load import LoadedModel
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from kvbench.store.tables import QUESTIONS, RECORDS, TABLES, AnswerRow, StoredTable, register
from kvbench.studies.declaration import Suite
from kvbench.studies.registry import SUITES
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import ToyRuns, execute, policies_of, record_calls


class Cell(AnswerRow):
    step: int
    token: int


class Step(Cell):
    share: float


def steps_of(answers: Sequence[FinishedAnswer]) -> Iterator[Step]:
    for record in (answer.record for answer in answers):
        for step, token in enumerate(record.output_token_ids or ()):
            yield Step(**RECORDS.row_key(record), step=step, token=token, share=1 / (step + 1))


@pytest.fixture
def steps() -> Iterator[StoredTable]:
    key = (*RECORDS.key, "step")
    table = register(
        StoredTable("steps", Step, key, 1, "questions", {"share": (0.0, 1.0)}, steps_of)
    )
    yield table
    del TABLES[table.name]


@pytest.fixture
def run_with_steps(runs: ToyRuns, steps: StoredTable) -> Callable[..., Store]:
    """Runs with the table of steps, under the full cache and knorm where nothing else is asked
    for."""
    return lambda name, *policies: runs(name, policies or ("full", "knorm"), tables=(steps.name,))


def test_a_suite_asks_for_it(
    llama: LoadedModel, tmp_path: Path, steps: StoredTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = Suite(
        "dummy", "For a test", (TASKS["base"],), "full,knorm", "context", "none", ("steps",)
    )
    monkeypatch.setattr("kvbench.experiments.suites.SUITES", {**SUITES, "dummy": suite})
    job = Job(suite="dummy", levels={"ratio": "0.5"}, limit=1)
    store = execute(llama, build_grid(job, len), tmp_path / "run", "a test")
    assert store.identity.tables == ("steps",)
    assert {*store.study_table(steps)["policy"].to_pylist()} == {*store.frame()["policy"]}
    assert build_grid(Job(limit=1), len).tables == ()


def test_what_is_missing_of_it_is_run_again_and_the_rest_lent(
    run_with_steps: Callable[..., Store], steps: StoredTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_with_steps("runs/run")
    before = store.study_table(steps)
    store.path(steps, "base", 0, "knorm").unlink()
    calls = record_calls(monkeypatch)
    assert run_with_steps("runs/run").study_table(steps).equals(before)
    assert policies_of(calls) == [["knorm"], ["knorm"]]
    calls.clear()
    assert run_with_steps("runs/other", "full", "knorm", "snapkv").study_table(
        steps
    ).num_rows > len(before)
    assert policies_of(calls) == [["snapkv"], ["snapkv"]]


def test_damage_to_it_is_named(run_with_steps: Callable[..., Store], steps: StoredTable) -> None:
    store = run_with_steps("run")
    path = store.path(steps, "base", 0, "knorm")
    rows = store.read_rows(steps, path)
    for spoilt, said in (
        ({"share": 7.0}, "share is 7.0, not between 0 and 1"),
        (
            {"question_id": "base/9"},
            "steps tell of task base, question_id base/9, which questions do not hold",
        ),
    ):
        store.write_rows(steps, path, [rows[0].model_copy(update=spoilt), *rows[1:]])
        with pytest.raises(KVBenchError, match=said):
            store.study_table(steps)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(KVBenchError, match=r"knorm\.parquet cannot be read"):
        store.study_table(steps)


def test_it_is_given_out_beside_the_records(
    run_with_steps: Callable[..., Store], steps: StoredTable, tmp_path: Path
) -> None:
    store = run_with_steps("run", "full", "random", "recency", "knorm")
    assert main(["site", str(store.folder), "--site", str(tmp_path / "site")]) == 0
    given = pq.read_table(tmp_path / "site/data/steps.parquet")
    assert given.column_names == ["model", "setting", *steps.columns]
    assert len(given) == store.study_table(steps).num_rows


def test_a_record_whose_question_is_missing_is_one_clear_line_and_mended_by_a_new_start(
    run_with_steps: Callable[..., Store], steps: StoredTable
) -> None:
    store = run_with_steps("run")
    path = store.path(QUESTIONS, "base", 0)
    rows = store.read_rows(QUESTIONS, path)
    store.write_rows(QUESTIONS, path, rows[1:])
    with pytest.raises(
        KVBenchError, match=f"question_id {rows[0].question_id}, which questions do not hold"
    ):
        store.frame()
    run_with_steps("run")
    assert {row.question_id for row in store.read_rows(QUESTIONS, path)} == {
        row.question_id for row in rows
    }
    assert len(store.frame()) == 2 * len(rows)
