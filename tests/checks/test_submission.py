"""A run made by somebody else: a sound one passes, an edited one does not, and what was not checked is said."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datasets_gen import TASKS
from kvbench.checks.submission import examine
from kvbench.experiments.grid import Grid, Setting
from kvbench.models.load import load_model
from kvbench.publish.site import publish_summary
from kvbench.store.scoring import rescore
from kvbench.store.store import Store
from kvbench.store.tables import CONTEXTS, QUESTIONS, RECORDS, Record, StoredTable
from policies import POLICIES, at_ratios
from tests.support.models.runs import CommandLine, execute

SNAPKV = [POLICIES[name] for name in ("full", "snapkv")]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a shipped model: all that can be checked of a run can be checked of this one."""
    grid = Grid([(TASKS["base"], 2)], Setting(SNAPKV, at_ratios((0.5, 0.9)), seed=3))
    folder = tmp_path_factory.mktemp("runs") / "original"
    store = execute(load_model("reference", "cpu"), grid, folder, "a test")
    publish_summary(store, store.frame())
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def wrong(folder: Path, cells: int = 0) -> dict[str, str]:
    """What is found by the checks that fail."""
    return {one.check: one.text for one in examine(folder, cells=cells) if one.outcome == "wrong"}


def unchecked(folder: Path, cells: int = 0) -> set[str]:
    return {one.check for one in examine(folder, cells=cells) if one.outcome == "unchecked"}


def edit(folder: Path, table: StoredTable, **changes: object) -> None:
    """Changes the first row of a table, of snapkv where each policy has its own, and has the summary follow."""
    store = Store.open(folder)
    path = store.path(table, "base", 0, "snapkv")
    first, *rows = store.read_rows(table, path)
    store.write_rows(table, path, [first.model_copy(update=changes), *rows])
    publish_summary(store, store.frame())


def edit_identity(folder: Path, change: Callable[[Any], object]) -> None:
    content = json.loads((folder / "run.json").read_text())
    change(content)
    (folder / "run.json").write_text(json.dumps(content))


def give_answers_of_full(folder: Path, policy: str) -> None:
    """Stores the full cache's answers and their scores under a policy's name, beside the policy's own costs."""
    store = Store.open(folder)
    full = {record.question_id: record for record in store.read_rows(RECORDS, store.path(RECORDS, "base", 0, "full"))}
    path = store.path(RECORDS, "base", 0, policy)
    taken = ("output_text", "output_token_ids", "ended", "right", "gold_nll", "delta_nll", "masked", "corrupted", "due")

    def forged(row: Record) -> Record:
        return row.model_copy(update={name: getattr(full[row.question_id], name) for name in taken})

    rows = store.read_rows(RECORDS, path)
    store.write_rows(RECORDS, path, [forged(row) for row in rows])
    assert store.read_rows(RECORDS, path) != rows
    rescore(store)
    publish_summary(store, store.frame())


