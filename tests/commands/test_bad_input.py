"""Bad input to the commands that read runs: one clear line, a non-zero status, and nothing written elsewhere."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvbench.store.store import Store
from tests.support.models.runs import CommandLine, small_command

COMMANDS = {
    "site": ["site", "RUN", "--site", "OUT"],
    "figures": ["figures", "RUN", "--out", "OUT", "--formats", "svg"],
    "check-submission": ["check-submission", "RUN"],
    "show": ["show", "RUN", "--policy", "snapkv", "--ratio", "0.9"],
}


@pytest.fixture
def run(small_run: Store, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_run.folder, tmp_path / "runs/first"))


def edited(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((run / "run.json").read_text())
    change(content)
    (run / "run.json").write_text(json.dumps(content))


def words(command: str, run: Path, out: Path) -> list[str]:
    return [{"RUN": str(run), "OUT": str(out)}.get(word, word) for word in COMMANDS[command]]


def is_a_file(run: Path) -> None:
    shutil.rmtree(run)
    run.write_text("x")


def is_of_an_older_schema(run: Path) -> None:
    """Which had other fields."""
    edited(run, lambda content: (content.update(schema_version=3), content["identity"].pop("scope")))


# What is done to a run, and what is said of it.
SPOILT: list[tuple[Callable[[Path], object], str]] = [
    (shutil.rmtree, "holds no run: there is no such folder"),
    (is_a_file, "holds no run: run.json is missing"),
    (lambda run: (run / "run.json").unlink(), "holds no run: run.json is missing"),
    (is_of_an_older_schema, "was written by kvbench with record schema 3; this one reads"),
    (lambda run: (run / "run.json").write_text("[" * 10_000), "run.json is damaged"),
    (
        lambda run: edited(run, lambda content: content["identity"].pop("held_out")),
        "run.json is damaged (identity.held_out: Field required)",
    ),
    (lambda run: shutil.rmtree(run / "records"), ""),
    (lambda run: Store.open(run).record_file("base", 0, "snapkv").write_bytes(b"PAR1"), ""),
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("spoil", "text"), SPOILT)
def test_a_run_that_cannot_be_read_is_one_clear_line(
    cli: CommandLine, run: Path, tmp_path: Path, command: str, spoil: Callable[[Path], object], text: str
) -> None:
    spoil(run)
    said = cli.error(*words(command, run, tmp_path / "out"))
    assert text in said
    assert str(run) in said


@pytest.mark.parametrize(
    ("policy", "rates", "text"),
    [
        ("gausian", "0.1", "did you mean 'gaussian'?"),
        (
            "snapkv(window_size=16)",
            "0.1",
            "snapkv takes no arguments: name the class of a press, as kvpress:",
        ),
        ("zeros(rate=0.1", "0.1", "zeros(rate=0.1: write the options in one pair of brackets"),
        ("zeros", "1.5", "--rates 1.5: 1.5 is outside [0, 1]"),
        ("zeros(rate=2)", "0.1", "rate=2: Input should be less than or equal to 1"),
        ("bitflip(bits=40)", "0.1", "bits=40: float32 has 32 bits, 0 to 31"),
        ("zeros(layers=99)", "0.1", "layers=99: the model has"),
        ("zeros(heads=99)", "0.1", "heads=99: the model has"),
        ("int9", "0.1", "did you mean 'int8'?"),
        ("mantissa(bits=24)", "0.1", "bits=24: Input should be less than or equal to 23"),
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


@pytest.mark.parametrize("tokens", [-1, 0])
def test_a_length_that_cannot_be_is_one_line_before_anything_is_loaded(cli: CommandLine, tokens: int) -> None:
    said = cli.error(*cli.words("--context-tokens", tokens))
    assert f"a context has 1 or more tokens and 131072 at most, not {tokens}" in said
    assert "loading" not in cli.err


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
def test_the_name_of_another_run_is_refused(cli: CommandLine, toy_run: Path, words: list[str], text: str) -> None:
    command = small_command(cli.model, toy_run, "--policies", "knorm", *words)
    said = cli.error(*command)
    assert "runs/x belongs to another run" in said
    assert text in said


def test_the_same_run_goes_on_under_its_name(cli: CommandLine, toy_run: Path) -> None:
    """Else the test above could refuse everything."""
    copy = cli.folder / "copy"
    shutil.copytree(toy_run / "runs", copy / "runs")
    assert cli(*small_command(cli.model, copy, "--policies", "knorm")) == 0
    assert "are there already" in cli.err


def test_a_model_whose_heads_cannot_share_keys_is_one_line_before_its_weights_are_read(
    cli: CommandLine, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(cli.model, tmp_path / "three"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"num_key_value_heads": 3}))
    assert f"{config['num_attention_heads']} heads cannot share 3 key heads evenly" in cli.error(
        *cli.words(model=model)
    )


def test_a_mistyped_run_is_suggested(cli: CommandLine, run: Path) -> None:
    said = cli.error("site", run.parent / "frist")
    assert f"did you mean {run}?" in said


@pytest.mark.parametrize(
    "words",
    [
        ["site", "RUN", "--site", "FILE"],
        ["figures", "RUN", "--out", "FILE/below"],
        ["run", "--site", "FILE"],
        ["compare", "snapkv", "--site", "FILE"],
    ],
)
def test_a_folder_that_cannot_be_written_is_named(
    cli: CommandLine, run: Path, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "file").write_text("x")
    given = [word.replace("FILE", str(tmp_path / "file")).replace("RUN", str(run)) for word in words]
    said = cli.error(*given)
    assert f"{words[-2]} {given[-1]} cannot be written" in said
    assert "name another folder" in said


def test_what_may_not_be_read_is_named(cli: CommandLine, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert "run.json: Permission denied" in cli.error("site", run)


def test_names_of_strangers_lead_out_of_no_folder_and_speak_to_no_terminal(
    cli: CommandLine, run: Path, tmp_path: Path
) -> None:
    """A run of somebody else may call its tasks anything."""
    hostile = "../../../evil<script>"
    store = Store.open(run)
    files = [(declared, path) for declared in store.tables for path in store.files(declared)]
    for declared, path in files:
        table = store.read(declared, path)
        if set(table["task"].to_pylist()) == {"base"}:
            place = table.schema.get_field_index("task")
            store.write_table(path, table.set_column(place, table.schema.field(place), [[hostile] * len(table)]))

    def rename(content: dict[str, Any]) -> None:
        identity = content["identity"]
        identity["tasks"][0]["name"] = hostile
        for policy in identity["policies"]:
            policy["tasks"] = [hostile, "hops"]
        content.update(status="failed", reason="\x1b[31mred")

    edited(run, rename)
    before = set(tmp_path.rglob("*"))
    out = tmp_path / "deep/down/out"
    assert cli(*words("site", run, out)) == 0
    assert cli(*words("figures", run, out / "figures")) == 0
    assert "\x1b[31m" not in cli.err
    written = {path for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    assert all(path.is_relative_to(out) for path in written if path.name != "summary.json")
    assert sum("evil" in path.name for path in written) >= 2 + 3, "its pages and figures"
    for page in out.glob("*.html"):
        assert "evil<script>" not in page.read_text().replace("evil\\u003cscript", "")


def test_a_policy_that_reaches_none_of_the_levels_is_an_error_before_the_run(cli: CommandLine) -> None:
    """ThinK blanks channels of the keys, which are half of the cache; of all policies it is left out."""
    said = cli.error(*cli.words("--policies", "think,knorm", "--ratios", "0.8,0.9"))
    assert "think reaches none of 0.8, 0.9: it removes at most 0.49 of the cache" in said
    assert not (cli.folder / "runs/x").exists()
