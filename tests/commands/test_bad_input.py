"""Bad input to the commands that read runs: one clear line, a non-zero status, and nothing written
elsewhere."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kvbench.models.pretrained
from kvbench.store.store import Store, write_parquet
from kvbench.store.tables import RECORDS
from tests.support.models.runs import CommandLine, small_command

COMMANDS = {
    "site": ["site", "RUN", "--site", "OUT"],
    "figures": ["figures", "RUN", "--out", "OUT", "--formats", "svg"],
    "check-submission": ["check-submission", "RUN", "--replay", "1"],
    "show": ["show", "RUN", "--policy", "snapkv", "--ratio", "0.9"],
}


@pytest.fixture
def copied_run(small_run: Store, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_run.folder, tmp_path / "runs/first"))


def edited(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((run / "run.json").read_text())
    change(content)
    (run / "run.json").write_text(json.dumps(content))


def fill_command(command: str, run: Path, out: Path) -> list[str]:
    return [{"RUN": str(run), "OUT": str(out)}.get(word, word) for word in COMMANDS[command]]


def is_of_an_older_schema(run: Path) -> None:
    """Which had other fields."""
    edited(
        run, lambda content: (content.update(schema_version=3), content["identity"].pop("scope"))
    )


# What is done to a run, and what is said of it.
SPOILT: list[tuple[Callable[[Path], object], str]] = [
    (shutil.rmtree, "holds no run: there is no such folder"),
    (lambda run: (run / "run.json").unlink(), "holds no run: run.json is missing"),
    (is_of_an_older_schema, "was written by kvbench with record schema 3; this one reads"),
    (lambda run: (run / "run.json").write_text("[" * 10_000), "run.json is damaged"),
    (
        lambda run: edited(run, lambda content: content["identity"].pop("held_out")),
        "run.json is damaged (identity.held_out: Field required)",
    ),
    (lambda run: shutil.rmtree(run / "records"), ""),
    (lambda run: Store.open(run).path(RECORDS, "base", 0, "snapkv").write_bytes(b"PAR1"), ""),
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("spoil", "text"), SPOILT)
def test_a_run_that_cannot_be_read_is_one_clear_line(
    cli: CommandLine,
    copied_run: Path,
    tmp_path: Path,
    command: str,
    spoil: Callable[[Path], object],
    text: str,
) -> None:
    spoil(copied_run)
    said = cli.error(*fill_command(command, copied_run, tmp_path / "out"))
    assert text in said
    assert str(copied_run) in said


@pytest.mark.parametrize(
    ("policy", "rates", "text"),
    [
        ("gausian", "0.1", "did you mean 'gaussian'?"),
        ("snapkv(window_size=16)", "0.1", "did you mean 'snapkv'?"),
        ("zeros(rate=0.1", "0.1", "did you mean 'zeros'?"),
        ("zeros", "1.5", "--rates 1.5: 1.5 is outside [0, 1]"),
        ("bitflip(bits=40)", "0.1", "bits=40: float32 has 32 bits, 0 to 31"),
        ("zeros(layers=99)", "0.1", "layers=99: the model has"),
        ("int9", "0.1", "did you mean 'int8'?"),
        ("decoding_knorm+zeros(rate=0.1,phase=every_step)", "0.1", "decoding_knorm decodes alone"),
    ],
)
def test_a_treatment_that_cannot_be_is_one_line_before_anything_is_loaded(
    cli: CommandLine, tmp_path: Path, policy: str, rates: str, text: str
) -> None:
    said = cli.error("run", "--policies", policy, "--rates", rates, "--out", tmp_path / "runs")
    assert text in said
    assert "loading" not in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--seed", "7"], "its seed is 0, this one's 7"),
        (["--policies", "snapkv"], "its policies differ"),
        (["--ratios", "0.9"], "its policies differ"),
        (["--limit", "2"], "its tasks differ"),
        (["--model", "reference"], "its model "),
    ],
)
def test_the_name_of_another_run_is_refused(
    cli: CommandLine, toy_run: Path, words: list[str], text: str
) -> None:
    command = small_command(cli.model, toy_run, "--policies", "knorm", *words)
    said = cli.error(*command)
    assert "runs/x belongs to another run" in said
    assert text in said


def test_names_of_strangers_lead_out_of_no_folder_and_speak_to_no_terminal(
    cli: CommandLine, copied_run: Path, tmp_path: Path
) -> None:
    """A run of somebody else may call its tasks anything."""
    hostile = "../../../evil<script>"
    store = Store.open(copied_run)
    files = [(declared, path) for declared in store.tables for path in store.files(declared)]
    for declared, path in files:
        table = store.read(declared, path)
        if set(table["task"].to_pylist()) == {"base"}:
            place = table.schema.get_field_index("task")
            write_parquet(
                path, table.set_column(place, table.schema.field(place), [[hostile] * len(table)])
            )

    def rename(content: dict[str, Any]) -> None:
        identity = content["identity"]
        identity["tasks"][0]["name"] = hostile
        for policy in identity["policies"]:
            policy["tasks"] = [hostile, "hops"]
        content.update(status="failed", reason="\x1b[31mred")

    edited(copied_run, rename)
    before = set(tmp_path.rglob("*"))
    out = tmp_path / "deep/down/out"
    assert cli(*fill_command("site", copied_run, out)) == 0
    figures = fill_command("figures", copied_run, out / "figures")
    assert cli(*figures, "--only", "right,f1,ger") == 0
    assert "\x1b[31m" not in cli.err
    written = {path for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    assert all(path.is_relative_to(out) for path in written if path.name != "summary.json")
    assert sum("evil" in path.name for path in written) >= 2 + 3, "its pages and figures"
    for page in out.glob("*.html"):
        assert "evil<script>" not in page.read_text().replace("evil\\u003cscript", "")


DIGITS = "9" * 6000
# The last of an option counts.
SHAPE = ("--layers", 4, "--heads", 4, "--key-heads", 2, "--parameters", 1)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run", "--budgets", "²"], "is no count of tokens"),
        (["run", "--ratios", f"0.1,{DIGITS}"], "is not a number"),
        (["run", "--seed", 2**70], "1180591620717411303424 cannot be computed with"),
        (["run", "--seed", DIGITS], "cannot be computed with"),
        (["run", "--max-kv-gb", "1e308"], "1e308 cannot be computed with"),
        (["plan", *SHAPE, "--layers", "1" + "0" * 320], "cannot be computed with"),
        (["plan", *SHAPE, "--head-size", "1" + "0" * 320], "cannot be computed with"),
        (["plan", *SHAPE, "--parameters", "1e300"], "1e300 cannot be computed with"),
        (["run", "--out", "runs/\udcff"], "holds the character U+DCFF, which cannot be shown"),
        (["run", "--site", "pages\0"], "holds the character U+0000"),
        (["run", "--tasks", "\x1b[31mbase"], "holds the character U+001B"),
        (["show", "\u202ebase"], "holds the character U+202E"),
        (["run", "--tasks", "x" * 30_000], "has 30,000 characters"),
        (["run", "--model", "~nosuch/x"], "~nosuch/x lies in a home folder that is not there"),
        (["run", "--policies", "~nosuch/x.py:P"], "there is no file ~nosuch/x.py"),
        (["run", "--policies", "LOOP.py:P"], "there is no file"),
        (["export", "--task", "base", "--out", "x" * 300], "File name too long"),
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


@pytest.mark.parametrize(
    ("file", "field", "value"),
    [
        ("config.json", "num_hidden_layers", 100_000),
        ("config.json", "max_position_embeddings", "x"),
        ("config.json", "hidden_size", 10**12),
        ("config.json", "vocab_size", -1),
        ("generation_config.json", "eos_token_id", [1e9, None]),
    ],
)
def test_a_size_that_no_model_has_is_named_before_anything_is_made(
    cli: CommandLine, tmp_path: Path, file: str, field: str, value: object
) -> None:
    model = Path(shutil.copytree(cli.model, tmp_path / "model"))
    (model / file).write_text(json.dumps(json.loads((model / file).read_text()) | {field: value}))
    said = cli.error(*cli.words(model=model))
    assert field in said
    if file == "config.json":
        assert field in cli.error("plan", "--model", model, "--limit", "1")


def test_a_run_of_strangers_cannot_ask_for_more_than_a_run_has(
    cli: CommandLine, toy_run: Path
) -> None:
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


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "longer than ten seconds",
        ),
        ("{{ 'a' * 10**11 }}", "MemoryError"),
        ("{{ raise_exception('\x1b[31m' + 'no' * 10000) }}", "TemplateError: ·[31mnono"),
    ],
    ids=["loops", "grows", "speaks to the terminal"],
)
def test_a_chat_template_has_a_second_and_little_memory(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, text: str
) -> None:
    """The ten seconds that it has are one here."""
    monkeypatch.setattr(kvbench.models.pretrained, "TEMPLATE_SECONDS", 1.0)
    model = Path(shutil.copytree(cli.model, tmp_path / "model"))
    (model / "chat_template.jinja").write_text(template)
    said = cli.error(*cli.words(model=model))
    assert "chat template of the tokenizer is broken" in said
    assert text in said
    assert len(said) < 600