def test_a_sound_run_passes_and_is_left_as_it_was(cli: CommandLine, run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert cli("check-submission", run) == 0
    assert cli.out.startswith("sound: 6 of 6 cells answered again")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_answers_of_the_full_cache_in_a_run_of_the_default_length_are_found(cli: CommandLine, tmp_path: Path) -> None:
    """Contexts that were lengthened to 768 tokens of the run's model are made again, and answered again."""
    words = "--model reference-narrow --tasks base --limit 1 --policies recency --ratios 0.9 --name x --quiet"
    assert cli("run", *words.split(), "--out", tmp_path, "--site", tmp_path / "site") == 0, cli.err
    run = tmp_path / "x"
    assert Store.open(run).frame().context_tokens.min() > 700
    assert cli("check-submission", run) == 0
    assert cli.out.startswith("sound")
    give_answers_of_full(run, "recency")
    assert wrong(run) == {}, "files alone do not tell"
    assert "(replay)" in cli.error("check-submission", run)


@pytest.mark.parametrize(
    ("table", "changes", "check", "text"),
    [
        (RECORDS, {"f1": 12.5}, "scores", "f1 is 12.5, made again it is"),
        (QUESTIONS, {"golds": ["nothing"]}, "questions", "golds is"),
        (CONTEXTS, {"context": "Nothing."}, "questions", "context is"),
        (RECORDS, {"kv_bytes": 7}, "replay", "kv_bytes is 7"),
        (RECORDS, {"ger": 0.123}, "replay", "ger is 0.123"),
    ],
)
def test_an_edited_value_is_found(
    run: Path, table: StoredTable, changes: dict[str, object], check: str, text: str
) -> None:
    edit(run, table, **changes)
    assert text in wrong(run, cells=6 if check == "replay" else 0)[check]


def test_an_edited_identity_is_found(run: Path) -> None:
    edit_identity(run, lambda content: content["identity"]["tasks"][0].update(chance=1.0))
    assert wrong(run)["hashes"].startswith("base: chance is 1.0, made again it is 16.2")
    edit_identity(run, lambda content: content["identity"].update(seed=4))
    assert "there 1 times, planned 0" in wrong(run)["completeness"]
    edit_identity(run, lambda content: content["identity"].pop("seed"))
    with pytest.raises(Exception, match=r"run.json is damaged \(identity.seed: Field required\)"):
        wrong(run)


def test_records_that_are_missing_twice_or_surplus_are_found(run: Path) -> None:
    store = Store.open(run)
    path = store.path(RECORDS, "base", 0, "snapkv")
    first, *others = store.read_rows(RECORDS, path)
    surplus = first.model_copy(update={"level": 0.7, "ratio": 0.7})
    for rows, text in (
        (others, f"{first.question_id} is missing"),
        ([first, *others, first], f"{first.question_id} is there 2 times"),
        ([first, *others, surplus], "snapkv at ratio 0.7"),
    ):
        store.write_rows(RECORDS, path, rows)
        assert text in wrong(run)["completeness"]
    path.write_bytes(path.read_bytes()[:100])
    assert "snapkv.parquet cannot be read" in wrong(run)["files"]


def test_a_forged_or_damaged_run_is_one_clear_line(cli: CommandLine, run: Path) -> None:
    edit(run, RECORDS, f1=12.5)
    told = cli.error("check-submission", run, "--replay", 0)
    assert told == f"error: {run} does not hold what it says (scores): do not put it on a board"
    for content in ("[", "[1]", "{}"):
        (run / "summary.json").write_text(content)
        assert "(scores" in cli.error("check-submission", run, "--replay", 0)


def test_intervals_of_another_version_are_no_forgery(run: Path) -> None:
    """They follow from the records by the methods of a version, and are told."""
    path = run / "summary.json"
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([row | {"right_low": 0.25, "best_in": ["right"]} for row in rows]))
    assert "scores" not in wrong(run)
    assert "scores" in unchecked(run)
    path.write_text(json.dumps([row | {"right": 0.25} for row in rows]))
    assert "right is 0.25" in wrong(run)["scores"]


def test_what_was_not_checked_is_not_called_sound(cli: CommandLine, run: Path) -> None:
    assert cli("check-submission", run, "--replay", "0") == 0
    assert "nothing wrong found, but not checked: replay" in cli.out
    assert "sound" not in cli.out


def test_what_cannot_be_made_here_is_not_checked(run: Path) -> None:
    """A model that is not here, other code, another machine, or a task in another version."""
    original = (run / "run.json").read_text()
    for changes, left in (
        ({"model_fingerprint": "0123456789abcdef"}, {"hashes", "replay"}),
        ({"source": "0123456789abcdef"}, {"hashes", "rounding"}),
        ({"device": "cuda (A)"}, {"rounding"}),
    ):
        content = json.loads(original)
        content["identity"].update(changes)
        (run / "run.json").write_text(json.dumps(content))
        outcomes = {(one.check, one.outcome) for one in examine(run, cells=2) if one.outcome != "ok"}
        assert outcomes == {(check, "unchecked") for check in left}
    (run / "run.json").write_text(original)
    edit_identity(run, lambda content: content["identity"]["tasks"][0].update(version="0.0.1"))
    assert {"questions", "replay"} <= unchecked(run, cells=2)
