"""A packed run says of each answer what the run says, and is read like any other."""

from pathlib import Path

import pandas as pd
import pytest

from datasets_gen import TASKS
from kvbench.checks.submission import examine
from kvbench.experiments.grid import Grid
from kvbench.models.load import load_model
from kvbench.publish.site import publish_sites, publish_summary
from kvbench.store.packing import BY_LAYER, OF_EXAMPLES, pack
from kvbench.store.store import SUMMARY_FILE, Store
from kvbench.store.tables import JOINED, RECORDS
from kvbench.system.errors import KVBenchError
from policies import POLICIES, at_ratios
from tests.support.models.runs import execute

LEFT_OUT = [*BY_LAYER, *OF_EXAMPLES]
KEPT = [name for name in JOINED if name not in (*LEFT_OUT, "token_ends")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Store:
    policies = [POLICIES[name] for name in ("full", "snapkv")]
    grid = Grid([(TASKS["base"], 3), (TASKS["hops"], 2)], policies, at_ratios((0.5,)), seed=3)
    folder = tmp_path_factory.mktemp("runs") / "original"
    store = execute(load_model("reference", "cpu"), grid, folder, "a test")
    publish_summary(store, store.frame())
    return store


@pytest.fixture
def packed(run: Store, tmp_path: Path) -> Store:
    return pack(run, tmp_path / "packed", examples_of=2)


def test_a_packed_run_says_of_each_answer_what_the_run_says(run: Store, packed: Store) -> None:
    pd.testing.assert_frame_equal(packed.frame()[KEPT], run.frame()[KEPT])
    files = sorted(path.name for path in packed.folder.iterdir())
    assert files == ["contexts.parquet", "questions.parquet", "records.parquet", "run.json"]


def test_examples_alone_keep_what_takes_most_bytes(run: Store, packed: Store) -> None:
    before, after = run.frame(), packed.frame()
    is_example = before["example_index"] % 2 == 0
    assert 0 < is_example.sum() < len(before)
    assert (after["token_ends"][~is_example] == b"").all()
    pd.testing.assert_series_equal(
        after["token_ends"][is_example], before["token_ends"][is_example]
    )
    for name in OF_EXAMPLES:
        assert after[name][~is_example].isna().all()
        pd.testing.assert_series_equal(after[name][is_example], before[name][is_example])
    assert all(after[name].isna().all() for name in BY_LAYER)


def test_some_tasks_and_policies_are_packed_alone(run: Store, tmp_path: Path) -> None:
    packed = pack(run, tmp_path / "some", ["hops"], ["snapkv"])
    identity = packed.identity
    assert [task.name for task in identity.tasks] == ["hops"]
    assert [(policy.name, policy.tasks) for policy in identity.policies] == [("snapkv", ("hops",))]
    rows = packed.frame()
    assert ({*rows["task"]}, {*rows["policy"]}) == ({"hops"}, {"snapkv"})
    assert len(rows) == len(run.frame().query("task == 'hops' and policy == 'snapkv'"))


def test_what_is_packed_is_packed_again_without_loss(packed: Store, tmp_path: Path) -> None:
    again = pack(packed, tmp_path / "again", examples_of=2)
    pd.testing.assert_frame_equal(again.frame(), packed.frame())


def test_nothing_is_packed_of_what_has_no_answers(run: Store, tmp_path: Path) -> None:
    with pytest.raises(KVBenchError, match="no such answers"):
        pack(run, tmp_path / "none", ["base"], ["knorm"])
    assert not (tmp_path / "none").exists()


def test_a_packed_run_is_examined_and_its_examples_answered_again(packed: Store) -> None:
    findings = list(examine(packed.folder, cells=4))
    assert [finding for finding in findings if finding.outcome == "wrong"] == []
    (replayed,) = [finding for finding in findings if finding.check == "replay"]
    assert "answered again as they are stored" in replayed.text


def test_an_edited_score_of_a_packed_run_is_seen(packed: Store) -> None:
    (file,) = packed.record_files()
    first, *others = packed.read_rows(RECORDS, file)
    packed.write_rows(RECORDS, file, [first.model_copy(update={"em": 100.0 - first.em}), *others])
    (wrong,) = [finding for finding in examine(packed.folder) if finding.outcome == "wrong"]
    assert (wrong.check, "em is" in wrong.text) == ("scores", True)


def test_a_page_shows_a_packed_run_and_writes_nothing_into_it(
    packed: Store, tmp_path: Path
) -> None:
    before = sorted(packed.folder.iterdir())
    (page, *_) = publish_sites([packed], tmp_path / "site")
    assert "snapkv" in page.read_text(encoding="utf-8")
    assert sorted(packed.folder.iterdir()) == before
    assert not (packed.folder / SUMMARY_FILE).exists()


def test_nothing_is_added_to_a_packed_run(packed: Store) -> None:
    with pytest.raises(KVBenchError, match="is packed"):
        Store.start(packed.folder, packed.identity, "a test")
