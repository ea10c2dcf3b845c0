"""The tables of verdicts are what the registers of the shipped models say."""

import json

from kvbench.documents.pages import MEASURED, examined


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
