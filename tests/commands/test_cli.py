"""The command line: what it lists, and one clear line for each kind of bad input."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import kvbench.execution.local
import kvbench.experiments.catalogue
import kvbench.experiments.suites
from datasets_gen import KNOWN_TASKS, TASKS
from leaderboards.metrics import METRICS
from policies import POLICIES
from tests.support.models.runs import CommandLine
from tests.support.models.toy import toy_tokenizer


def truncate(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


def reconfigure(folder: Path, **changes: Callable[[int], int]) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {name: of(config[name]) for name, of in changes.items()})
    )


def remove_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


SPOILT: dict[str, Callable[[Path], None]] = {
    "truncated": truncate,
    "of another size": lambda folder: reconfigure(folder, hidden_size=lambda size: 2 * size),
    "of more layers": lambda folder: reconfigure(
        folder, num_hidden_layers=lambda layers: layers + 1
    ),
    "of fewer layers": lambda folder: reconfigure(
        folder, num_hidden_layers=lambda layers: layers - 1
    ),
    "without a tokenizer": remove_tokenizer,
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_damaged_checkpoint_is_one_clear_line(
    cli: CommandLine, toy_copy: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(toy_copy)
    assert str(toy_copy) in cli.error(*cli.words(model=toy_copy))


def test_an_interrupt_before_the_first_generation_is_said(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kvbench.execution.local, "open_model", interrupted)
    assert cli("run") == 130
    assert "error: interrupted" in cli.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "unknown command 'rnu': did you mean 'run'?"),
        (["submit"], "unknown command 'submit': did you mean 'check-submission'?"),
        (["run", "--mode", "foo"], "unknown mode 'foo': known: agnostic, aware, both"),
        (["run", "--limit"], "Option '--limit' requires an argument"),
        (["run", "--no-such"], "No such option: --no-such"),
        (["ls"], "Missing argument"),
        (["ls", "task"], "did you mean 'tasks'?"),
        (["doctor", "full"], "full is the whole cache and no press"),
        (["doctor", "knorm", "--limit", "2"], "--limit is for a model alone, and knorm is a press"),
        (["doctor", "--limit", "0"], "--limit is 1 or more"),
        (
            ["doctor", "--model", "referense"],
            "unknown model 'referense': did you mean 'reference'?",
        ),
        (
            ["doctor", "int4"],
            "int4 quantises or damages the cache, and only a press can be examined",
        ),
        (["run", "--tasks", "bse"], "unknown task 'bse': did you mean 'base'?"),
        (["run", "--policies", "snapkw"], "unknown policy 'snapkw': did you mean 'snapkv'?"),
        (["run", "--ratios", "1.5"], "outside [0, 1)"),
        (["run", "--ratios", "0:0.9:1e-9"], "more than 1000 ratios"),
        (
            ["run", "--name", ":A:"],
            "--name ':A:': use letters",
        ),  # which a terminal may show as an emoji
        (["run", "--ratios", ""], "--ratios names no number: give such as 0.1,0.5"),
        (["run", "--ratios", "0.99999999999999999999"], "outside [0, 1)"),
        (["run", "--limit", "0"], "--limit is 1 or more"),
        (["run", "--profile", "papr"], "unknown profile 'papr': did you mean 'paper'?"),
        (
            ["show", "long_context", "--context-tokens", "900", "--tokenizer", "referense"],
            "did you mean 'reference'?",
        ),
        (
            ["export", "--task", "base", "--profile", "papr"],
            "unknown profile 'papr': did you mean 'paper'?",
        ),
        (["show", "bse"], "did you mean 'base'?"),
        (["show", "base", "--index", "-1"], "0 or more, not -1"),
        (["run", "--limit", "1000000000000"], "at most 1,000,000"),
        (["run", "--model", "referense"], "unknown model 'referense': did you mean 'reference'?"),
        (["run", "--model", "/nowhere/model"], "there is no model at /nowhere/model"),
        (
            ["run", "--device", "tpu"],
            "unknown device 'tpu': did you mean 'cpu'? Known: auto, cpu, cuda",
        ),
        (["run", "--dtype", "int3"], "'int3' is not one of 'auto', 'float32'"),
        (["run", "--name", "../x"], "--name"),
        (["run", "--max-kv-gb", "0"], "--max-kv-gb"),
        (["site", "/nowhere/run"], "holds no run"),
        (["score", "/nowhere/run"], "holds no run"),
        (["export", "--task", "bse"], "did you mean 'base'?"),
        (["export", "--task", "long_context", "--tokenizer", "reference"], "give that too"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], message: str, cli: CommandLine) -> None:
    assert message in cli.error(*arguments)


def test_an_unsupported_architecture_is_refused(cli: CommandLine, tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=len(toy_tokenizer()), n_embd=16, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    toy_tokenizer().save_pretrained(tmp_path / "gpt2")
    assert "kvpress does not support GPT2LMHeadModel" in cli.error(
        *cli.words(model=tmp_path / "gpt2")
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is at hand")
def test_a_missing_gpu_is_said(cli: CommandLine) -> None:
    assert "no CUDA device" in cli.error("run", "--device", "cuda")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("tasks", KNOWN_TASKS),
        ("policies", POLICIES),
        ("metrics", METRICS),
        ("models", ["reference"]),
    ],
)
def test_everything_registered_is_listed(cli: CommandLine, kind: str, names: list[str]) -> None:
    assert cli("ls", kind) == 0
    assert all(f"\n{name} " in cli.out or cli.out.startswith(name) for name in names)
    assert max(map(len, cli.out.splitlines())) <= 80
    assert "…" not in cli.out, "a description is cut: say it in fewer words"


@pytest.mark.parametrize(
    ("mode", "task"),
    [("agnostic", "instructions"), pytest.param("aware", "hops", marks=pytest.mark.slow)],
)
def test_the_bench_compares_every_cell(cli: CommandLine, mode: str, task: str) -> None:
    small = [
        "--policies",
        "full,snapkv,oracle",
        "--ratios",
        "0.8",
        "--limit",
        "1",
        "--model",
        cli.model,
    ]
    assert cli("bench", *small, "--tasks", task, "--mode", mode, "--json") == 0
    *_, summary = json.loads(cli.out)["tables"]["bench"]
    assert summary["compared"] == 3 * len(TASKS[task].example(0, 0).questions)
    assert summary["equal"] == summary["compared"]
    assert summary["pipeline_seconds"] > 0 < summary["engine_seconds"]


def test_a_bound_that_no_branch_fits_is_told_and_no_difference(cli: CommandLine) -> None:
    assert (
        cli(
            "bench",
            "--limit",
            "1",
            "--tasks",
            "base",
            "--policies",
            "knorm",
            "--max-kv-gb",
            "0.000001",
        )
        == 1
    )
    assert "generations differ, as some are not there: " in cli.complaint
    assert "--max-kv-gb allows" in cli.complaint


def test_what_the_model_cannot_read_is_refused_before_anything_is_written(cli: CommandLine) -> None:
    assert "takes 4096" in cli.error(
        *cli.words("--tasks", "long_context", "--context-tokens", "5000")
    )
    assert not (cli.folder / "runs").exists()


def test_a_fault_of_ours_is_one_clear_line(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kvbench.execution.execute.collect", lambda *_: dict[str, int]()["missing\nhere"]
    )
    assert cli(*cli.words()) == 1
    assert re.search(r"error: unexpected KeyError: .*test_cli.py:\d+\)\n$", cli.err)
