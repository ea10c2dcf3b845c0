"""On the pretended device the commands of a user run from end to end, and say what they say on a
CPU."""

import json
import re
from pathlib import Path

import pytest

import kvbench.checks.patient
from kvbench.cli.program import main
from kvbench.store.store import Store
from tests.support.models.both_devices import check_equal, tables_of
from tests.support.models.devices import work_as
from tests.support.models.pretended_cuda import pretended_cuda
from tests.support.models.runs import CommandLine
from tests.support.wording import assert_says

PRESS = "docs/scripts/loud_values.py:LoudValuesPress"
FLOAT32 = ("--dtype", "float32")


def on_cuda(cli: CommandLine, *words: object) -> int:
    with pretended_cuda():
        return cli(*words, "--device", "cuda")


def test_prose_that_is_read_only_beside_answers(cli: CommandLine) -> None:
    """It ended with an error on every GPU: steps went on behind the last column of what is read
    only."""
    words = cli.words("--tasks", "prose", "--policies", "snapkv,int4", "--ratios", 0.5, *FLOAT32)
    assert on_cuda(cli, *words) == 0, cli.err
    (record, *_) = Store.open(cli.folder / "runs" / "x").frame().itertuples()
    assert record.status == "ok"


def test_a_run_that_was_cut_off_goes_on_and_equals_one_of_a_cpu(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = cli.words("--policies", "knorm,h2o", "--tasks", "base", *FLOAT32)
    assert on_cuda(cli, *words, "--name", "card") == 0, cli.err
    cut = Store.open(cli.folder / "runs" / "card")
    assert "cuda (pretended)" in cut.identity.device
    lost = cut.record_files()[-1]
    lost.unlink()
    assert on_cuda(cli, *words, "--name", "card") == 0, cli.err
    assert lost.exists()
    work_as(monkeypatch, "cuda")
    assert cli(*words, "--name", "host", "--device", "cpu") == 0, cli.err
    check_equal(tables_of(Store.open(cli.folder / "runs" / "host")), tables_of(cut))


def test_compare(cli: CommandLine) -> None:
    words = [
        "compare",
        PRESS,
        "--against",
        "knorm",
        "--tasks",
        "base",
        "--limit",
        2,
        *cli.places,
        *FLOAT32,
    ]
    assert (
        on_cuda(cli, *words, "--ratios", 0.5, "--context-tokens", "native", "--every-task") == 0
    ), cli.err
    assert "LoudValuesPress" in cli.out


def findings_in(report: str) -> list[str]:
    """Returns the findings of a report; the time, and where the model is, are those of the
    moment."""
    rows = json.loads(report)["tables"]["findings"]
    return [
        re.sub(r" on (cuda:0|cpu)|[0-9.]+ s\b", "", str(row))
        for row in rows
        if row["check"] != "time?"
    ]


@pytest.mark.parametrize(
    "patient", [(PRESS,), ("--tasks", "base", "--limit", 1, *FLOAT32)], ids=["press", "model"]
)
def test_doctor(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, patient: tuple[object, ...]
) -> None:
    monkeypatch.setattr(kvbench.checks.patient, "LENGTHS", (108,))
    words = ["doctor", *patient, "--model", cli.model, "--json"]
    status, findings = cli(*words, "--device", "cpu"), findings_in(cli.out)
    assert on_cuda(cli, *words) == status, cli.err
    assert findings_in(cli.out) == findings
    assert len(findings) > 3


@pytest.mark.slow
def test_bench(cli: CommandLine) -> None:
    words = ["bench", "--model", cli.model, "--tasks", "base", "--limit", 1, "--policies", "knorm"]
    assert on_cuda(cli, *words, "--ratios", 0.5) == 0, cli.err
    counts = [line.split()[-2:] for line in cli.out.splitlines() if line.split()[:1] == ["knorm"]]
    assert counts == [["6", "6"]]


def test_without_a_card_the_command_says_what_to_do(
    capsys: pytest.CaptureFixture[str], toy_folder: Path
) -> None:
    assert main(["run", "--model", str(toy_folder), "--device", "cuda"]) == 1
    assert_says(capsys.readouterr().err, "no CUDA device", "--device cpu")
