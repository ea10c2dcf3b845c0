"""The table of numerics is filled, resumed and read like the others, and its rows add up."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from kvbench.engine.numerics.options import NumericsOptions
from kvbench.engine.numerics.remedies import REMEDIES
from kvbench.engine.numerics.walks import NULL, NULL_STEPS
from kvbench.experiments.build_grid import build_grid
from kvbench.models.load import LoadedModel
from kvbench.run.load import load_job
from kvbench.store.numerics import DRIFT, GROUPS, NUMERICS, PATCHES
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import CommandLine, ToyRuns

IN_STEPS = ["kl", "js", "largest", "mean_difference", "same_top", "margin", "other_margin", "kl_earlier", "kl_later"]


@pytest.fixture(scope="module")
def numerics(llama: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Store:
    few = NumericsOptions(steps=8)  # tokens of an answer
    toy = ToyRuns(llama, tmp_path_factory.mktemp("numerics"))
    tables = (NUMERICS.name, DRIFT.name, PATCHES.name, GROUPS.name)
    return toy("run", ("full",), contexts=2, tables=tables, numerics=few)


@pytest.fixture(scope="module")
def pairs(numerics: Store) -> pd.DataFrame:
    """The pairs of the first context, which is looked at closer."""
    rows = numerics.study_table(NUMERICS).to_pandas()
    return rows[rows["question_id"] == rows["question_id"].iloc[0]]


def test_one_context_in_three_is_looked_at_closer(numerics: Store, pairs: pd.DataFrame) -> None:
    rows = numerics.study_table(NUMERICS).to_pandas()
    second = rows[rows["question_id"] != pairs["question_id"].iloc[0]]
    assert second["question_id"].nunique() == 1
    assert set(second["pair"]) == {"cache"}
    assert set(second["dtype"]) == set(pairs["dtype"])
    questions = {
        table.name: numerics.study_table(table).to_pandas()["question_id"].nunique()
        for table in (DRIFT, PATCHES, GROUPS)
    }
    assert questions == {DRIFT.name: 1, PATCHES.name: 2, GROUPS.name: 1}


def test_null_rows_are_of_the_first_steps(pairs: pd.DataFrame) -> None:
    greedy = pairs[(pairs["sampling"] == "greedy") & (pairs["regime"] == "teacher-forced")]
    steps = greedy.assign(steps=greedy["kl"].map(len)).set_index(["dtype", "pair"])["steps"]
    assert steps.xs("cache", level="pair").max() > NULL_STEPS
    for (dtype, pair), count in steps.items():
        whole = steps[dtype, "cache"]
        assert count == (min(NULL_STEPS, whole) if pair in NULL else whole)


def test_every_pair_is_there_in_every_dtype(pairs: pd.DataFrame) -> None:
    assert pairs["question_id"].nunique() == 1
    assert set(pairs["dtype"]) == {"float32", "bfloat16", "float16"}
    greedy = pairs[(pairs["sampling"] == "greedy") & (pairs["dtype"] == "bfloat16")]
    names = {"cache", "on again", "off again", "batch", "chunks", "float32"}
    remedied = greedy[greedy["pair"].isin(REMEDIES)]
    assert set(remedied["pair"]) == {*REMEDIES}
    assert (remedied["path_seconds"] > 0).all()
    greedy = greedy[~greedy["pair"].isin(REMEDIES)]
    assert set(greedy["pair"]) - {"threads"} == names, "threads are tried where there is more than one"
    assert set(pairs[pairs["sampling"] != "greedy"]["pair"]) == {"cache"}
    assert set(pairs[pairs["pair"] == "cache"]["regime"]) == {"teacher-forced", "free-running"}


def test_the_same_path_again_is_the_same_to_the_bit(pairs: pd.DataFrame) -> None:
    again = pairs[pairs["pair"].isin(["on again", "off again"])]
    assert len(again)
    assert np.concatenate(again["largest"].tolist()).max() == 0.0


def test_lists_have_a_number_for_each_step(pairs: pd.DataFrame) -> None:
    for row in pairs.itertuples():
        steps = min(len(row.tokens), len(row.other_tokens))
        assert {len(getattr(row, name)) for name in IN_STEPS} == {steps}
        assert math.isnan(row.kl_earlier[0])
        assert math.isnan(row.kl_later[-1])


def test_options_are_of_this_suite_alone() -> None:
    with pytest.raises(KVBenchError, match=r"^--dtypes is for --suite numerics: give that too$"):
        build_grid(Job(dtypes="fp32"), len)
    with pytest.raises(KVBenchError, match=r"^--deterministic is for --suite numerics: give that too$"):
        build_grid(Job(deterministic=True), len)
    with pytest.raises(KVBenchError, match="unknown dtype 'fp8'"):
        build_grid(Job(suite="numerics", dtypes="fp32,fp8"), len)
    with pytest.raises(KVBenchError, match="over 128 tokens at most"):
        build_grid(Job(suite="numerics", max_new_tokens=129), len)
    assert build_grid(Job(suite="numerics", max_new_tokens=128), len).setting.numerics.steps == 128
    numerics = build_grid(Job(suite="numerics", dtypes="bf16,fp32", sampling="top_p"), len).setting.numerics
    assert (numerics.dtypes, numerics.sampling, numerics.repeats) == (("bfloat16", "float32"), ("top_p",), 2)


def test_deterministic_algorithms_are_used_where_they_are_asked_for(
    llama: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are part of what a run is, so that two runs of which one asked for them are two."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    job = Job(model=llama.name, suite="numerics", tasks="base", limit=1)
    try:
        plain = load_job(job, llama)
        assert not torch.are_deterministic_algorithms_enabled()
        asked = load_job(job.model_copy(update={"deterministic": True}), llama)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    options = [one.grid.setting.options_of_tables for one in (plain, asked)]
    assert options[1] == options[0] | {"algorithms": "deterministic"}


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
