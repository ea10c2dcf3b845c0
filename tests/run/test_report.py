"""What a run says at its end of policies that failed."""

import pytest

from kvbench.execution.report import broken, what_to_do
from leaderboards.aggregate.row import SummaryRow
from leaderboards.aggregate.summary import summarise
from tests.support.records.synthetic_records import realistic_records


def rows_with_failed(policy: str) -> list[SummaryRow]:
    """Rows of two policies and the full cache, of which one policy failed everywhere under another
    name."""

    def failing(one: dict[str, object]) -> dict[str, object]:
        return {**one, "status": "failed", "reason": "no"} if one["policy"] == "snapkv" else one

    rows = summarise(realistic_records(["base"], ["full", "snapkv", "knorm"], change=failing))
    return [
        row.model_copy(update={"policy": policy}) if row.policy == "snapkv" else row for row in rows
    ]


@pytest.mark.parametrize("name", ["snapkv", "snapkv+int4", "adakv_snapkv", "zeros(tensor=K)"])
def test_a_policy_of_kvbench_that_fails_is_not_sent_to_the_doctor(name: str) -> None:
    advice = what_to_do(rows_with_failed(name))
    assert advice.startswith(f"{name} failed everywhere: leave it out")
    assert "doctor" not in advice
    assert "doctor" not in broken(name, f"{name} failed in layer 0", name)


def test_a_press_of_ones_own_that_fails_is() -> None:
    assert "python -m kvbench doctor FILE:PRESS examines it" in what_to_do(
        rows_with_failed("MyPress")
    )
    assert "doctor mine.py:MyPress examines it" in broken(
        "MyPress", "MyPress failed", "mine.py:MyPress"
    )


def test_a_name_of_a_strangers_run_runs_no_code() -> None:
    """A record may name a file; its name is read by its parts, and nothing is looked for."""
    assert "doctor" in what_to_do(rows_with_failed("/nowhere/evil.py:Press"))
