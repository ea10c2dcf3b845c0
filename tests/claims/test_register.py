"""The register of claims from the command line: what it runs, what it borrows, what it prints,
writes and shows."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvbench.store.store import Store
from kvbench.studies.groups.tables import GROUPS
from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.registry import claims
from leaderboards.claims.verdict import judge
from leaderboards.pages.claims import Run, build_claims
from leaderboards.statistics.bootstrap import Blank
from tests.support.browsing.pages import HOSTILE, Elements, assert_inert
from tests.support.models.runs import CommandLine, policies_of, record_calls
from tests.support.wording import assert_says


def claims_command(cli: CommandLine, *more: object) -> list[object]:
    return [
        "claims",
        *cli.places,
        *more,
    ]


def test_experiments_share_a_model_and_a_second_start_has_everything(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E1 asks for two formats on three tasks."""
    calls = record_calls(monkeypatch)
    assert cli(*claims_command(cli, "--only", "E1", "--limit", 1)) == 0
    of_task: dict[str, set[str]] = {}
    for call in calls:
        of_task.setdefault(call.task, set()).update(call.policies)
    assert of_task == {key: {"full", "int8", "int4"} for key in ("base", "instructions", "prose")}
    assert cli.err.count("loading ") == 1, "two experiments on one model, which is loaded once"
    calls.clear()
    assert cli(*claims_command(cli, "--only", "E1", "--limit", 1)) == 0
    assert policies_of(calls) == [], "a second start has everything"


def test_drift_by_shared_heads_is_measured_of_the_full_cache(cli: CommandLine) -> None:
    assert cli(*claims_command(cli, "--only", "N5", "--limit", 2, "--json")) == 0
    run = json.loads((cli.folder / "site/claims.json").read_text())["runs"]["groups"]
    rows = Store.open(cli.folder / "runs" / run).study_table(GROUPS).to_pandas()
    assert set(rows["policy"]) == {"full"}
    assert set(rows["size"]) == {1, 2}
    assert rows["question_id"].nunique() == 2, "the first question of each context"


def test_it_prints_and_writes_one_register(cli: CommandLine) -> None:
    assert (
        cli(
            *claims_command(
                cli, "--only", "E1", "--limit", 1, "--tasks", "prose(data=python)", "--json"
            )
        )
        == 0
    )
    printed = json.loads(cli.out)
    parts = [
        "int8, directives obeyed",
        "int4, directives obeyed",
        "int8, right answers",
        "int4, right answers",
    ]
    parts += ["int8, next tokens", "int4, next tokens"]
    assert [row["part"] for row in printed["tables"]["claims"]] == parts
    assert {row["verdict"] for row in printed["tables"]["claims"]} == {"undecided"}, (
        "the toy model can do nothing"
    )
    assert_says(
        printed["verdict"],
        "1 claims in 6 statistics",
        "0 holds",
        "0 does not hold",
        "6 undecided",
    )
    written = json.loads((cli.folder / "site/claims.json").read_text())
    assert [row["claim_part"] for row in written["claims"]] == parts
    assert written["data"] == "python"
    run = written["runs"]["quantised"]
    assert run == Path(run).name, "a register names no place"
    identity = Store.open(cli.folder / "runs" / run).identity
    # The default is the faster type of the machine.
    assert written["dtype"] == identity.dtype
    asked = {task.name: task.version for task in identity.tasks}
    assert "+text." in asked["prose"]
    assert "+text." not in asked["base"]
    assert (
        (cli.folder / "site/data/claims.csv")
        .read_text()
        .startswith("claim,text,words,reported,statistic")
    )
    page = (cli.folder / "site/claims.html").read_text()
    assert "base: the full cache reaches" in Elements(page).text
    assert identity.dtype in Elements(page).text
    assert run in Elements(page).text


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--only", "Q9"), "--only Q9: unknown claim"),
        (("--only", "F", "--difficulty", "bsae=2"), "unknown task with levels 'bsae'"),
        (("--difficulty", "auto"), "--difficulty auto: give the levels"),
        (("--only", "E1", "--tasks", "prose(data=no.txt)"), "data=no.txt: No such file"),
        (("--only", "E1", "--tasks", "gsm8k(data=no.txt)"), "unknown task of these claims"),
        (("--only", "E1", "--tasks", "base"), "claims choose their tasks"),
        (("--only", ","), "--only ,: no claim given"),
        (("--only", "R6", "--beside", "./nowhere"), "there is no model at nowhere"),
        (("--only", "F5", "--larger", "./nowhere"), "there is no model at nowhere"),
        (
            ("--only", "F5", "--model", "toy", "--larger", "toy"),
            "--larger toy: it is the model itself",
        ),
        (("--limit", "0"), "--limit is 1 or more"),
        (("--max-new-tokens", "0"), "--max-new-tokens is 1 or more"),
        (
            ("--only", "E1", "--suite", "numerics(dtypes=fp16)"),
            "--suite numerics(dtypes=fp16) is of the claims N alone",
        ),
        (("--only", "E1", "--suite", "faults"), "claims have suites of their own"),
        (("--only", "N1,E1", "--suite", "numerics(dtypes=fp12)"), "unknown dtype 'fp12'"),
        (("--only", "N6,N4", "--suite", "numerics(dtypes=bf16)"), "N4 is measured in float16, and"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_loaded(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], complaint: str
) -> None:
    calls = record_calls(monkeypatch)
    assert complaint in cli.error(*claims_command(cli, *more))
    assert calls == []
    assert "loading" not in cli.err
    assert not list((cli.folder / "runs").glob("*"))


def made_up(measured: float) -> str:
    """The page of one claim, R1, whose statistic is about a number."""
    rng = np.random.default_rng(0)

    def measure() -> list[Statistic]:
        return [
            Statistic(
                np.concatenate([[measured], rng.normal(measured, 0.01, 2000)]), 40, note="so it is"
            )
        ]

    claim: Claim = replace(claims()["R1"], measure=measure, experiments=())
    return build_claims("toy", judge([claim], {}), {}, [])


@pytest.mark.parametrize(
    ("measured", "verdict"), [(0.95, "holds"), (0.5, "does not hold"), (0.9, "undecided")]
)
def test_page_tells_the_verdict_in_words_with_number_interval_and_drawing(
    measured: float, verdict: str
) -> None:
    page = Elements(made_up(measured))
    (row,) = [row for row in page.rows if row and row[0] == "R1"]
    assert row[1] == "Accuracy is flat to moderate compression."
    assert row[2].endswith(f" {verdict}")
    assert row[4].startswith(f"{measured:.2f}")
    assert " to " in row[4]
    assert row[5:7] == ["40", "at least 0.9"]
    assert {"#R1"} <= set(page.values("href"))
    assert "so it is" in page.text


def test_what_a_model_and_a_run_are_called_stays_text() -> None:
    judged = judge([claims()["R1"]], {"routes": Blank(HOSTILE)})
    page = build_claims(HOSTILE, judged, {"routes": Run(HOSTILE, "", HOSTILE)}, [], HOSTILE)
    assert_inert(page, least=3)
