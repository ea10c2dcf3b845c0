"""The tables of docs/passports.md, from passports whose truth is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from docs.scripts import passports

BREAKS, HOLDS = True, False


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One model that was tested, of which one format was foretold wrongly each way, and one that
    was not."""
    # By format: what was foretold, and the points that were lost.
    truth = {
        "q8_0": (HOLDS, 2.0),
        "q4_0": (BREAKS, 60.0),
        "int4": (BREAKS, 10.0),
        "q5_1": (HOLDS, 21.0),
    }
    rows: list[dict[str, Any]] = []
    for name, (foretold, lost) in truth.items():
        outcome = {"right": 90 - lost, "full": 90.0, "lost": lost, "broke": lost > 20}
        row = {"format": name, "breaks": foretold, "moved": 0.1}
        rows.append(row | {"outcome": outcome})
    untested = [{key: row[key] for key in ("format", "breaks", "moved")} for row in rows]
    for model, written in (("tested", rows), ("untested", untested)):
        (tmp_path / f"{model}.json").write_text(json.dumps({"forecasts": written}))
    monkeypatch.setattr(passports, "FOLDER", tmp_path)
    monkeypatch.setattr(passports, "MODELS", ("tested", "untested"))
    return tmp_path


def test_each_outcome_says_what_was_lost_and_whether_it_was_foretold(folder: Path) -> None:
    lines = passports.outcomes().splitlines()
    assert lines[0] == "| format | `tested` |"
    assert lines[2:] == [
        "| `q8_0` | ✓ 2 |",
        "| `q4_0` | ✕ 60 |",
        "| `int4` | ✓ 10, foretold otherwise |",
        "| `q5_1` | ✕ 21, foretold otherwise |",
    ]


def test_forecasts_are_counted_beside_two_that_look_at_no_model(folder: Path) -> None:
    """Of four formats two broke. All hold: two right. Four bits break: q8_0 and q4_0 right."""
    (of_model, of_all) = passports.forecast_scores().splitlines()[2:]
    assert of_model == "| `tested` | 2 of 4 | 1 of 2 | 1 of 2 | 2 | 2 |"
    assert of_all.endswith("| 2 of 4 | 1 of 2 | 1 of 2 | 2 | 2 |")


def test_a_passport_with_its_test_is_kept_with_its_outcomes(folder: Path) -> None:
    lost = {"mean": 25.0, "low": 1.0, "high": 40.0, "n": 12}
    outcome = {"right": 50.0, "full": 75.0, "lost": lost, "perplexity": 1.5, "questions": 12}
    forecast = {"format": "q4_0", "breaks": True, "moved": 0.2, "key_error": 0.1, "mends": []}
    content = {"model": "x", "tokens": 640, "forecasts": [forecast], "bytes": {"q4_0": 28.0}}
    (folder / "passport.json").write_text(json.dumps(content | {"outcomes": {"q4_0": outcome}}))
    passports.keep(folder / "passport.json")
    (row,) = json.loads((folder / "x.json").read_text())["forecasts"]
    assert (row["outcome"]["lost"], row["outcome"]["broke"]) == (25.0, True)
