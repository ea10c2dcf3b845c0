"""Claims K, of formats of fewer bits, on answers whose truth is known, and the table of
reconstruction that K6 reads."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from kvbench.store.store import Store
from kvbench.studies.reconstruction.tables import RECONSTRUCTION as TABLE
from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.declaration import NoStatistic
from leaderboards.claims.registry import claims
from leaderboards.claims.texts.formats import EXPERIMENT, FORMATS, RECONSTRUCTION, TASKS
from leaderboards.claims.verdict import judge
from tests.support.models.runs import CommandLine
from tests.support.records.claim_statistics import measured, value
from tests.support.records.synthetic_records import frame, record

CONTEXTS = 120


def format_evidence(
    right: Mapping[str, float], errors: Mapping[str, float] | None = None
) -> dict[str, Evidence]:
    """Contexts with a question each, of which a share is right with each format, and all are with
    the full cache."""
    records = []
    shares = {"full": 1.0, **dict.fromkeys(FORMATS, 1.0), **right}
    for task in TASKS:
        for policy, share in shares.items():
            for number in range(CONTEXTS):
                is_right = number < share * CONTEXTS
                cell = {"task": task, "policy": policy, "ratio": 0.0, "question_id": f"{number}"}
                place = {"draw_id": f"{number}", "example_id": f"{number}"}
                records.append(record(**cell, **place, right=is_right))
    rows = []
    for policy, error in (errors or {}).items():
        rows.append({"policy": policy, "keys": [error, error], "values": [0.0, 0.0]})
    tables = {RECONSTRUCTION: pd.DataFrame(rows)}
    return {EXPERIMENT.name: Evidence(frame(records), 0, tables)}


def verdicts(identifier: str, evidence: Mapping[str, Evidence]) -> set[str]:
    return {each.verdict for each in judge([claims()[identifier]], evidence)}


def test_four_bits_by_token_break_where_a_fifth_and_less_is_kept() -> None:
    broken = format_evidence({"q4_0": 0.1})
    parts = measured("K1", broken)
    assert list(parts) == list(TASKS)
    assert [value(part) for part in parts.values()] == pytest.approx([0.1, 0.1])
    assert verdicts("K1", broken) == {"holds"}
    assert verdicts("K1", format_evidence({})) == {"does not hold"}
    assert verdicts("K1", format_evidence({"q4_0": 0.4})) == {"does not hold"}


@pytest.mark.parametrize(
    ("identifier", "mend"),
    [
        ("K2", "int4"),
        ("K3", "q8_0(values=q4_0)"),
        ("K4", "q4_0(layers=2-)"),
        ("K5", "q4_0(rotate=hadamard)"),
    ],
)
def test_what_mends_is_asked_where_something_is_broken(identifier: str, mend: str) -> None:
    assert verdicts(identifier, format_evidence({"q4_0": 0.1})) == {"holds"}
    assert verdicts(identifier, format_evidence({"q4_0": 0.1, mend: 0.4})) == {"does not hold"}
    sound = measured(identifier, format_evidence({"q4_0": 0.9}))
    for part in sound.values():
        assert isinstance(part, NoStatistic)
        assert part.is_unmet
        assert "q4_0 keeps 0.90" in part.reason


def test_errors_that_order_formats_as_answers_do_contradict_k6() -> None:
    shares = dict(zip(FORMATS, np.linspace(0.1, 1.0, len(FORMATS)), strict=True))
    errors = {name: 1 - share for name, share in shares.items()}
    alike = format_evidence(shares, errors)
    assert [value(part) for part in measured("K6", alike).values()] == pytest.approx([1, 1])
    assert verdicts("K6", alike) == {"does not hold"}
    against = format_evidence(shares, shares)
    assert [value(part) for part in measured("K6", against).values()] == pytest.approx([-1, -1])
    assert verdicts("K6", against) == {"holds"}


def test_floating_point_holds_where_next_to_nothing_is_lost() -> None:
    assert verdicts("K7", format_evidence({})) == {"holds"}
    assert verdicts("K7", format_evidence({"fp8_e4m3": 0.5})) == {"does not hold"}
    assert verdicts("K7", format_evidence({"fp8_e4m3": 0.94})) == {"undecided"}


def test_the_error_of_stored_rows_is_stored_by_layer(cli: CommandLine) -> None:
    # Of the last three none stores the exact rows of the full cache.
    policies = "int8,int2,q4_0(tensor=V),snapkv,snapkv+int4,q4_0(phase=write)"
    words = ("--tasks", "base", "--policies", policies, "--ratios", "0.5")
    size = ("--limit", 2, "--observe", "reconstruction", "--name", "stored")
    assert cli("run", *cli.places, *words, *size) == 0
    store = Store.open(cli.folder / "runs/stored")
    rows = store.study_table(TABLE).to_pandas()
    assert set(rows["policy"]) == {"int8", "int2", "q4_0(tensor=V)"}
    assert len(rows) == 3 * 2, "once for each context"
    means = rows.groupby("policy")[["keys", "values"]].agg(lambda of: np.mean(np.stack(of)))
    assert 0 < means["keys"]["int8"] < means["keys"]["int2"] < 1
    assert means["keys"]["q4_0(tensor=V)"] == 0
    assert means["values"]["q4_0(tensor=V)"] > 0
    assert {len(layers) for layers in rows["keys"]} == {2}
    divergence = rows.groupby("policy")["kl"].mean()
    assert 0 < divergence["int8"] < divergence["int2"]
