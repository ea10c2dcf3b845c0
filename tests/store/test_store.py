"""The store: whole files or none, one identity for a folder, and runs that go on after a kill."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

import kvbench.experiments.collect
import kvbench.run.resume
import kvbench.run.unit
from datasets_gen import TASKS, Example, Task
from kvbench.experiments.grid import Grid
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel
from kvbench.publish.site import publish_summary
from kvbench.run.execute import execute
from kvbench.store.record import Record
from kvbench.store.scoring import rescore
from kvbench.store.store import Store, together_once
from kvbench.store.tables import RECORDS, Rows
from kvbench.system.errors import KVBenchError
from kvbench.system.files import write_text_atomically
from policies import POLICIES, Level, at_ratios, points_of
from tests.support.processes import wait_until
from tests.support.toy import listening


def grid(
    policies: tuple[str, ...] = ("full", "random", "knorm"),
    contexts: int = 2,
    seed: int = 0,
    ratios: tuple[float, ...] = (0.5,),
) -> Grid:
    chosen = [POLICIES[name] for name in policies]
    return Grid([(TASKS["base"], contexts)], Setting(chosen, at_ratios(ratios), seed))


def outcome(store: Store) -> pd.DataFrame:
    """All records without their times."""
    frame = store.frame()
    return frame.drop(columns=[column for column in frame.columns if column.endswith("_seconds")])


def test_a_run_is_identified_first_and_complete_at_its_end(llama: LoadedModel, tmp_path: Path) -> None:
    store = execute(llama, grid(), tmp_path / "run", "a test")
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    assert saved["status"] == "complete"
    assert [policy["name"] for policy in saved["identity"]["policies"]] == ["full", "random", "knorm"]
    assert saved["identity"]["packages"]["torch"]
    frame = store.frame()
    assert set(frame.policy) == {"full", "random", "knorm"}
    assert len(frame) == 3 * sum(len(TASKS["base"].example(0, index).questions) for index in range(2))
    assert frame.output_text.notna().all()
    assert frame.f1.between(0, 100).all()


def test_the_same_run_again_does_only_what_is_missing(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = outcome(execute(llama, grid(), tmp_path / "run", "a test"))
    removed = Store.open(tmp_path / "run").record_file("base", 0, "knorm")
    removed.unlink()
    asked = listening(monkeypatch)
    again = execute(llama, grid(), tmp_path / "run", "a test")
    assert asked == [["knorm"], ["knorm"]]
    pd.testing.assert_frame_equal(outcome(again), whole)


def test_another_run_beside_it_lends_what_is_the_same(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that is added to a finished run costs itself alone; another seed, ratio or size has nothing to lend."""
    alone = outcome(execute(llama, grid(("full", "knorm", "snapkv")), tmp_path / "elsewhere" / "run", "a test"))
    execute(llama, grid(("full", "random", "knorm")), tmp_path / "runs" / "first", "a test")
    asked = listening(monkeypatch)
    store = execute(llama, grid(("full", "knorm", "snapkv")), tmp_path / "runs" / "second", "a test")
    assert asked == [["snapkv"], ["snapkv"]]
    pd.testing.assert_frame_equal(outcome(store), alone)
    asked.clear()
    execute(llama, grid(("full", "knorm"), seed=1), tmp_path / "runs" / "third", "a test")
    assert asked == [["full", "knorm"]] * 2
    asked.clear()
    execute(llama, grid(("full", "knorm"), contexts=6), tmp_path / "runs" / "fourth", "a test")
    assert asked == [["full", "knorm"]] * 4  # and not the two contexts that are there
    asked.clear()
    execute(llama, grid(("full", "knorm"), contexts=7), tmp_path / "runs" / "fifth", "a test")
    assert asked == [["full", "knorm"]]


