"""The register of claims from the command line: what it runs, what it borrows, what it prints, writes and shows."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.names import chosen_identifiers, identifiers
from leaderboards.claims.registry import claims
from leaderboards.claims.verdict import judge
from leaderboards.pages.claims import Run, build_claims
from leaderboards.statistics.bootstrap import Blank
from tests.support.browsing.pages import HOSTILE, Elements, assert_inert
from tests.support.models.runs import CommandLine, policies_of, record_calls
from tests.support.records.small_store import small_store

ROOT = Path(__file__).parents[2]
DECLARED = """
from leaderboards.claims.declaration import Claim, Experiment, Statistic
from leaderboards.claims.texts.routing import R

EXPERIMENT = Experiment("half", "base", "knorm", (("ratio", "0.5"),), contexts=2)


def measure(evidence):
    found = evidence[EXPERIMENT.name].of("base")
    return [Statistic(found.mean("knorm", 0.5, "realised_ratio"), found.contexts)]


CLAIMS = (
    Claim(
        identifier="R99",
        text=R,
        words="Half of it goes.",
        reported="half",
        statistic="what goes",
        side="at least",
        threshold=0.4,
        experiments=(EXPERIMENT,),
        measure=measure,
    ),
)
"""


def words(cli: CommandLine, *more: object) -> list[object]:
    return ["claims", "--model", cli.model, "--out", cli.folder / "runs", "--site", cli.folder / "site", *more]


def test_experiments_share_a_model_and_a_second_start_has_everything(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E1 asks for two formats on three tasks."""
    calls = record_calls(monkeypatch)
    assert cli(*words(cli, "--only", "E1", "--limit", 1)) == 0
    of_task: dict[str, set[str]] = {}
    for call in calls:
        of_task.setdefault(call.task, set()).update(call.policies)
    assert of_task == {key: {"full", "int8", "int4"} for key in ("base", "instructions", "prose")}
    assert cli.err.count("loading ") == 1, "two experiments on one model, which is loaded once"
    calls.clear()
    assert cli(*words(cli, "--only", "E1", "--limit", 1)) == 0
    assert policies_of(calls) == [], "a second start has everything"


def test_it_prints_and_writes_one_register(cli: CommandLine) -> None:
    assert cli(*words(cli, "--only", "E1", "--limit", 1, "--json")) == 0
    printed = json.loads(cli.out)
    parts = ["int8, directives obeyed", "int4, directives obeyed", "int8, right answers", "int4, right answers"]
    parts += ["int8, next tokens", "int4, next tokens"]
    assert [row["part"] for row in printed["tables"]["claims"]] == parts
    assert {row["verdict"] for row in printed["tables"]["claims"]} == {"undecided"}, "the toy model can do nothing"
    assert printed["verdict"].startswith("1 claims in 6 statistics on ")
    written = json.loads((cli.folder / "site/claims.json").read_text())
    assert [row["claim_part"] for row in written["claims"]] == parts
    assert Path(written["runs"]["quantised"]).is_dir()
    assert (cli.folder / "site/data/claims.csv").read_text().startswith("claim,text,words,reported,statistic")
    page = (cli.folder / "site/claims.html").read_text()
    assert "base: the full cache reaches" in Elements(page).text
    assert written["runs"]["quantised"] in Elements(page).text


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--only", "Q9"), "--only Q9: unknown claim"),
        (("--only", ","), "--only ,: no claim given"),
        (("--larger", "./nowhere"), "there is no model at nowhere"),
        (("--limit", "0"), "--limit is 1 or more"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_loaded(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], complaint: str
) -> None:
    calls = record_calls(monkeypatch)
    assert complaint in cli.error(*words(cli, *more))
    assert calls == []
    assert "loading" not in cli.err
    assert not list((cli.folder / "runs").glob("*"))


def test_a_claim_in_one_file_is_found_judged_and_shown(tmp_path: Path) -> None:
    """A copy of the package has one more file, and a run lends the records."""
    shutil.copytree(ROOT / "leaderboards", tmp_path / "leaderboards", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "leaderboards/claims/texts/half.py").write_text(DECLARED)
    script = (
        "from pathlib import Path\n"
        "from kvbench.publish.claims import publish_register\n"
        "from kvbench.store.store import Store\n"
        "from leaderboards.claims.registry import chosen_claims\n"
        "store = Store.open(Path('runs/small'))\n"
        "print(publish_register(chosen_claims('R99'), 'toy', None, {'half': store}, 0, Path('site')).verdict)\n"
    )
    small_store(tmp_path / "runs/small")
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1 claims in 1 statistics on toy: 0 holds, 0 does not hold, 1 undecided"
    page = Elements((tmp_path / "site/claims.html").read_text())
    assert "Half of it goes." in page.text
    assert "3 contexts: fewer than 6 decide nothing" in page.text
    assert "R99" in page.values("id")


def made_up(measured: float, **more: object) -> str:
    """The page of one claim, R1, whose statistic is about a number."""
    rng = np.random.default_rng(0)

    def measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
        return [Statistic(np.concatenate([[measured], rng.normal(measured, 0.01, 2000)]), 40, note="so it is")]

    claim: Claim = replace(claims()["R1"], measure=measure, experiments=(), **more)  # type: ignore[arg-type]
    return build_claims("toy", None, judge([claim], {}), {}, [])


@pytest.mark.parametrize(("measured", "verdict"), [(0.95, "holds"), (0.5, "does not hold"), (0.9, "undecided")])
def test_page_tells_the_verdict_in_words_with_number_interval_and_drawing(measured: float, verdict: str) -> None:
    page = Elements(made_up(measured))
    (row,) = [row for row in page.rows if row and row[0] == "R1"]
    assert row[1] == "Accuracy is flat to moderate compression."
    assert row[2].endswith(f" {verdict}")
    assert row[4].startswith(f"{measured:.2f}")
    assert " to " in row[4]
    assert row[5:7] == ["40", "at least 0.9"]
    assert {"#R1"} <= set(page.values("href"))
    assert [tag for tag, _ in page.found].count("svg") == 1
    assert "so it is" in page.text


def test_reason_stands_where_a_text_is_contradicted_and_nowhere_else() -> None:
    assert "It was measured." in made_up(0.5, because="It was measured.")
    assert "It was measured." not in made_up(0.95, because="It was measured.")
    assert "0.07 / 0.66" in made_up(0.95, remark="0.07 / 0.66 = 0.11")


def test_what_a_model_and_a_run_are_called_stays_text() -> None:
    judged = judge([claims()["R1"]], {"routes": Blank(HOSTILE)})
    page = build_claims(HOSTILE, HOSTILE, judged, {"routes": Run(HOSTILE, "", HOSTILE)}, [])
    assert_inert(page, least=3)


def test_the_names_of_claims_are_those_of_their_files() -> None:
    """They are read without an import of any claim."""
    assert sorted(identifiers()) == sorted(claims())
    assert chosen_identifiers("F, E2") == ["E2", "F1", "F2", "F3", "F4", "F5"]
