"""The command line on a toy model: results, and one clear line for each kind of bad input."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import kvbench.experiments.catalogue
import kvbench.experiments.suites
import kvbench.run.load
from datasets_gen import TASKS
from kvbench.cli.program import COMMANDS, main
from kvbench.experiments.catalogue import choose_policies
from kvbench.experiments.grid import Grid
from kvbench.experiments.options import contexts_of
from kvbench.experiments.setting import Setting
from kvbench.models.load import load_model
from kvbench.store.store import Store
from leaderboards.metrics import METRICS
from policies import CONTROLS, POLICIES, at_ratios
from policies.declaration.levels import RATIO
from tests.support.processes import wait_until
from tests.support.toy import pressing, toy_tokenizer


def run_arguments(model: Path, tmp_path: Path, *more: str) -> list[str]:
    small = ["--limit", "1", "--ratios", "0.5", "--policies", "full,knorm", "--name", "x", "--tasks", "base,hops"]
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


def test_the_default_profile_is_large_enough() -> None:
    setting = Setting(choose_policies(None, list(TASKS.values()), "agnostic"), at_ratios(RATIO.parse(RATIO.default)))
    grid = Grid([(task, contexts_of(task, "quick", None)) for task in TASKS.values()], setting)
    questions = sum(len(grid.example(task, i).questions) for task, contexts in grid.tasks for i in range(contexts))
    assert questions * grid.cells(grid.setting.policies) >= 40_000


def test_a_run_takes_profile_limit_and_phrasings(
    toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(TASKS["base"], contexts={"quick": 2, "paper": 3})
    monkeypatch.setattr(kvbench.experiments.suites, "TASKS", {"base": few})
    common = ["run", "--model", str(toy_folder), "--out", str(tmp_path / "runs"), "--site", str(tmp_path / "site")]
    common += ["--ratios", "0.5", "--policies", "full"]
    asked = {
        "quick": [],
        "paper": ["--profile", "paper"],
        "limit": ["--profile", "paper", "--limit", "1"],
        "held-out": ["--limit", "1", "--phrasings", "held-out"],
    }
    frames = {}
    for name, options in asked.items():
        assert main([*common, *options, "--name", name]) == 0
        frames[name] = Store.open(tmp_path / "runs" / name).frame()
    assert {name: frame.example_id.nunique() for name, frame in frames.items()} == {
        "quick": 2,
        "paper": 3,
        "limit": 1,
        "held-out": 1,
    }
    assert set(frames["held-out"].example_id) == {"base/test/0/0/held_out"}
    assert json.loads((tmp_path / "runs/held-out/run.json").read_text())["identity"]["held_out"] is True


def test_a_run_scores_directives_attacks_and_worked_out_answers(toy_folder: Path, tmp_path: Path) -> None:
    assert main(run_arguments(toy_folder, tmp_path, "--tasks", "instructions,arithmetic", "--limit", "3")) == 0
    frame = Store.open(tmp_path / "runs/x").frame()
    rules = frame[frame.task == "instructions"]
    assert rules.leakage.notna().equals(rules.protected != "")
    assert rules.directives_obeyed.notna().equals(rules.directives.map(len) > 0)
    assert rules.leakage.notna().any()
    assert rules.directives_obeyed.notna().any()
    assert set(frame[frame.task == "arithmetic"].answer_marker) == {"####"}
    rows = {row["task"]: row for row in json.loads((tmp_path / "runs/x/summary.json").read_text())}
    assert rows["instructions"]["leakage"] is not None
    assert rows["instructions"]["directives_obeyed"] is not None
    assert rows["arithmetic"]["leakage"] is rows["arithmetic"]["directives_obeyed"] is None


def test_controls_run_beside_the_policies_that_are_asked_for(toy_folder: Path, tmp_path: Path) -> None:
    assert main(run_arguments(toy_folder, tmp_path, "--policies", "knorm")) == 0
    assert list(Store.open(tmp_path / "runs/x").frame().policy.unique()) == [*CONTROLS, "knorm"]


def truncated(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


def of_another_size(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 2 * config["hidden_size"]}))


def of_more_layers(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": config["num_hidden_layers"] + 1}))


def of_fewer_layers(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": config["num_hidden_layers"] - 1}))


def without_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


@pytest.mark.parametrize("spoil", [truncated, of_another_size, of_more_layers, of_fewer_layers, without_tokenizer])
def test_a_damaged_checkpoint_is_one_clear_line(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None]
) -> None:
    shutil.copytree(toy_folder, tmp_path / "model")
    spoil(tmp_path / "model")
    assert main(run_arguments(tmp_path / "model", tmp_path)) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert len(errors) == 1
    assert str(tmp_path / "model") in errors[0]


@pytest.mark.parametrize(
    "template", ["hello", "{{ messages[0].content }} {{ messages[0].content }}", "{{ 1 / 0 }}", "{%"]
)
def test_a_chat_template_that_does_not_hold_the_turn_once_is_refused(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], template: str
) -> None:
    shutil.copytree(toy_folder, tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(template)
    assert main(run_arguments(tmp_path / "model", tmp_path)) == 1
    assert "the chat template of the tokenizer" in capsys.readouterr().err


def test_a_context_beyond_the_positions_of_the_model_is_refused(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(toy_folder, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 64}))
    assert main(run_arguments(tmp_path / "model", tmp_path)) == 1
    assert "takes 64, the least of its positions" in capsys.readouterr().err


def test_brackets_in_a_path_are_no_markup(toy_folder: Path, tmp_path: Path) -> None:
    arguments = run_arguments(
        toy_folder, tmp_path, "--out", str(tmp_path / "o[/b]"), "--site", str(tmp_path / "s[bold]")
    )
    assert main(arguments) == 0
    assert (tmp_path / "s[bold]" / "index.html").is_file()


def test_every_file_of_a_model_counts_in_its_fingerprint(toy_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(toy_folder, tmp_path / "model")
    before = load_model(str(tmp_path / "model")).fingerprint
    (tmp_path / "model" / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert load_model(str(tmp_path / "model")).fingerprint != before


def test_an_interrupt_before_the_first_generation_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kvbench.run.load, "load_model", interrupted)
    assert main(["run"]) == 130
    assert "error: interrupted" in capsys.readouterr().err


def test_a_file_of_records_that_is_there_twice_is_one_clear_line(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(run_arguments(toy_folder, tmp_path)) == 0
    path = Store.open(tmp_path / "runs/x").record_file("base", 0, "knorm")
    shutil.copy(path, path.with_name("copy.parquet"))
    assert main(["site", str(tmp_path / "runs/x"), "--out", str(tmp_path / "again")]) == 1
    assert "was answered twice by knorm" in capsys.readouterr().err


def test_a_run_writes_records_summary_and_page(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(run_arguments(toy_folder, tmp_path)) == 0
    summary = json.loads((tmp_path / "runs/x/summary.json").read_text())
    needed = {"task", "mode", "policy", "ratio", "n", "f1", "em", "abstention_rate", "hallucination_rate", "ger"}
    assert all(needed | {"slot_coverage", "realised_ratio"} <= set(row) for row in summary)
    controls = {("oracle", 0.5), ("random", 0.5), ("recency", 0.5)}
    assert {(row["policy"], row["ratio"]) for row in summary} == {("full", 0.0), ("knorm", 0.5), *controls}
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


def test_ctrl_c_twice_ends_a_run_of_several_processes_in_one_line(toy_folder: Path, tmp_path: Path) -> None:
    arguments = run_arguments(toy_folder, tmp_path, "--limit", "500")
    run = subprocess.Popen(
        [sys.executable, "-m", "kvbench", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        start_new_session=True,  # a process group of its own, as in a terminal
    )
    wait_until(lambda: any((tmp_path / "runs").rglob("*.parquet")) or run.poll() is not None)
    os.killpg(run.pid, signal.SIGINT)
    time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)
    _, said = run.communicate()
    assert run.returncode == 130, said
    assert "interrupted: what was finished is kept" in said
    assert "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)
    assert Store.open(tmp_path / "runs/x").run.reason == "interrupted"


def test_a_fault_of_ours_is_one_clear_line(
    toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kvbench.run.unit.collect", lambda *_: dict[str, int]()["missing\nhere"])
    assert main(run_arguments(toy_folder, tmp_path)) == 1
    assert re.search(r"error: unexpected KeyError: .*test_cli.py:\d+\)\n$", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "unknown command 'rnu': did you mean 'run'?"),
        (["run", "--mode", "foo"], "'foo' is not one of 'agnostic', 'aware'"),
        (["run", "--limit"], "Option '--limit' requires an argument"),
        (["run", "--no-such"], "No such option: --no-such"),
        (["ls"], "Missing argument"),
        (["ls", "task"], "did you mean 'tasks'?"),
        (["run", "--tasks", "bse"], "unknown task 'bse': did you mean 'base'?"),
        (["run", "--policies", "snapkw"], "unknown policy 'snapkw': did you mean 'snapkv'?"),
        (["run", "--ratios", "1.5"], "outside [0, 1)"),
        (["run", "--ratios", "0:0.9:1e-9"], "more than 1000 ratios"),
        (["run", "--ratios", "0:0.9:1e-99999999999999999"], "is not a number"),
        (["run", "--ratios", "0.99999999999999999999"], "outside [0, 1)"),
        (["run", "--limit", "0"], "--limit is 1 or more"),
        (["run", "--profile", "papr"], "unknown profile 'papr': did you mean 'paper'?"),
        (["run", "--profile", "papr", "--limit", "1"], "unknown profile 'papr': did you mean 'paper'?"),
        (["show", "long_context", "--context-tokens", "900", "--tokenizer", "referense"], "did you mean 'reference'?"),
        (["export", "--task", "base", "--profile", "papr"], "unknown profile 'papr': did you mean 'paper'?"),
        (["show", "bse"], "did you mean 'base'?"),
        (["show", "base", "--index", "-1"], "0 or more, not -1"),
        (["show", "base", "--question", "99"], "the example has questions 0 to 5"),
        (["run", "--limit", "1000000000000"], "at most 1,000,000"),
        (["run", "--model", "referense"], "unknown model 'referense': did you mean 'reference'?"),
        (["run", "--max-kv-gb", "1e308"], "--max-kv-gb"),
        (["run", "--model", "/nowhere/model"], "there is no model at /nowhere/model"),
        (["run", "--device", "tpu"], "unknown device 'tpu'"),
        (["run", "--dtype", "int3"], "unknown dtype 'int3'"),
        (["run", "--name", "../x"], "--name"),
        (["run", "--max-kv-gb", "0"], "--max-kv-gb"),
        (["site", "/nowhere/run"], "holds no run"),
        (["score", "/nowhere/run"], "holds no run"),
        (["export", "--task", "bse"], "did you mean 'base'?"),
        (["export", "--task", "base", "--tag", "revers"], "unknown tag 'revers': did you mean 'reverse'?"),
        (["export", "--task", "base", "--tag", "attack", "--out", "/nowhere"], "no question of 8 contexts has"),
        (["export", "--task", "long_context", "--tokenizer", "reference"], "give that too"),
        (["show", "base", "--tag", "attack"], "try another --index"),
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

    monkeypatch.setattr(kvbench.experiments.catalogue, "POLICIES", {**POLICIES, "broken": pressing("broken", broken)})
    assert main(run_arguments(toy_folder, tmp_path, "--policies", "full,broken,knorm")) == 1
    assert "broken failed in layer 0: ZeroDivisionError: division by zero" in capsys.readouterr().err
    frame = Store.open(tmp_path / "runs/x").frame()
    outcomes = frame.groupby("policy").status.unique().map(list).to_dict()
    assert outcomes == {**{name: ["ok"] for name in (*CONTROLS, "knorm")}, "broken": ["failed"]}
    assert Store.open(tmp_path / "runs/x").run.status == "complete"
    rows = json.loads((tmp_path / "runs/x/summary.json").read_text())
    assert all((row["f1"] is None) == (row["policy"] == "broken") for row in rows)


def test_a_policy_that_covers_some_tasks_has_not_failed_on_the_others(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--tasks", "base,instructions", "--policies", "knorm+whitelist")
    assert main(run_arguments(toy_folder, tmp_path, *arguments)) == 0, capsys.readouterr().err
    frame = Store.open(tmp_path / "runs/x").frame()
    assert set(frame[frame.policy == "knorm+whitelist"].task) == {"instructions"}


def test_plug_ins_that_cannot_be_used_fail_alone(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.py").write_text("import nothing_there\n")
    (tmp_path / "other.py").write_text("class NoPress:\n    def __init__(self, compression_ratio): pass\n")
    presses = f"{tmp_path / 'bad.py'}:Press,{tmp_path / 'other.py'}:NoPress,knorm"
    assert main(run_arguments(toy_folder, tmp_path, "--policies", presses)) == 1
    complaint = " ".join(capsys.readouterr().err.split())
    assert "bad.py cannot be imported: ModuleNotFoundError: No module named 'nothing_there'" in complaint
    assert "(also failed: NoPress)" in complaint
    frame = Store.open(tmp_path / "runs/x").frame()
    outcomes = frame.groupby("policy").status.unique().map(list).to_dict()
    assert outcomes == {**{name: ["ok"] for name in (*CONTROLS, "knorm")}, "Press": ["failed"], "NoPress": ["failed"]}
    assert set(frame[frame.policy == "NoPress"].reason.str.endswith("derive it from kvpress.BasePress")) == {True}


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


def test_the_bench_compares_every_cell_and_ends_with_json(toy_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--policies", "full,snapkv,oracle", "--ratios", "0.2,0.8", "--limit", "1"]
    for mode, task in product(("agnostic", "aware"), ("hops", "instructions")):
        assert main(["bench", "--model", str(toy_folder), "--tasks", task, *arguments, "--mode", mode]) == 0
        summary = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert summary["compared"] == 5 * len(TASKS[task].example(0, 0).questions)
        assert summary["equal"] == summary["compared"]
        assert summary["speedup"] > 0


def test_what_the_model_cannot_read_is_refused_before_anything_is_written(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = run_arguments(toy_folder, tmp_path, "--tasks", "long_context", "--context-tokens", "5000")
    assert main(arguments) == 1
    complaint = " ".join(capsys.readouterr().err.split())
    assert "takes 4096" in complaint
    assert not (tmp_path / "runs").exists()
