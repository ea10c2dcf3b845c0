"""``compare`` from the command line: what it runs, what it borrows, what it prints and writes."""

import json
from pathlib import Path

import pytest

import kvbench.experiments.collect
import kvbench.run.unit
from kvbench.cli.program import main
from kvbench.store.store import Store

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


def arguments(model: Path, folder: Path, command: str, *more: str) -> list[str]:
    (folder / "press.py").write_text(PRESS)
    places = ["--out", str(folder / "runs"), "--site", str(folder / "site"), "--model", str(model)]
    return [command, *more, *places, "--tasks", "base,hops", "--limit", "2"]


def test_only_what_is_missing_is_run_and_every_cell_has_a_verdict(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(arguments(toy_folder, tmp_path, "run", "--policies", "snapkv,knorm", "--ratios", "0.3,0.5,0.9")) == 0
    asked: list[tuple[str, list[str]]] = []
    collect = kvbench.experiments.collect.collect

    def listening(model, task, examples, setting):  # type: ignore[no-untyped-def]
        asked.append((task.name, [policy.name for policy in setting.policies]))
        return collect(model, task, examples, setting)

    monkeypatch.setattr(kvbench.run.unit, "collect", listening)
    press = f"{tmp_path / 'press.py'}:Loud"
    capsys.readouterr()
    compare = arguments(toy_folder, tmp_path, "compare", press, "--against", "snapkv,knorm", "--ratios", "0.5,0.9")
    assert main(compare) == 0
    assert asked == [("base", ["Loud"])] * 2 + [("hops", ["Loud"])] * 2
    output = capsys.readouterr().out
    assert output.count("Loud against") == 2
    for other in ("snapkv", "knorm"):
        told = " ".join(output.split(f"against {other}: ")[1].split())
        assert told.startswith("better in ")
    rows = [line.split() for line in output.splitlines() if line.split()[:1] in (["base"], ["hops"])]
    assert [row[:2] for row in rows] == [[task, ratio] for task in ("base", "hops") for ratio in ("0.5", "0.9")] * 2
    assert {row[-1] for row in rows} <= {"better", "worse", "tied"}
    page = (tmp_path / "site/compare-Loud.html").read_text()
    assert "Against snapkv" in page
    assert "Against knorm" in page
    (folder,) = (tmp_path / "runs").glob("compare-*")
    assert Store.open(folder).run.status == "complete"
    asked.clear()
    assert main(compare) == 0
    assert asked == []


def test_a_press_that_fails_is_one_line_with_its_reason(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    press = f"{tmp_path / 'press.py'}:Broken"
    assert main(arguments(toy_folder, tmp_path, "compare", press, "--against", "knorm", "--ratios", "0.5")) == 1
    complaint = " ".join(capsys.readouterr().err.split())
    assert "Broken and knorm have no cell in common that is complete" in complaint
    assert "no such luck" in complaint
    (folder,) = (tmp_path / "runs").glob("compare-*")
    assert json.loads((folder / "run.json").read_text())["status"] == "complete"  # what did not fail is kept


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
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], complaint: str
) -> None:
    assert main(arguments(toy_folder, tmp_path, "compare", *given)) == 1
    assert complaint in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "runs").exists()


def test_cells_that_failed_are_told_of_and_the_others_have_their_verdict(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    press = f"{tmp_path / 'press.py'}:Picky"
    given = ("compare", press, "--against", "knorm", "--ratios", "0.5,0.9")
    assert main(arguments(toy_folder, tmp_path, *given)) == 1
    output, complaint = (" ".join(text.split()) for text in capsys.readouterr())
    assert "tied in" in output
    assert "some cells failed, all others are complete: Picky" in complaint
    assert "ValueError: too much" in complaint
    page = (tmp_path / "site/compare-Picky.html").read_text()
    assert "What failed" in page
    assert "Picky at ratio 0.9 of base: Picky failed in layer 0: ValueError: too much" in page


def test_two_names_for_one_method_fail_a_comparison_too(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("compare", "kvpress:KnormPress", "--against", "knorm,snapkv", "--ratios", "0.5")
    assert main(arguments(toy_folder, tmp_path, *given)) == 1
    assert "KnormPress and knorm are identical at ratio 0.5" in " ".join(capsys.readouterr().err.split())


def test_presses_of_one_name_are_not_compared(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.py").write_text(PRESS + "\n# and not the same code\n")
    presses = [f"{tmp_path / name}:Loud" for name in ("press.py", "other.py")]
    assert main(arguments(toy_folder, tmp_path, "compare", presses[0], "--against", presses[1])) == 1
    assert "two policies are named 'Loud': rename yours" in " ".join(capsys.readouterr().err.split())
