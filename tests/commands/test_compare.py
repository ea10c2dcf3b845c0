"""``compare`` from the command line: what it runs, what it borrows, what it prints and writes."""

import json
from pathlib import Path

import pytest

from kvbench.store.store import Store
from tests.support.models.runs import CommandLine, record_calls
from tests.support.wording import assert_says

PRESS = """
from dataclasses import dataclass
from kvpress import ScorerPress

@dataclass
class Loud(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        return values.norm(dim=-1)

@dataclass
class Picky(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        if self.compression_ratio > 0.6:
            raise ValueError("too much")
        return values.norm(dim=-1)

@dataclass
class Broken(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        raise ValueError("no such luck")
"""


@pytest.fixture
def press(tmp_path: Path) -> str:
    """The file of presses, which ``compare`` takes with a name behind a colon."""
    (tmp_path / "press.py").write_text(PRESS)
    return str(tmp_path / "press.py")


def compare_command(cli: CommandLine, command: str, *more: str) -> list[object]:
    return [
        command,
        *more,
        *cli.places,
        "--tasks",
        "base,hops",
        "--limit",
        "2",
        "--context-tokens",
        "native",
    ]


def test_only_what_is_missing_is_run_and_every_cell_has_a_verdict(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, press: str
) -> None:
    assert (
        cli(*compare_command(cli, "run", "--policies", "snapkv,knorm", "--ratios", "0.3,0.5,0.9"))
        == 0
    )
    calls = record_calls(monkeypatch)
    compare = compare_command(
        cli,
        "compare",
        f"{press}:Loud",
        "--against",
        "snapkv,knorm",
        "--ratios",
        "0.5,0.9",
        "--every-task",
    )
    assert cli(*compare) == 0
    assert [(call.task, call.policies) for call in calls] == [
        (task, ("Loud",)) for task in ("base", "base", "hops", "hops")
    ]
    others = ("snapkv", "knorm", "random", "recency")
    told = " ".join(cli.out.split())
    undecided = f"too few contexts to judge against {', '.join(others)}"
    assert told.startswith(f"Loud right, on base, hops: {undecided}")
    assert_says(told, undecided, "snapkv is adapted", "window_size ")
    lines = [line for line in cli.out.splitlines() if line.endswith("not distinguished")]
    assert len(lines) == (2 + 1) * len(others), (
        "of four contexts nothing can be told: at two levels, and by the area"
    )
    assert "few contexts (2)" in told
    assert_says(told, "against snapkv", "not distinguished in 4 of 4 cells")
    assert "worst answers: python -m kvbench show" in told
    assert "adapted" in cli.out
    page = (tmp_path / "site/compare-Loud.html").read_text()
    assert "Against snapkv" in page
    assert "Against knorm" in page
    assert "Arguments that the presses ran with" in page
    assert "Few contexts (2)" in page
    (folder,) = (tmp_path / "runs").glob("compare-*")
    assert Store.open(folder).run.status == "complete"
    assert Store.open(folder).identity.policies[-1].name == "Loud", "figures finds the press there"
    calls.clear()
    assert cli(*compare) == 0
    assert calls == []


def test_a_task_that_the_model_cannot_do_has_differences_without_verdicts_unless_asked(
    cli: CommandLine, tmp_path: Path
) -> None:
    """The toy model can do neither task."""
    assert (
        cli(
            *compare_command(
                cli, "compare", "knorm", "--against", "snapkv", "--ratios", "0.5", "--json"
            )
        )
        == 0
    )
    tables = json.loads(cli.out)["tables"]
    assert (tables["outcomes"], tables["means"], tables["pooled"]) == ([], [], [])
    reason = "the model itself has 0 % right, below 50"
    rows = tables["verdicts"]
    assert {(row["task"], row["not_mastered"]) for row in rows} == {
        (task, reason) for task in ("base", "hops")
    }
    assert {(row["verdict"], row["right_p"], row["right_verdict"]) for row in rows} == {
        (None, None, None)
    }
    assert None not in {row["right_difference"] for row in rows}
    page = (tmp_path / "site/compare-knorm.html").read_text()
    assert f"base: {reason}" in page
    assert page.count("hops, no verdicts") == len({row["other"] for row in rows})
    assert 'class="blank"' not in page
    assert "0 against 0" in page
    assert "no task that the model can do" in page.lower()
    assert (
        cli(*compare_command(cli, "compare", "knorm", "--against", "snapkv", "--ratios", "0.5"))
        == 0
    )
    told = " ".join(cli.out.split())
    assert "no task of this comparison" in told
    assert f"hops: {reason}" in told
    assert "not distinguished" not in told


def test_what_shares_no_level_is_told_before_anything_is_loaded(cli: CommandLine) -> None:
    """A fault takes rates and a press ratios; two faults meet, and no press stands beside them."""
    said = cli.error(*compare_command(cli, "compare", "zeros", "--against", "snapkv"))
    assert_says(said, "zeros takes rates", "snapkv takes ratios or budgets")
    assert "loading" not in said
    assert (
        cli(
            *compare_command(
                cli,
                "compare",
                "zeros",
                "--against",
                "gaussian",
                "--rates",
                "0.5",
                "--every-task",
                "--json",
            )
        )
        == 0
    )
    tables = json.loads(cli.out)["tables"]
    assert {(row["level_kind"], row["level"], row["other"]) for row in tables["verdicts"]} == {
        ("rate", 0.5, "gaussian")
    }


def test_a_press_that_fails_is_one_line_with_its_reason(
    cli: CommandLine, tmp_path: Path, press: str
) -> None:
    assert (
        cli(
            *compare_command(
                cli, "compare", f"{press}:Broken", "--against", "knorm", "--ratios", "0.5"
            )
        )
        == 1
    )
    assert cli.err.splitlines()[-1].startswith(
        "error: Broken failed in layer 0: ValueError: no such luck"
    )
    assert f"python -m kvbench doctor {press}:Broken" in cli.complaint
    assert "warning" not in cli.err, "one cause, told once"
    (folder,) = (tmp_path / "runs").glob("compare-*")
    # What did not fail is kept.
    assert json.loads((folder / "run.json").read_text())["status"] == "complete"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["knorm,snapkv"], "compare takes one press"),
        (["knorm", "--against", "knorm"], "name a policy other than knorm"),
        (["knorm", "--against", "snapvk"], "did you mean 'snapkv'"),
        (["knorm", "--ratios", "0.5", "--budgets", "64"], "give one of them"),
        (["nowhere.py:Press"], "there is no file nowhere.py"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(
    cli: CommandLine, tmp_path: Path, given: list[str], complaint: str
) -> None:
    assert complaint in cli.error(*compare_command(cli, "compare", *given))
    assert not (tmp_path / "runs").exists()


def test_cells_that_failed_are_told_of_and_the_others_have_their_verdict(
    cli: CommandLine, tmp_path: Path, press: str
) -> None:
    given = (
        "compare",
        f"{press}:Picky",
        "--against",
        "knorm",
        "--ratios",
        "0.5,0.9",
        "--every-task",
    )
    assert cli(*compare_command(cli, *given)) == 1
    assert "too few contexts to judge against knorm" in " ".join(cli.out.split())
    assert_says(cli.complaint, "some cells failed", "Picky")
    assert "ValueError: too much" in cli.complaint
    page = (tmp_path / "site/compare-Picky.html").read_text()
    assert "What failed" in page
    assert_says(page, "Picky at ratio 0.9 of base", "layer 0: ValueError: too much")
