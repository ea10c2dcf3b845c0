"""What every command prints: tables for people, one JSON object for programs, and with --quiet
warnings beside it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import kvbench.checks.patient
from kvbench.cli.program import COMMANDS, EXAMPLES, application
from kvbench.cli.result import VERSION, Result
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS
from tests.support.models.runs import CommandLine
from tests.support.records.kvpress_folders import evaluation

TREATED = ["--tasks", "base", "--limit", "1", "--ratios", "0.5"]
SHORT = ["--context-tokens", "native", "--max-new-tokens", "6"]
PLACES = ["--out", "RUNS", "--site", "SITE"]
BROKEN = """
from kvpress import KnormPress

class Broken(KnormPress):
    def score(self, *_):
        raise ValueError("no such luck")
"""
# A call of every command, and the tables that it prints with a column of each.
CALLS: dict[str, tuple[list[str], dict[str, str]]] = {
    **{
        f"ls {kind}": (["ls", kind], {kind: column})
        for kind, column in {
            "tasks": "version",
            "policies": "paper",
            "metrics": "unit",
            "models": "model",
            "suites": "tasks",
        }.items()
    },
    "run": (
        ["run", "--model", "TOY", *TREATED, *SHORT, *PLACES, "--policies", "knorm"],
        {"scores": "value", "losses": "reason"},
    ),
    "compare": (
        [
            "compare",
            "snapkv",
            "--against",
            "knorm",
            "--model",
            "TOY",
            *TREATED,
            *("--context-tokens", "native", "--limit", "2", "--ratios", "0.3,0.5"),
            "--every-task",
            *PLACES,
        ],
        {
            "outcomes": "sentence",
            "means": "verdict",
            "pooled": "smallest",
            "scores": "measure",
            "verdicts": "right_value",
        },
    ),
    "claims": (
        [
            "claims",
            "--only",
            "E1",
            "--limit",
            "1",
            "--model",
            "TOY",
            "--out",
            "RUNS",
            "--site",
            "SITE",
        ],
        {"claims": "verdict"},
    ),
    "doctor": (["doctor", "knorm", "--model", "TOY"], {"findings": "outcome"}),
    "doctor of a model": (
        ["doctor", "--model", "TOY", "--tasks", "base", "--limit", "1"],
        {"findings": "finding", "mastery": "chance"},
    ),
    "bench": (["bench", "--model", "TOY", *TREATED, "--policies", "knorm"], {"bench": "equal"}),
    "plan": (["plan", *TREATED], {"figures": "how much"}),
    "site": (["site", "RUN", "--site", "SITE"], {}),
    "figures": (["figures", "RUN", "--out", "SITE", "--formats", "svg", "--only", "f1"], {}),
    "score": (["score", "RUN"], {"scored": "changed"}),
    "export": (
        ["export", "--task", "base", "--limit", "1", "--out", "SITE/set"],
        {"exported": "questions"},
    ),
    "show TASK": (["show", "base"], {"examples": "spans", "questions": "golds"}),
    "show RUN": (
        ["show", "RUN", "--policy", "snapkv", "--ratio", "0.9"],
        {"answers": "output_text", "prompts": "prompt"},
    ),
    "check-submission": (["check-submission", "RUN", "--replay", "1"], {"findings": "outcome"}),
    "import-kvpress": (["import-kvpress", "RESULTS", "--site", "SITE"], {"imported": "scores"}),
}


def fill_places(words: list[str], cli: CommandLine, run: Store) -> list[str]:
    results = evaluation(cli.folder / "results/x", {"string_match": float("nan")}).parent
    places = {"TOY": cli.model, "RUN": run.folder, "RUNS": cli.folder / "runs", "RESULTS": results}
    filled = [str(places.get(word, word)) for word in words]
    return [word.replace("SITE", str(cli.folder / "site")) for word in filled]


def test_every_command_is_called() -> None:
    """But for the one that needs the package index (tests/models/test_natural.py)."""
    assert {words[0] for words, _ in CALLS.values()} == set(COMMANDS) - {"fetch"}


@pytest.mark.parametrize("name", CALLS)
def test_a_result_is_one_json_object_for_programs_and_80_columns_for_people(
    name: str,
    cli: CommandLine,
    small_run: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is one word in a wide terminal is one in a narrow one: none is cut, and none goes on in
    the next line."""
    words, expected = CALLS[name]
    results: list[Result] = []
    monkeypatch.setattr(kvbench.checks.patient, "LENGTHS", kvbench.checks.patient.LENGTHS[:2])
    monkeypatch.setattr(Result, "print", lambda self, command, as_json: results.append(self))
    assert cli(*fill_places(words, cli, small_run), "--quiet") == 0
    assert (cli.out, cli.err) == ("", "")
    (result,) = results
    content = strict(result.as_json(words[0]))
    assert list(content) == [
        "version",
        "command",
        "verdict",
        "tables",
        "notes",
        "warnings",
        "files",
        "error",
    ]
    assert (content["version"], content["command"]) == (VERSION, words[0])
    assert list(content["tables"]) == list(expected)
    for table, column in expected.items():
        rows = content["tables"][table]
        assert rows
        assert all(row.keys() == rows[0].keys() for row in rows)
        assert column in rows[0]
    for paths in content["files"].values():
        assert all(Path(path).exists() for path in ([paths] if isinstance(paths, str) else paths))

    def shown(columns: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        Result(result.tables).show()  # its verdict is one line, which a terminal wraps
        return capsys.readouterr().out.splitlines()

    narrow, wide = shown(80), shown(1000)
    assert max(map(len, narrow), default=0) <= 80
    if name in ("bench", "plan", "compare", "claims", "run"):
        rules = set("─━ ")
        words_of_wide = {word for line in wide for word in line.split() if not set(word) <= rules}
        assert words_of_wide <= {word for line in narrow for word in line.split()}


def strict(text: str) -> dict[str, Any]:
    """The object of a text that is nothing else, as parsers read it that know no NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    content: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return content


def test_a_quiet_command_tells_its_warnings_on_standard_error_and_no_progress(
    cli: CommandLine, small_run: Store, tmp_path: Path
) -> None:
    run, site = Path(shutil.copytree(small_run.folder, tmp_path / "runs/first")), tmp_path / "site"
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**content, "status": "started"}))
    warning = f"warning: {run} is not complete (started): what is missing is blank\n"
    assert cli("site", run, "--site", site) == 0
    assert cli.err.startswith(warning)
    assert "page: " in cli.err
    assert cli("site", run, "--site", site, "--quiet") == 0
    assert (cli.out, cli.err) == ("", warning)
    (run / "run.json").write_text(json.dumps(content))
    Store.open(run).path(RECORDS, "base", 0, "snapkv").unlink()
    assert cli("site", run, "--site", site, "--quiet") == 0
    assert cli.err.startswith(f"warning: {run} lacks records (snapkv of base: ")
    results = evaluation(tmp_path / "results/x", 1.0).parent
    (results / "broken").mkdir()
    assert cli("import-kvpress", results, "--site", site, "--quiet") == 1
    assert [line.partition(":")[0] for line in cli.err.splitlines()] == ["left out", "error"]


def test_a_fault_is_in_the_object_on_standard_error_and_in_the_status(
    cli: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    words = ["doctor", f"{tmp_path / 'mine.py'}:Broken", "--model", str(cli.model), "--quiet"]
    assert cli(*words, "--json") == 1
    content = strict(cli.out)
    assert content["verdict"].startswith("broken: does it run?")
    assert cli.err == f"error: {content['error']}\n"
    assert cli(*words) == 1
    assert cli.out.startswith("broken: does it run?")


def test_an_error_before_there_is_a_result_leaves_the_output_empty(cli: CommandLine) -> None:
    assert cli("ls", "models", "--json") == 0
    assert strict(cli.out)["command"] == "ls"
    assert cli("run", "--tasks", "typo", "--json", "--quiet") == 1
    assert (cli.out, cli.err.count("error: ")) == ("", 1)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_every_option_and_an_example_that_parses_in_80_columns(
    name: str, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command = application(name)
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    assert cli(name, "--help") == 0
    assert f"For example: kvbench {EXAMPLES[name]}" in " ".join(cli.out.split())
    assert max(map(len, cli.out.splitlines())) <= 80
    assert all(
        f" {option} " in cli.out
        for option in (*(one.opts[0] for one in options), "--json", "--quiet")
    )
    first, *words = EXAMPLES[name].split()
    assert first == name
    command.make_context(name, words)
