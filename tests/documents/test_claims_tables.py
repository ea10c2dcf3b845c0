"""The tables of verdicts are what the registers of the shipped models say."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import kvbench.documents.pages
from kvbench.documents.pages import MEASURED, examined, verdicts, verdicts_in_short
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
    } | more


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three models have a register, the second of no claim and the third of a single one."""
    monkeypatch.setattr(kvbench.documents.pages, "MEASURED", tmp_path)
    rows = [
        row("F1", "does not hold"),
        row("F2", "holds"),
        row("F3", "holds", "distractor above zeros"),
        row("F3", "undecided", "zeros above gaussian", measured=None, why="it was not run"),
        row("R2", "undecided"),
    ]
    (tmp_path / "smollm2.json").write_text(json.dumps({"model": "smollm2", "claims": rows}))
    (tmp_path / "gemma3.json").write_text(json.dumps({"claims": []}))
    (tmp_path / "reference.json").write_text(json.dumps({"claims": [row("R8", "holds")]}))
    return tmp_path


def test_verdicts_are_counted_and_a_claim_of_several_verdicts_holds_in_part(measured: Path) -> None:
    assert verdicts_in_short() == ("Of 4 claims on `smollm2`: 1 hold, 1 do not hold, 1 hold in part, 1 are undecided.")


def test_every_claim_has_a_line_with_its_verdicts_in_the_order_of_the_models(measured: Path) -> None:
    models, _, *lines = verdicts().splitlines()
    assert re.findall(r"`(.+?)`", models) == ["smollm2", "gemma3", "reference"]
    assert len(lines) == len(claims())
    for one, line in zip(claims().values(), lines, strict=True):
        assert line.startswith(f"- {one.identifier} ")
        assert line.endswith(f": {one.words}")
    signs = {line.split(":")[0].removeprefix("- ") for line in lines}
    assert {"R8 – – ✓", "F1 ✕ – –", "F2 ✓ – –", "F3 ± – –", "R2 ? – –", "E1 – – –"} <= signs


def test_each_verdict_against_a_text_has_a_reason_that_was_measured() -> None:
    against = {
        row["claim"]
        for model in examined()
        for row in json.loads((MEASURED / f"{model}.json").read_text())["claims"]
        if row["claim_verdict"] == "does not hold"
    }
    assert against
    reasons = (MEASURED.parent / "claims.md").read_text().partition("## Why claims do not hold")[2]
    assert [claim for claim in sorted(against) if f"\n- {claim}: " not in reasons] == []
