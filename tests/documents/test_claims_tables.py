"""The tables of verdicts are what the registers of the reference models say."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvbench.documents import claims_tables
from kvbench.documents.claims_tables import claim_rows, reasons, verdicts, verdicts_in_short
from leaderboards.claims.registry import claims


def row(claim: str, verdict: str, part: str = "", **more: Any) -> dict[str, Any]:
    known = claims()[claim]
    return {
        "claim": claim,
        "claim_part": part,
        "side": known.side,
        "threshold": known.threshold,
        "measured": 0.5,
        "measured_low": 0.4,
        "measured_high": 0.6,
        "measured_n": 24,
        "claim_verdict": verdict,
        "why": "",
        "because": "",
    } | more


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two of the reference models have a register, the other of a single claim."""
    monkeypatch.setattr(claims_tables, "MEASURED", tmp_path)
    rows = [
        row("F1", "does not hold", because="It reads in one layer."),
        row("F2", "holds"),
        row("F3", "holds", "distractor above zeros"),
        row("F3", "undecided", "zeros above gaussian", measured=None, why="it was not run"),
        row("R2", "undecided"),
    ]
    (tmp_path / "reference.json").write_text(json.dumps({"model": "reference", "claims": rows}))
    (tmp_path / "reference-small.json").write_text(json.dumps({"claims": [row("R9", "holds")]}))
    return tmp_path


def test_claims_stand_by_their_verdicts_and_mixed_ones_apart(measured: Path) -> None:
    lines = verdicts_in_short().splitlines()
    (of_f,) = [line for line in lines if line.startswith("| F:")]
    assert "| **holds** F2; **does not hold** F1; **in part** F3 |" in of_f
    (of_r,) = [line for line in lines if line.startswith("| R:")]
    assert of_r.endswith("| **undecided** R2 | **holds** R9 |")
    assert of_f.endswith("| – |"), "the other model was not asked for them"


def test_every_statistic_has_a_row_with_its_numbers_or_why_there_are_none(measured: Path) -> None:
    lines = verdicts().splitlines()[2:]
    assert [line.split(" | ")[:3] for line in lines] == [
        ["| F1", "", "at most 0.2"],
        ["| F2", "", "at least 0.5"],
        ["| F3", "distractor above zeros", "above 0"],
        ["| F3", "zeros above gaussian", "above 0"],
        ["| R2", "", "at least 0.8"],
        ["| R9", "", "at most 0"],
    ]
    assert "**does not hold** 0.50 [0.40 to 0.60], n = 24" in lines[0]
    assert "undecided: it was not run" in lines[3]


def test_reasons_are_those_of_claims_that_do_not_hold(measured: Path) -> None:
    assert reasons() == "**F1.** It reads in one layer."


def test_thresholds_are_those_of_the_registry() -> None:
    lines = claim_rows().splitlines()[2:]
    assert len(lines) == len(claims())
    for one, line in zip(claims().values(), lines, strict=True):
        assert line.startswith(f"| {one.identifier} | {one.words} |")
        assert f"{one.side} {one.threshold:g} |" in line


def test_each_verdict_against_a_text_has_a_reason_that_was_measured() -> None:
    against = {
        row["claim"]
        for model in claims_tables.examined()
        for row in json.loads((claims_tables.MEASURED / f"{model}.json").read_text())["claims"]
        if row["claim_verdict"] == "does not hold"
    }
    assert against
    assert [claim for claim in sorted(against) if not claims()[claim].because] == []
