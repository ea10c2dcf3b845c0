"""A run whose numbers another processor rounded: it is sound, and a forged one is found there
too."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kvbench.checks.replay
from kvbench.checks.submission import examine
from kvbench.checks.tolerance import OF_OTHER_KERNELS, TOLERANCES
from kvbench.experiments.catalogue import find_policy
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.publish.site import publish_summary
from kvbench.store.packing import write_run_file
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS, Record, RowsByTable
from tests.support.submissions import give_answers_of_full, hand_in, unchecked, wrong
from tests.support.wording import assert_says

CELLS = 8  # all of the run
NAMES = ("full", "snapkv", "int4")
NOISE = 1e-6  # nats: more than the last bit of a likelihood, and less than its tolerance


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    policies = [find_policy(name) for name in NAMES]
    return hand_in(tmp_path_factory.mktemp("runs") / "original", policies)


@pytest.fixture
def run_here(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


@pytest.fixture
def run_elsewhere(run_here: Path) -> Path:
    """The same run with all likelihoods off by a bit or two, as the kernels of another processor
    have them."""
    for policy in NAMES:
        change(run_here, policy, moved_by(NOISE))
    return run_here


def change(folder: Path, policy: str, changed: Callable[[Record], Record]) -> None:
    """Changes the records of a policy, and has the summary follow."""
    store = Store.open(folder)
    for index in range(2):
        path = store.path(RECORDS, "base", index, policy)
        if path.is_file():
            rows = [changed(row) for row in store.read_rows(RECORDS, path)]
            store.write_rows(RECORDS, path, rows)
    publish_summary(store, store.frame())


def moved_by(nats: float) -> Callable[[Record], Record]:
    def moved(row: Record) -> Record:
        if row.gold_nll is None:
            return row
        return row.model_copy(update={"gold_nll": row.gold_nll + nats})

    return moved


def with_rows_swapped(row: Record) -> Record:
    """Two tokens of nearly the same score change places in a slot: as many are kept, and the
    likelihood moves by more than sums of another order do."""
    kept = bytearray(row.token_kept)
    first = next(place for place, part in enumerate(kept) if 0 < part < 255)
    second = next(place for place, part in enumerate(kept) if 0 < part < 255 and place > first)
    kept[first], kept[second] = kept[first] - 1, kept[second] + 1
    return moved_by(0.03)(row).model_copy(update={"token_kept": bytes(kept)})


def texts(folder: Path, check: str) -> list[str]:
    return [one.text for one in examine(folder, cells=CELLS) if one.check == check]


def test_likelihoods_to_the_bit_tell_which_kernels_made_a_run(run_here: Path) -> None:
    """All others being equal, an edited choice of tokens is none of rounding."""
    change(run_here, "snapkv", lambda row: with_rows_swapped(row) if row.level == 0.5 else row)
    assert "snapkv at ratio 0.5" in wrong(run_here, cells=CELLS)["replay"]


def test_a_choice_of_rows_that_other_kernels_made_otherwise_is_sound(run_elsewhere: Path) -> None:
    (text,) = texts(run_elsewhere, "replay")
    assert text == "8 of 8 cells answered again as they are stored"
    change(run_elsewhere, "snapkv", with_rows_swapped)
    assert wrong(run_elsewhere, cells=CELLS) == {}
    assert unchecked(run_elsewhere, cells=CELLS) == {"rounding"}
    assert_says(texts(run_elsewhere, "rounding")[0], "another processor", "which tokens it keeps")
    assert texts(run_elsewhere, "replay") == [text]


def test_forged_answers_are_found_where_other_kernels_made_the_run(run_elsewhere: Path) -> None:
    give_answers_of_full(run_elsewhere, "snapkv")
    assert wrong(run_elsewhere) == {}, "files alone do not tell"
    assert "snapkv at ratio" in wrong(run_elsewhere, cells=CELLS)["replay"]


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (lambda row: {"gold_nll": (row.gold_nll or 0.0) / 2}, "gold_nll is"),
        (lambda row: {"kept_tokens": row.kept_tokens * 0.95}, "kept_tokens is"),
        (lambda row: {"kv_bytes": row.kv_bytes - row.kv_bytes // 20}, "kv_bytes is"),
    ],
)
def test_a_forged_number_is_found_where_other_kernels_made_the_run(
    run_elsewhere: Path, update: Callable[[Record], dict[str, Any]], text: str
) -> None:
    change(run_elsewhere, "snapkv", lambda row: row.model_copy(update=update(row)))
    assert text in wrong(run_elsewhere, cells=CELLS)["replay"]


def test_a_few_answers_that_part_elsewhere_are_told(run_elsewhere: Path) -> None:
    store = Store.open(run_elsewhere)
    path = store.path(RECORDS, "base", 0, "snapkv")
    first, *rows = store.read_rows(RECORDS, path)
    store.write_rows(RECORDS, path, [moved_by(2.0)(first), *rows])
    publish_summary(store, store.frame())
    assert wrong(run_elsewhere, cells=CELLS) == {}
    (text,) = texts(run_elsewhere, "replay")
    assert_says(text, "8 of 8 cells answered again; 1 of 48 answers differ", "gold_nll is")


def test_a_threshold_may_keep_a_row_more_elsewhere_and_not_here(run_here: Path) -> None:
    def one_more(row: Record) -> Record:
        return row.model_copy(update={"kv_bytes": row.kv_bytes + row.kv_bytes // 500})

    change(run_here, "snapkv", one_more)
    assert "kv_bytes is" in wrong(run_here, cells=CELLS)["replay"]
    for policy in NAMES:
        change(run_here, policy, moved_by(NOISE))
    assert wrong(run_here, cells=CELLS) == {}


def test_a_quantised_number_may_be_beside_the_edge_of_a_step_here_too(run_here: Path) -> None:
    """A part of a run is answered again in smaller batches, which round otherwise."""
    change(run_here, "int4", moved_by(0.003))
    assert wrong(run_here, cells=CELLS) == {}
    change(run_here, "int4", lambda row: row.model_copy(update={"kv_bytes": row.kv_bytes + 9}))
    assert "kv_bytes is" in wrong(run_here, cells=CELLS)["replay"]


def test_answers_of_the_full_cache_under_the_name_of_a_format_are_found(run_here: Path) -> None:
    give_answers_of_full(run_here, "int4")
    assert "int4 at ratio 0" in wrong(run_here, cells=CELLS)["replay"]


def test_other_kernels_never_ask_for_less_than_the_same_ones() -> None:
    for dtype, here in TOLERANCES.items():
        elsewhere = OF_OTHER_KERNELS[dtype]
        assert elsewhere.nats >= here.nats, dtype
        assert elsewhere.share >= here.share, dtype
        assert elsewhere.tie >= here.tie, dtype
        assert elsewhere.rows > here.rows, dtype


def test_an_answer_that_fails_here_is_told_and_nothing_wrong(
    run_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that takes longer on this machine, which has the time that the run gave it."""
    run = Store.open(run_here).run
    write_run_file(run_here, run.model_copy(update={"job": Job(cell_seconds=7)}))

    def collect_in_part(model: Any, task: Any, examples: Any, grid: Grid) -> RowsByTable:
        reason = f"it took longer than {grid.time_limit.seconds:g} s"
        rows = RowsByTable()
        for record in collect(model, task, examples, grid).records:
            if record.level == 0.9:
                failed = {"status": "failed", "reason": reason, "output_token_ids": None}
                rows.add(RECORDS.name, [record.model_copy(update=failed)])
            else:
                rows.add(RECORDS.name, [record])
        return rows

    monkeypatch.setattr(kvbench.checks.replay, "collect", collect_in_part)
    assert wrong(run_here, cells=CELLS) == {}
    failed, answered = texts(run_here, "replay")
    assert_says(failed, "12 of 48 answers", "snapkv at ratio 0.9", "longer than 7 s")
    assert answered == "6 of 8 cells answered again as they are stored"