def test_a_larger_run_beside_it_lends_a_part_and_a_complete_run_borrows_nothing(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = outcome(execute(llama, grid(contexts=3, ratios=(0.5,)), tmp_path / "elsewhere" / "run", "a test"))
    execute(llama, grid(contexts=4, ratios=(0.5, 0.75)), tmp_path / "runs" / "larger", "a test")
    with monkeypatch.context() as idle:
        idle.setattr(kvbench.run.unit, "collect", lambda *_: pytest.fail("all of it was there"))
        small = execute(llama, grid(contexts=3, ratios=(0.5,)), tmp_path / "runs" / "small", "a test")
        pd.testing.assert_frame_equal(outcome(small), alone)
        execute(llama, grid(contexts=3, ratios=(0.5,)), tmp_path / "runs" / "small", "a test")
    pd.testing.assert_frame_equal(outcome(small), alone)


def test_of_each_policy_only_the_levels_and_contexts_that_nobody_has_are_run(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = outcome(execute(llama, grid(contexts=3, ratios=(0.3, 0.5)), tmp_path / "elsewhere" / "run", "a test"))
    execute(llama, grid(contexts=1, ratios=(0.5,)), tmp_path / "runs" / "one", "a test")
    execute(llama, grid(contexts=2, ratios=(0.3,)), tmp_path / "runs" / "other", "a test")
    ran: list[tuple[int, tuple[str, ...], tuple[float, ...]]] = []
    collect = kvbench.experiments.collect.collect

    def listening(model, task, examples, setting):  # type: ignore[no-untyped-def]
        ran.append(
            (
                examples[0].index,
                tuple(policy.name for policy in setting.policies),
                tuple(point.level.value for point in setting.points),
            )
        )
        return collect(model, task, examples, setting)

    monkeypatch.setattr(kvbench.run.unit, "collect", listening)
    both = execute(llama, grid(contexts=3, ratios=(0.3, 0.5)), tmp_path / "runs" / "both", "a test")
    assert ran == [(1, ("random", "knorm"), (0.5,)), (2, ("full", "random", "knorm"), (0.3, 0.5))]
    pd.testing.assert_frame_equal(outcome(both), alone)


def test_what_failed_in_another_run_is_not_lent(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = outcome(execute(llama, grid(), tmp_path / "elsewhere" / "whole", "a test"))
    with monkeypatch.context() as broken:
        broken.setattr("kvpress.KnormPress.score", lambda *_: 1 / 0)
        execute(llama, grid(), tmp_path / "runs" / "first", "a test")
    asked = listening(monkeypatch)
    second = execute(llama, grid(), tmp_path / "runs" / "second", "a test")
    assert asked == [["knorm"], ["knorm"]]
    pd.testing.assert_frame_equal(outcome(second), whole)


def test_a_context_that_another_run_has_in_part_is_not_lent(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = execute(llama, grid(), tmp_path / "runs" / "first", "a test")
    whole, path = outcome(first), first.record_file("base", 0, "knorm")
    first.write_rows(RECORDS, path, first.read_rows(RECORDS, path)[1:])
    asked = listening(monkeypatch)
    second = execute(llama, grid(), tmp_path / "runs" / "second", "a test")
    assert asked == [["knorm"]]
    pd.testing.assert_frame_equal(outcome(second), whole)


def test_of_a_row_that_is_there_twice_the_first_is_kept(llama: LoadedModel, tmp_path: Path) -> None:
    store = execute(llama, grid(("full",), contexts=1), tmp_path / "run", "a test")
    first = store.read(RECORDS, store.record_file("base", 0, "full"))
    place = first.column_names.index("output_text")
    second = first.set_column(place, first.schema.field(place), [["another answer"] * len(first)])
    assert together_once(RECORDS, [first, second]).equals(first)


def test_a_policy_may_be_called_anything_and_stays_in_its_folder(llama: LoadedModel, tmp_path: Path) -> None:
    names = ["../../../../outside", "a/b", "x" * 300, "y" * 300, "Press(kind='mean', size=3)"]
    odd = [replace(POLICIES["knorm"], name=name, same_as=tuple(names)) for name in names]
    store = execute(
        llama, Grid([(TASKS["base"], 1)], Setting(odd, at_ratios((0.5,)))), tmp_path / "runs" / "odd", "a test"
    )
    assert set(store.frame().policy) == set(names)
    assert {path.parent for path in tmp_path.rglob("*.parquet")} == {
        store.folder / folder for folder in ("contexts/base", "questions/base", "records/base/00000")
    }
    assert len(store.record_files()) == len(names)


def test_what_failed_is_tried_again(llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = outcome(execute(llama, grid(), tmp_path / "elsewhere" / "whole", "a test"))
    with monkeypatch.context() as broken:
        broken.setattr("kvpress.KnormPress.score", lambda *_: 1 / 0)
        failed = outcome(execute(llama, grid(), tmp_path / "run", "a test"))
    assert set(failed[failed.policy == "knorm"].status) == {"failed"}
    pd.testing.assert_frame_equal(outcome(execute(llama, grid(), tmp_path / "run", "a test")), whole)


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("tasks", []),
        ("tasks", "base"),
        ("tasks", [{"contexts": 1}]),
        ("policies", [{"name": "full", "ratios": [0], "tasks": ["base"]}] * 2),
    ],
)
def test_an_edited_identity_is_one_clear_line(llama: LoadedModel, tmp_path: Path, part: str, content: object) -> None:
    execute(llama, grid(), tmp_path / "run", "a test")
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    run["identity"][part] = content
    (tmp_path / "run" / "run.json").write_text(json.dumps(run))
    with pytest.raises(KVBenchError, match=r"run.json is damaged|records of the task 'base', which run.json does not"):
        Store.open(tmp_path / "run").frame()


def test_a_file_that_lacks_records_is_written_again(llama: LoadedModel, tmp_path: Path) -> None:
    store = execute(llama, grid(), tmp_path / "run", "a test")
    whole = outcome(store)
    path = store.record_file("base", 0, "knorm")
    for kept in ([], store.read_rows(RECORDS, path)[:3]):
        store.write_rows(RECORDS, path, kept)
        pd.testing.assert_frame_equal(outcome(execute(llama, grid(), tmp_path / "run", "a test")), whole)


def test_edited_code_is_another_run_and_an_edited_readme_is_not(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(llama, grid(), tmp_path / "run", "a test")
    monkeypatch.setattr("kvbench.experiments.identify.git_state", lambda folder: ("another revision", True))
    assert execute(llama, grid(), tmp_path / "run", "a test").run.status == "complete"
    monkeypatch.setattr("kvbench.experiments.identify.source_hash", lambda: "0123456789abcdef")
    with pytest.raises(KVBenchError, match="belongs to another run \\(its source is"):
        execute(llama, grid(), tmp_path / "run", "a test")


def test_what_a_kill_left_half_written_is_removed(llama: LoadedModel, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".run.json.x1y2.partial").write_text("{")
    execute(llama, grid(), tmp_path / "run", "a test")
    partial = tmp_path / "run" / "records" / "base" / "00000" / ".knorm.parquet.x1y2.partial"
    partial.write_text("PAR1")
    execute(llama, grid(), tmp_path / "run", "a test")
    assert list((tmp_path / "run").rglob("*.partial")) == []


def test_a_device_out_of_memory_is_one_clear_line(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("kvbench.experiments.collect.decode", full)
    with pytest.raises(KVBenchError, match=r"out of memory: .* smaller --max-kv-gb"):
        execute(llama, grid(), tmp_path / "run", "a test")
    assert Store.open(tmp_path / "run").run.status == "failed"


def test_another_identity_is_refused_and_nothing_is_lost(llama: LoadedModel, tmp_path: Path) -> None:
    execute(llama, grid(), tmp_path / "run", "a test")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(KVBenchError, match="belongs to another run \\(its seed is 0, this one's 7\\)"):
        execute(llama, grid(seed=7), tmp_path / "run", "a test")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_folder_that_is_no_run_is_left_alone(llama: LoadedModel, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear diary")
    with pytest.raises(KVBenchError, match="is no run of kvbench"):
        execute(llama, grid(), tmp_path, "a test")
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_an_interrupt_keeps_what_was_finished(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect = kvbench.experiments.collect.collect
    calls: list[object] = []

    def interrupted(*arguments):  # type: ignore[no-untyped-def]
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return collect(*arguments)

    monkeypatch.setattr(kvbench.run.unit, "collect", interrupted)
    monkeypatch.setattr(kvbench.run.resume, "CONTEXTS_IN_CHUNK", 1)
    with pytest.raises(KVBenchError, match="interrupted: what was finished is kept"):
        execute(llama, grid(), tmp_path / "run", "a test")
    store = Store.open(tmp_path / "run")
    assert (store.run.status, store.run.reason) == ("failed", "interrupted")
    rows = publish_summary(store, store.frame())
    assert {row.reason for row in rows if row.task == "base"} == {"1 of 2 contexts are not run yet"}
    assert {row.f1 for row in rows} == {None}
    assert set(store.frame().example_index) == {0}
    assert execute(llama, grid(), tmp_path / "run", "a test").run.status == "complete"
    assert set(store.frame().example_index) == {0, 1}


def test_a_full_disk_is_one_clear_line_and_loses_nothing(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        execute(llama, grid(), tmp_path / "run", "a test")
    assert "\n" not in str(refusal.value)
    assert [path.stem for path in Store.open(tmp_path / "run").record_files()] == ["full"]
    assert not list((tmp_path / "run").rglob("*.partial"))


def test_an_atomic_write_leaves_the_old_file_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text_atomically(path, "new \udc80")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_scoring_again_mends_scores_and_needs_no_torch(llama: LoadedModel, tmp_path: Path) -> None:
    store = execute(llama, grid(), tmp_path / "run", "a test")
    right = outcome(store)
    path = store.record_file("base", 0, "random")
    spoilt = [record.model_copy(update={"f1": 12.0}) for record in store.read_rows(RECORDS, path)]
    store.write_rows(RECORDS, path, spoilt)
    code = (
        "import sys\n"
        "class NoModels:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.split('.')[0] in ('torch', 'transformers', 'kvpress'):\n"
        "            raise AssertionError(f'{name} was imported')\n"
        "sys.meta_path.insert(0, NoModels())\n"
        "from kvbench.cli.program import main\n"
        f"sys.exit(main(['score', {str(tmp_path / 'run')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(outcome(Store.open(tmp_path / "run")), right)
    assert rescore(store) == (len(right), 0)


def test_damage_is_named_with_the_file(llama: LoadedModel, tmp_path: Path) -> None:
    store = execute(llama, grid(), tmp_path / "run", "a test")
    path = store.record_file("base", 0, "full")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(KVBenchError, match=r"full\.parquet cannot be read"):
        store.frame()
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(KVBenchError, match=r"run.json is damaged \(schema_version: Field required\)"):
        Store.open(tmp_path / "run")
    with pytest.raises(KVBenchError, match="holds no run"):
        Store.open(tmp_path / "nowhere")


def test_records_are_closed() -> None:
    with pytest.raises(ValueError, match=r"Extra inputs"):
        Record.model_validate({"surprise": 1})


# A run of which every worker waits at the fifth context.
RUN_THAT_STOPS = """
import sys, time
from pathlib import Path
import kvbench.run.execute, kvbench.run.resume, kvbench.run.unit
from tests.store.test_store import CONTEXTS, grid
from tests.support.toy import toy_model

collect = kvbench.run.unit.collect

def stopping(model, task, examples, setting):
    while examples[0].index == 4:
        time.sleep(1)
    return collect(model, task, examples, setting)

kvbench.run.unit.collect = stopping
kvbench.run.resume.CONTEXTS_IN_CHUNK = 1
kvbench.run.execute.execute(toy_model(), grid(contexts=CONTEXTS), Path(sys.argv[1]), "a test")
"""
CONTEXTS = 8


def test_a_killed_run_goes_on_and_ends_as_if_it_had_not_been_killed(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, undisturbed = tmp_path / "killed", tmp_path / "elsewhere" / "undisturbed"  # or it would borrow
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RUN_THAT_STOPS, str(killed)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(killed.glob("records/*/*/*.parquet"))) >= 3)
    process.kill()
    process.wait()
    store = Store.open(killed)
    assert store.run.status == "started"
    assert 3 <= len(store.record_files()) <= 4 * 3
    assert len(store.frame()) > 0  # whatever is there is whole
    monkeypatch.setattr(kvbench.run.resume, "CONTEXTS_IN_CHUNK", 1)
    for folder in (killed, undisturbed):
        execute(llama, grid(contexts=CONTEXTS), folder, "a test")
    assert Store.open(killed).run.status == "complete"
    pd.testing.assert_frame_equal(outcome(Store.open(killed)), outcome(Store.open(undisturbed)))


def test_each_draw_of_a_random_policy_is_resumed_and_lent(
    llama: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second draw costs itself alone, and a run that lost its file makes both draws again."""
    drawn = {
        repeats: replace(grid(), setting=replace(grid().setting, points=points_of([Level("ratio", 0.5)], repeats)))
        for repeats in (1, 2)
    }
    alone = outcome(execute(llama, drawn[2], tmp_path / "elsewhere" / "run", "a test"))
    execute(llama, drawn[1], tmp_path / "runs" / "one", "a test")
    ran: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
    collect = kvbench.experiments.collect.collect

    def heard(model: LoadedModel, task: Task, examples: Sequence[Example], setting: Setting) -> Rows:
        ran.append((tuple(p.name for p in setting.policies), tuple(point.repeat for point in setting.points)))
        return collect(model, task, examples, setting)

    monkeypatch.setattr(kvbench.run.unit, "collect", heard)
    store = execute(llama, drawn[2], tmp_path / "runs" / "two", "a test")
    assert ran == [(("random",), (1,))] * 2
    pd.testing.assert_frame_equal(outcome(store), alone)
    ran.clear()
    store.record_file("base", 0, "random").unlink()
    (tmp_path / "runs" / "one" / "run.json").unlink()
    pd.testing.assert_frame_equal(outcome(execute(llama, drawn[2], tmp_path / "runs" / "two", "a test")), alone)
    assert ran == [(("random",), (0, 1))] * 2
