"""The store: whole files or none, one identity for a folder, and runs that go on after a kill."""

import errno
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import kvbench.execution.execute
import kvbench.experiments.collect
from datasets_gen import TASKS, Example, Task
from kvbench.models.load import LoadedModel
from kvbench.publish.site import publish_summary
from kvbench.store.run_file import Job
from kvbench.store.scoring import rescore
from kvbench.store.store import Store, together_once, write_parquet
from kvbench.store.tables import RECORDS, RowsByTable
from kvbench.system.errors import KVBenchError
from kvbench.system.files import working_in
from tests.support.models.processes import Copy, wait_until
from tests.support.models.runs import ToyRuns, outcome, policies_of, record_calls

NO_PROCESS = 2**30  # more than any process has as its number


def test_a_run_is_identified_first_and_complete_at_its_end(runs: ToyRuns, tmp_path: Path) -> None:
    store = runs("run")
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    assert saved["status"] == "complete"
    assert [policy["name"] for policy in saved["identity"]["policies"]] == [
        "full",
        "random",
        "knorm",
    ]
    assert saved["identity"]["packages"]["torch"]
    frame = store.frame()
    assert set(frame.policy) == {"full", "random", "knorm"}
    assert len(frame) == 3 * sum(
        len(TASKS["base"].example(0, index).questions) for index in range(2)
    )
    assert frame.output_text.notna().all()
    assert frame.f1.between(0, 100).all()


