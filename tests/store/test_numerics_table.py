"""The tables of numerics are filled, resumed and read like the others, and their rows add up."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from kvbench.engine.studies.decoding_paths import NULL_STEPS
from kvbench.engine.time_limit import NumericsOptions
from kvbench.experiments.build_grid import build_grid
from kvbench.models import precision
from kvbench.models.load import LoadedModel
from kvbench.store.run_file import Job
from kvbench.store.store import Store, write_parquet
from kvbench.store.tables import StoredTable
from kvbench.studies.numerics.tables import DRIFT, NUMERICS, RECOVERY, ROUNDING
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import CommandLine, ToyRuns
from tests.support.models.toy import toy_model
from tests.support.wording import assert_says

DTYPES = ("float32", "bfloat16", "float16")


@pytest.fixture(scope="module")
def numerics_store(llama: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Store:
    few = NumericsOptions(steps=8)  # tokens of an answer
    toy = ToyRuns(llama, tmp_path_factory.mktemp("numerics"))
    tables = (NUMERICS.name,)
    return toy("run", ("full", "knorm"), contexts=2, tables=tables, numerics=few)


def table(store: Store, declared: StoredTable) -> pd.DataFrame:
    frame: pd.DataFrame = store.study_table(declared).to_pandas()
    return frame


def test_every_pair_is_there_in_every_dtype(numerics_store: Store) -> None:
    pairs = table(numerics_store, NUMERICS)
    assert set(pairs["policy"]) == {"full"}
    walked = {
        tuple(row) for row in pairs[["dtype", "sampling", "regime", "pair"]].to_numpy().tolist()
    }
    regimes = ("teacher-forced", "free-running")
    both = {
        (dtype, way, regime, "cache")
        for dtype in DTYPES
        for way in ("greedy", "top_k", "top_p")
        for regime in regimes
    }
    null = {
        (dtype, "greedy", "teacher-forced", pair)
        for dtype in DTYPES
        for pair in ("chunks", "again")
    }
    assert walked == both | null


def test_one_context_in_three_has_null_rows(numerics_store: Store) -> None:
    pairs = table(numerics_store, NUMERICS)
    null = pairs[pairs["pair"] == "chunks"]
    questions = [rows["question_id"].nunique() for rows in (pairs, null)]
    assert questions == [2, 1]
    assert {len(kl) for kl in null["kl"]} == {NULL_STEPS}
    assert max(map(max, null["kl"])) < 1e-3
    again = pairs[pairs["pair"] == "again"]
    assert set(again["question_id"]) == set(null["question_id"])
    assert {one for kl in again["kl"] for one in kl} == {0.0}, "the same twice"


def test_options_are_of_this_suite_alone() -> None:
    with pytest.raises(KVBenchError, match=r"^dtypes is for --suite numerics: give that too$"):
        build_grid(Job(dtypes="fp32"), len)
    with pytest.raises(KVBenchError, match="unknown dtype 'fp8'"):
        build_grid(Job(suite="numerics", dtypes="fp32,fp8"), len)
    with pytest.raises(KVBenchError, match="over 128 tokens at most"):
        build_grid(Job(suite="numerics", max_new_tokens=129), len)
    assert build_grid(Job(suite="numerics", max_new_tokens=128), len).numerics.steps == 128
    numerics = build_grid(Job(suite="numerics", dtypes="bf16,fp32", sampling="top_p"), len).numerics
    assert (numerics.dtypes, numerics.sampling, numerics.repeats) == (
        ("bfloat16", "float32"),
        ("top_p",),
        2,
    )


def test_a_dtype_that_is_lacking_is_refused_before_the_model_is_loaded(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("not implemented")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refuse)
    line = cli.error(
        "run",
        "--suite",
        "numerics(dtypes=fp16)",
        "--model",
        cli.model,
        "--out",
        cli.folder / "runs",
    )
    assert_says(line, "error: numerics(dtypes=", "no float16", "leave it out")
    assert "loading" not in cli.err


STUDY = (NUMERICS, DRIFT, RECOVERY, ROUNDING)
CONTEXTS = 3


def numerics_run(folder: Path, name: str, dtypes: tuple[str, ...], *tables: StoredTable) -> Store:
    """Runs a model of its own, so that no copy of another test is there, in this process."""
    runs = ToyRuns(toy_model(), folder)
    options = NumericsOptions(dtypes, ("greedy",), steps=3)
    return runs(
        name,
        ("full",),
        contexts=CONTEXTS,
        tables=tuple(table.name for table in tables),
        numerics=options,
    )


class CopyCounter:
    """Counts the copies of networks that are made, and how many of them are in memory at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dtypes: list[str] = []
        self.most_alive = 0
        self._copies: list[weakref.ref[Any]] = []
        self._copy = precision.in_dtype
        monkeypatch.setattr(precision, "in_dtype", self)

    def __call__(self, network: Any, name: str) -> Any:
        copy = self._copy(network, name)
        self.dtypes.append(name)
        self._copies.append(weakref.ref(copy))
        self.most_alive = max(self.most_alive, sum(one() is not None for one in self._copies))
        return copy


@pytest.mark.parametrize(
    ("dtypes", "copies"),
    [
        (("float32",), []),  # the dtype of the loaded network
        (("float32", "bfloat16"), ["bfloat16"]),  # one copy serves all contexts
        # A context begins with the copy that the one before it ended with.
        (DTYPES, ["bfloat16", "float16", "bfloat16", "float16"]),
    ],
)
def test_one_copy_at_a_time_serves_all_tables_and_what_is_in_memory_comes_first(
    dtypes: tuple[str, ...], copies: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.disable()  # a copy that only a collection would free is one that a GPU has no room for
    try:
        counter = CopyCounter(monkeypatch)
        numerics_run(tmp_path, "run", dtypes, *STUDY)
    finally:
        gc.enable()
    assert counter.dtypes == copies
    assert counter.most_alive == min(1, len(copies))


def test_tables_hold_to_the_bit_what_they_hold_with_a_new_copy_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = numerics_run(tmp_path, "together", DTYPES, *STUDY)
    copies = precision.NetworkCopies
    monkeypatch.setattr(
        copies, "network_in", lambda self, name: precision.in_dtype(self._network, name)
    )
    monkeypatch.setattr(copies, "order", lambda _, names: list(names))
    for declared in STUDY:
        alone = table(numerics_run(tmp_path, declared.name, DTYPES, declared), declared)
        assert len(alone) > 0
        pd.testing.assert_frame_equal(table(together, declared), alone, check_exact=True)


def test_tables_of_a_run_before_jensen_and_shannon_are_read_with_blanks(tmp_path: Path) -> None:
    """Its files lack the columns that came later; what they hold stays as it is."""
    run = numerics_run(tmp_path, "run", ("float32",), NUMERICS, DRIFT)
    later = {NUMERICS: ("js",), DRIFT: ("hidden_l2", "hidden_cosine", "attention_kl")}
    for declared, names in later.items():
        whole = table(run, declared)
        assert whole[list(names)].notna().all(axis=None)
        for path in run.files(declared):
            rows = run.read(declared, path).drop_columns(list(names))
            write_parquet(path, rows)
        before = table(run, declared)
        assert list(before.columns) == list(whole.columns)
        assert before[list(names)].isna().all(axis=None)
        pd.testing.assert_frame_equal(
            before.drop(columns=list(names)), whole.drop(columns=list(names))
        )
        (path,) = run.files(declared)[:1]
        assert run.read(declared, path, ["task", names[0]]).column_names == ["task", names[0]]
