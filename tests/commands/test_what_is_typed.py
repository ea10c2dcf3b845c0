"""Words, numbers and paths that no command can use, and files of models that describe none: one clear line each."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.models.runs import CommandLine

DIGITS = "9" * 6000
SHAPE = ("--layers", 4, "--heads", 4, "--key-heads", 2, "--parameters", 1)  # the last of an option counts


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run", "--budgets", DIGITS], "is no count of tokens"),
        (["run", "--budgets", "²"], "is no count of tokens"),
        (["run", "--ratios", DIGITS], "is not a number"),
        (["run", "--seed", 2**70], "--seed 1180591620717411303424 cannot be computed with"),
        (["run", "--seed", DIGITS], "--seed"),
        (["run", "--cell-seconds", "1e308"], "--cell-seconds 1e+308 cannot be computed with"),
        (["plan", *SHAPE, "--layers", "1" + "0" * 320], "cannot be computed with"),
        (["plan", *SHAPE, "--head-size", "1" + "0" * 320], "--head-size 1000"),
        (["plan", *SHAPE, "--parameters", "1e300"], "--parameters 1e+300 cannot be computed with"),
        (["run", "--out", "runs/\udcff"], "holds the character U+DCFF, which cannot be shown"),
        (["run", "--site", "pages\0"], "holds the character U+0000"),
        (["run", "--tasks", "\x1b[31mbase"], "holds the character U+001B"),
        (["show", "\u202ebase"], "holds the character U+202E"),
        (["run", "--tasks", "x" * 30_000], "has 30,000 characters"),
        (["run", "--model", "~nosuch/x"], "~nosuch/x lies in a home folder that is not there"),
        (["run", "--policies", "~nosuch/x.py:P"], "~nosuch/x.py is no path"),
        (["run", "--out", "~nosuch/x"], "the shell leaves ~ as it is here"),
        (["site", "LOOP"], "its links lead in a circle"),
        (["run", "--site", "LOOP"], "its links lead in a circle"),
        (["run", "--policies", "LOOP.py:P"], "is no path ("),
        (["export", "--task", "base", "--out", "x" * 300], "is no path (File name too long)"),
    ],
)
def test_what_cannot_be_used_is_one_short_line(
    cli: CommandLine, tmp_path: Path, words: list[object], text: str
) -> None:
    for name in ("loop", "loop.py"):
        (tmp_path / name).symlink_to(tmp_path / name)
    said = cli.error(*(str(word).replace("LOOP", str(tmp_path / "loop")) for word in words))
    assert text in said
    assert len(said) < 2500
    assert max(map(len, said.split())) < 320


def edited_model(cli: CommandLine, folder: Path, file: str, fields: dict[str, Any]) -> Path:
    model = Path(shutil.copytree(cli.model, folder / "model"))
    content = json.loads((model / file).read_text()) | fields
    (model / file).write_text(json.dumps(content))
    return model


@pytest.mark.parametrize(
    ("file", "field", "value"),
    [
        ("config.json", "num_hidden_layers", 100_000),
        ("config.json", "num_hidden_layers", "two"),
        ("config.json", "max_position_embeddings", "x"),
        ("config.json", "rms_norm_eps", "x"),
        ("config.json", "hidden_size", 10**12),
        ("config.json", "vocab_size", -1),
        ("generation_config.json", "eos_token_id", "x"),
        ("generation_config.json", "eos_token_id", [1e9, None]),
    ],
)
def test_a_size_that_no_model_has_is_named_before_anything_is_made(
    cli: CommandLine, tmp_path: Path, file: str, field: str, value: object
) -> None:
    model = edited_model(cli, tmp_path, file, {field: value})
    said = cli.error(*cli.words(model=model))
    assert field in said
    if file == "config.json":
        assert field in cli.error("plan", "--model", model, "--limit", "1")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "longer than a second"),
        ("{{ 'a' * 10**11 }}", "MemoryError"),
        ("{{ raise_exception('\x1b[31m' + 'no' * 10000) }}", "TemplateError: ·[31mnono"),
    ],
    ids=["loops", "grows", "speaks to the terminal"],
)
def test_a_chat_template_has_a_second_and_little_memory(
    cli: CommandLine, tmp_path: Path, template: str, text: str
) -> None:
    model = Path(shutil.copytree(cli.model, tmp_path / "model"))
    (model / "chat_template.jinja").write_text(template)
    said = cli.error(*cli.words(model=model))
    assert "the chat template of the tokenizer is broken: " in said
    assert text in said
    assert len(said) < 600


def test_a_run_of_strangers_cannot_ask_for_more_than_a_run_has(cli: CommandLine, toy_run: Path) -> None:
    run = Path(shutil.copytree(toy_run / "runs/x", cli.folder / "x"))
    content = json.loads((run / "run.json").read_text())
    for place, value, text in (
        (("tasks", "contexts"), 10**15, "identity.tasks.0.contexts"),
        (("tasks", "name"), "x" * 10**6, "identity.tasks.0.name"),
        (("policies", "name"), "x" * 10**6, "identity.policies.0.name"),
        (("policies", "repeats"), 10**9, "identity.policies.0.repeats"),
    ):
        changed = json.loads(json.dumps(content))
        changed["identity"][place[0]][0][place[1]] = value
        (run / "run.json").write_text(json.dumps(changed))
        for command in ("check-submission", "site", "score"):
            assert text in cli.error(command, run)