def test_the_same_run_again_does_only_what_is_missing(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = outcome(runs("run"))
    Store.open(tmp_path / "run").path(RECORDS, "base", 0, "knorm").unlink()
    calls = record_calls(monkeypatch)
    again = runs("run")
    assert policies_of(calls) == [["knorm"], ["knorm"]]
    pd.testing.assert_frame_equal(outcome(again), whole)


def test_of_a_row_that_is_there_twice_the_first_is_kept(runs: ToyRuns) -> None:
    store = runs("run", ("full",), contexts=1)
    first = store.read(RECORDS, store.path(RECORDS, "base", 0, "full"))
    place = first.column_names.index("output_text")
    second = first.set_column(place, first.schema.field(place), [["another answer"] * len(first)])
    assert together_once(RECORDS, [first, second]).equals(first)


def test_what_failed_is_tried_again(runs: ToyRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = outcome(runs("elsewhere/whole"))
    with monkeypatch.context() as broken:
        broken.setattr("kvpress.KnormPress.score", lambda *_: 1 / 0)
        failed = outcome(runs("run"))
    assert set(failed[failed.policy == "knorm"].status) == {"failed"}
    pd.testing.assert_frame_equal(outcome(runs("run")), whole)


def test_a_file_that_lacks_records_is_written_again(runs: ToyRuns) -> None:
    store = runs("run")
    whole = outcome(store)
    path = store.path(RECORDS, "base", 0, "knorm")
    for kept in ([], store.read_rows(RECORDS, path)[:3]):
        store.write_rows(RECORDS, path, kept)
        pd.testing.assert_frame_equal(outcome(runs("run")), whole)


def test_what_a_kill_left_half_written_is_removed(runs: ToyRuns, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / f".run.json.x1y2-{NO_PROCESS}.partial").write_text("{")
    runs("run")
    partial = (
        tmp_path
        / "run"
        / "records"
        / "base"
        / "00000"
        / f".knorm.parquet.x1y2-{NO_PROCESS}.partial"
    )
    partial.write_text("PAR1")
    runs("run")
    assert list((tmp_path / "run").rglob("*.partial")) == []


def test_another_identity_is_refused_and_nothing_is_lost(runs: ToyRuns, tmp_path: Path) -> None:
    runs("run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(
        KVBenchError, match="belongs to another run \\(its seed is 0, this one's 7\\)"
    ):
        runs("run", seed=7)
    assert {
        path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()
    } == before


def test_an_interrupt_keeps_what_was_finished(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    collect = kvbench.experiments.collect.collect
    calls: list[object] = []

    def interrupted(*arguments):  # type: ignore[no-untyped-def]
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return collect(*arguments)

    monkeypatch.setattr(kvbench.execution.execute, "collect", interrupted)
    monkeypatch.setattr(kvbench.execution.execute, "CONTEXTS_IN_CHUNK", 1)
    with pytest.raises(KVBenchError, match="interrupted: what was finished is kept"):
        runs("run")
    store = Store.open(tmp_path / "run")
    assert (store.run.status, store.run.reason) == ("failed", "interrupted")
    rows = publish_summary(store, store.frame())
    (reason,) = {row.reason for row in rows if row.task == "base"}
    assert "1 of 2 contexts" in str(reason)
    assert {row.f1 for row in rows} == {None}
    assert set(store.frame().example_index) == {0}
    assert runs("run").run.status == "complete"
    assert set(store.frame().example_index) == {0, 1}


def test_a_full_disk_is_one_clear_line_and_loses_nothing(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replace = Path.replace
    full: list[object] = []

    def no_space(self: Path, target: Path) -> Path:
        if Path(target).name == "random.parquet":
            full.append(target)
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", no_space)
    with pytest.raises(KVBenchError, match="No space left on device") as refusal:
        runs("run")
    assert "\n" not in str(refusal.value)
    assert [path.stem for path in Store.open(tmp_path / "run").record_files()] == ["full"]
    assert not list((tmp_path / "run").rglob("*.partial"))


def test_scoring_again_tells_the_outcomes_of_a_store_that_lacks_them(
    runs: ToyRuns, tmp_path: Path
) -> None:
    store = runs("run")
    right = outcome(store)
    columns = ["masked", "corrupted", "due", "unended"]
    assert right[columns].notna().all(axis=None)
    assert right["masked"].nunique() == 2
    for path in store.record_files():
        write_parquet(path, store.read(RECORDS, path).drop_columns(columns))
    older = Store.open(tmp_path / "run")
    assert older.record_files_without_metrics() == set(older.record_files())
    assert rescore(older)[0] == len(right)
    pd.testing.assert_frame_equal(outcome(Store.open(tmp_path / "run")), right)


def test_an_option_that_runs_no_longer_take_does_not_make_an_earlier_run_unreadable() -> None:
    assert Job.model_validate({"suite": "numerics", "keep_attention": True}) == Job(
        suite="numerics"
    )


CONTEXTS = 8


def test_a_killed_run_goes_on_and_ends_as_if_it_had_not_been_killed(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Or it would borrow.
    killed, undisturbed = (
        tmp_path / "killed",
        tmp_path / "elsewhere" / "undisturbed",
    )
    monkeypatch.setattr(kvbench.execution.execute, "CONTEXTS_IN_CHUNK", 1)
    collect = kvbench.experiments.collect.collect

    def stopping(
        model: LoadedModel, task: Task, examples: Sequence[Example], *others: Any
    ) -> RowsByTable:
        while examples[0].index == 4:  # every worker comes to the fifth context and waits
            time.sleep(1)
        return collect(model, task, examples, *others)

    def run() -> None:
        monkeypatch.setattr(kvbench.execution.execute, "collect", stopping)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
        runs(killed, contexts=CONTEXTS)

    with Copy.of(run):
        wait_until(lambda: len(list(killed.glob("records/*/*/*.parquet"))) >= 3)
    store = Store.open(killed)
    assert store.run.status == "started"
    assert 3 <= len(store.record_files()) <= 4 * 3
    assert len(store.frame()) > 0  # whatever is there is whole
    for folder in (killed, undisturbed):
        runs(folder, contexts=CONTEXTS)
    assert Store.open(killed).run.status == "complete"
    pd.testing.assert_frame_equal(outcome(Store.open(killed)), outcome(Store.open(undisturbed)))


def test_a_summary_is_left_to_the_process_that_works_on_the_run(
    runs: ToyRuns, tmp_path: Path
) -> None:
    store = runs("run")
    summary = tmp_path / "run" / "summary.json"

    def hold() -> None:
        with working_in(store.folder):
            print("held", file=sys.stderr)
            time.sleep(600)

    with Copy.of(hold) as other:
        assert other.stderr.readline() == "held\n"
        assert publish_summary(store, store.frame())
        assert not summary.exists()
        other.process.kill()
        other.ended()
    publish_summary(store, store.frame())
    assert summary.exists()
