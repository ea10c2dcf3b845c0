"""``kvbench.compare``, ``doctor`` and ``plan``: what their commands say, as objects."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from kvpress import KnormPress

import kvbench
from kvbench.experiments import options
from kvbench.experiments.options import limit_answers
from kvbench.models.load import LoadedModel
from tests.support.models.runs import CommandLine
from tests.support.models.toy import toy_tokenizer

CONTEXTS = 6  # fewer give no verdict


@pytest.fixture(scope="module")
def compared(
    toy_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[kvbench.ComparisonResult, Path]:
    """A comparison of the toy model, with the folder that it lies in."""
    folder = tmp_path_factory.mktemp("compared")
    result = kvbench.compare(
        "knorm",
        against=["snapkv"],
        tasks=["base"],
        ratios=[0.5],
        limit=CONTEXTS,
        context_tokens="native",
        model=toy_folder,
        out=folder / "runs",
        site=folder / "site",
        every_task=True,
        name="c",
    )
    return result, folder


def test_a_comparison_says_what_the_command_says(
    compared: tuple[kvbench.ComparisonResult, Path],
    cli: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, folder = compared
    monkeypatch.setattr(options, "limit_answers", limit_answers)  # as long as those of the library
    # The command reads the answers that are stored, and compares them anew.
    words = ["--tasks", "base", "--ratios", 0.5, "--limit", CONTEXTS, "--context-tokens", "native"]
    places = ["--model", cli.model, "--out", folder / "runs", "--site", tmp_path / "site"]
    status = cli(
        *("compare", "knorm", "--against", "snapkv", *words, *places),
        *("--every-task", "--name", "c", "--json"),
    )
    assert status == 0, cli.err
    printed = json.loads(cli.out)["tables"]
    for name in ("outcomes", "means", "verdicts"):
        frame = result.tables()[name]
        rows = json.loads(frame.to_json(orient="records", double_precision=15))
        assert [row.keys() for row in rows] == [row.keys() for row in printed[name]]
        for row, printed_row in zip(rows, printed[name], strict=True):
            for column, value in row.items():
                expected = printed_row[column]
                if isinstance(value, float):
                    expected = pytest.approx(expected, rel=1e-12)
                assert value == expected, column
    assert list(result.outcomes()["other"]) == ["snapkv", "random", "recency"]
    assert "not distinguished from snapkv, random, recency" in result.verdict
    assert result.verdict.startswith("knorm: ")
    assert "snapkv" in repr(result)
    assert result.page.is_file()
    assert len(result.run.records()) > 0
    assert list(result.cells()["other"].unique()) == ["snapkv", "random", "recency"]
    assert result.means()["difference"].notna().all()
    assert result.failed_gate == ""


def test_a_stored_run_is_compared_and_nothing_is_run(
    compared: tuple[kvbench.ComparisonResult, Path], tmp_path: Path
) -> None:
    result, _ = compared
    again = kvbench.compare(
        result.run, against="snapkv", site=tmp_path, max_loss=0, every_task=True
    )
    assert "against" not in again.verdict.splitlines()[0][:8]
    assert again.run.folder == result.run.folder
    assert again.fault == ""
    with pytest.raises(kvbench.KVBenchError, match="leave out --limit"):
        kvbench.compare(result.run, limit=3)


def test_a_press_in_memory_is_examined_on_a_model_in_memory(llama: LoadedModel) -> None:
    model: Any = (llama.network, toy_tokenizer())
    result = kvbench.doctor(KnormPress, model=model)
    # It does what kvbench's own policy does, which the check of all presses says.
    assert result.verdict == "broken: is it new?"
    assert result.fault == "KnormPress is not sound: is it new?"
    assert not result.is_sound
    assert {"check", "outcome", "finding"} <= set(result.findings().columns)
    with pytest.raises(kvbench.KVBenchError, match="--limit is for a model alone"):
        kvbench.doctor(KnormPress, model=model, limit=3)
    with pytest.raises(kvbench.KVBenchError, match="--site goes with --kv"):
        kvbench.doctor(model=model, site="pages")


def test_what_a_model_in_memory_records_is_the_same_before_and_after(llama: LoadedModel) -> None:
    """transformers sets hooks of its own when it first records a layer, and notes that it did."""
    network = copy.deepcopy(llama.network)
    kvbench.doctor(KnormPress, model=(network, toy_tokenizer()))
    network.set_attn_implementation("eager")
    with torch.inference_mode():
        output = network(torch.tensor([[5, 6, 7]]), output_attentions=True)
    assert len(output.attentions) == network.config.num_hidden_layers
    assert all(weights is not None for weights in output.attentions)


def test_a_plan_is_a_table(llama: LoadedModel) -> None:
    small: dict[str, Any] = {"tasks": "base", "policies": ["knorm", KnormPress], "limit": 2}
    plan = kvbench.plan(llama.network, toy_tokenizer(), **small)
    assert list(plan.table().columns) == ["what", "how much"]
    assert plan.notes
    assert str(plan.table()["what"][0]) in repr(plan)
    with pytest.raises(kvbench.KVBenchError, match="unknown machine 'no such'"):
        kvbench.plan(machine="no such", **small)
