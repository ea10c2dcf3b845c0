"""The command line on a toy model: results, and one clear line for each kind of bad input."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import kvbench.commands.run
from datasets_gen import TASKS
from kvbench.cli import COMMANDS, main
from kvbench.metrics.registry import METRICS
from kvbench.models import LoadedModel
from kvbench.store import Store
from policies import POLICIES
from toy import pressing, toy_tokenizer


@pytest.fixture(scope="module")
def toy_folder(tmp_path_factory: pytest.TempPathFactory, llama: LoadedModel) -> Path:
    """The toy model as a checkpoint on disk."""
    folder = tmp_path_factory.mktemp("model")
    llama.network.save_pretrained(folder)
    llama.tokenizer.save_pretrained(folder)
    return folder


def run_arguments(model: Path, tmp_path: Path, *more: str) -> list[str]:
    small = ["--limit", "1", "--ratios", "0.5", "--policies", "full,knorm", "--name", "x"]
    return [
        "run",
        "--model",
        str(model),
        "--out",
        str(tmp_path / "runs"),
        "--site",
        str(tmp_path / "site"),
        *small,
        *more,
    ]


def test_a_run_writes_records_summary_and_page(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(run_arguments(toy_folder, tmp_path)) == 0
    summary = json.loads((tmp_path / "runs/x/summary.json").read_text())
    needed = {"task", "mode", "policy", "ratio", "n", "f1", "em", "abstention_rate", "hallucination_rate", "ger"}
    assert all(needed | {"slot_coverage", "realised_ratio"} <= set(row) for row in summary)
    assert {(row["policy"], row["ratio"]) for row in summary} == {("full", 0.0), ("knorm", 0.5)}
    assert "<html" in (tmp_path / "site/index.html").read_text()
    assert "knorm" in capsys.readouterr().out


def test_the_page_can_be_built_again_from_the_store(toy_folder: Path, tmp_path: Path) -> None:
    assert main(run_arguments(toy_folder, tmp_path)) == 0
    page = (tmp_path / "site/index.html").read_bytes()
    assert main(["site", str(tmp_path / "runs/x"), "--out", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again/index.html").read_bytes() == page


def test_question_aware_mode_compresses_the_question_too(toy_folder: Path, tmp_path: Path) -> None:
    assert main(run_arguments(toy_folder, tmp_path, "--mode", "aware")) == 0
    assert main(run_arguments(toy_folder, tmp_path, "--name", "agnostic")) == 0
    aware, agnostic = (Store.open(tmp_path / "runs" / name).frame() for name in ("x", "agnostic"))
    merged = aware.merge(agnostic, on=["policy", "ratio", "question_id"], suffixes=("", "_agnostic"))
    assert (merged.context_tokens > merged.context_tokens_agnostic).all()
    full = merged[merged.policy == "full"]  # nothing is compressed: both modes read the same tokens
    assert full.output_text.tolist() == full.output_text_agnostic.tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "unknown command 'rnu': did you mean 'run'?"),
        (["ls", "task"], "did you mean 'tasks'?"),
        (["run", "--tasks", "bse"], "unknown task 'bse': did you mean 'base'?"),
        (["run", "--policies", "snapkw"], "unknown policy 'snapkw': did you mean 'snapkv'?"),
        (["run", "--ratios", "1.5"], "outside [0, 1)"),
        (["run", "--limit", "0"], "--limit is 1 or more"),
        (["run", "--model", "/nowhere/model"], "there is no model at /nowhere/model"),
        (["run", "--device", "tpu"], "unknown device 'tpu'"),
        (["run", "--dtype", "int3"], "unknown dtype 'int3'"),
        (["run", "--name", "../x"], "--name"),
        (["run", "--max-kv-gb", "0"], "--max-kv-gb"),
        (["site", "/nowhere/run"], "holds no run"),
        (["score", "/nowhere/run"], "holds no run"),
        (["export", "--task", "bse"], "did you mean 'base'?"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    output = capsys.readouterr()
    errors = [line for line in output.err.splitlines() if not line.startswith("loading")]
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    assert message in errors[0]


def test_an_unsupported_architecture_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = GPT2Config(vocab_size=len(toy_tokenizer()), n_embd=16, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    toy_tokenizer().save_pretrained(tmp_path / "gpt2")
    assert main(run_arguments(tmp_path / "gpt2", tmp_path)) == 1
    assert "kvpress does not support GPT2LMHeadModel" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is at hand")
def test_a_missing_gpu_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--device", "cuda"]) == 1
    assert "no CUDA device" in capsys.readouterr().err


def test_a_failing_policy_is_recorded_and_all_others_go_on(
    toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(situation):  # type: ignore[no-untyped-def]
        press = POLICIES["knorm"].build(situation)
        press.score = lambda *arguments: 1 / 0
        return press

    monkeypatch.setattr(kvbench.commands.run, "POLICIES", {**POLICIES, "broken": pressing("broken", broken)})
    assert main(run_arguments(toy_folder, tmp_path, "--policies", "full,broken,knorm")) == 1
    assert "broken failed in layer 0: ZeroDivisionError: division by zero" in capsys.readouterr().err
    frame = Store.open(tmp_path / "runs/x").frame()
    assert frame.groupby("policy").status.unique().map(list).to_dict() == {
        "full": ["ok"],
        "knorm": ["ok"],
        "broken": ["failed"],
    }
    assert Store.open(tmp_path / "runs/x").run.status == "complete"
    rows = json.loads((tmp_path / "runs/x/summary.json").read_text())
    assert all((row["f1"] is None) == (row["policy"] == "broken") for row in rows)


@pytest.mark.parametrize(
    ("kind", "names"), [("tasks", TASKS), ("policies", POLICIES), ("metrics", METRICS), ("models", ["reference"])]
)
def test_everything_registered_is_listed(kind: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", kind]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n{name} " in listed or listed.startswith(name) for name in names)
    assert max(map(len, listed.splitlines())) <= 80


def test_help_tells_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    overview = capsys.readouterr().out
    assert all(f"  {name} " in overview for name in COMMANDS)
    for name in COMMANDS:
        assert main([name, "--help"]) == 0


def test_a_task_is_exported_with_its_spans(tmp_path: Path) -> None:
    assert main(["export", "--task", "hops", "--limit", "3", "--out", str(tmp_path)]) == 0
    frame = pd.read_parquet(tmp_path / "hops-test.parquet")
    assert frame.example_id.nunique() == 3
    for row in frame[frame.answerable].itertuples():
        answers = [row.context[span["start"] : span["end"]] for span in row.spans if span["kind"] == "answer"]
        assert answers == list(row.golds)


def test_the_bench_compares_every_cell_and_ends_with_json(toy_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--tasks", "hops", "--policies", "full,snapkv,oracle", "--ratios", "0.2,0.8", "--limit", "1"]
    for mode in ("agnostic", "aware"):
        assert main(["bench", "--model", str(toy_folder), *arguments, "--mode", mode]) == 0
        summary = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert summary["compared"] == 5 * len(TASKS["hops"].example(0, 0).questions)
        assert summary["equal"] == summary["compared"]
        assert summary["speedup"] > 0
