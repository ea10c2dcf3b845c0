"""The tables of numerics are filled, resumed and read like the others, and their rows add up."""

import pandas as pd
import pytest
import torch

from kvbench.engine.options import NumericsOptions
from kvbench.engine.studies.walks import NULL_STEPS
from kvbench.experiments.build_grid import build_grid
from kvbench.models.load import LoadedModel
from kvbench.store.numerics import NUMERICS
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from kvbench.store.tables import StoredTable
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import CommandLine, ToyRuns

DTYPES = ("float32", "bfloat16", "float16")


@pytest.fixture(scope="module")
def store(llama: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Store:
    few = NumericsOptions(steps=8)  # tokens of an answer
    toy = ToyRuns(llama, tmp_path_factory.mktemp("numerics"))
    tables = (NUMERICS.name,)
    return toy("run", ("full", "knorm"), contexts=2, tables=tables, numerics=few)


def table(store: Store, declared: StoredTable) -> pd.DataFrame:
    frame: pd.DataFrame = store.study_table(declared).to_pandas()
    return frame


def test_every_pair_is_there_in_every_dtype(store: Store) -> None:
    pairs = table(store, NUMERICS)
    assert set(pairs["policy"]) == {"full"}
    walked = {tuple(row) for row in pairs[["dtype", "sampling", "regime", "pair"]].to_numpy().tolist()}
    regimes = ("teacher-forced", "free-running")
    both = {
        (dtype, way, regime, "cache") for dtype in DTYPES for way in ("greedy", "top_k", "top_p") for regime in regimes
    }
    assert walked == both | {(dtype, "greedy", "teacher-forced", "chunks") for dtype in DTYPES}


def test_one_context_in_three_has_null_rows(store: Store) -> None:
    pairs = table(store, NUMERICS)
    null = pairs[pairs["pair"] == "chunks"]
    questions = [rows["question_id"].nunique() for rows in (pairs, null)]
    assert questions == [2, 1]
    assert {len(kl) for kl in null["kl"]} == {NULL_STEPS}
    assert max(map(max, null["kl"])) < 1e-3


def test_options_are_of_this_suite_alone() -> None:
    with pytest.raises(KVBenchError, match=r"^--dtypes is for --suite numerics: give that too$"):
        build_grid(Job(dtypes="fp32"), len)
    with pytest.raises(KVBenchError, match="unknown dtype 'fp8'"):
        build_grid(Job(suite="numerics", dtypes="fp32,fp8"), len)
    with pytest.raises(KVBenchError, match="over 128 tokens at most"):
        build_grid(Job(suite="numerics", max_new_tokens=129), len)
    assert build_grid(Job(suite="numerics", max_new_tokens=128), len).setting.numerics.steps == 128
    numerics = build_grid(Job(suite="numerics", dtypes="bf16,fp32", sampling="top_p"), len).setting.numerics
    assert (numerics.dtypes, numerics.sampling, numerics.repeats) == (("bfloat16", "float32"), ("top_p",), 2)


def test_a_dtype_that_is_lacking_is_refused_before_the_model_is_loaded(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("not implemented")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refuse)
    line = cli.error(
        "run", "--suite", "numerics", "--dtypes", "fp16", "--model", cli.model, "--out", cli.folder / "runs"
    )
    assert line == "error: --dtypes: this cpu has no float16 (not implemented): leave it out"
    assert "loading" not in cli.err
