"""The identity audit: what it finds, and what it leaves alone."""

import pandas as pd
import pytest

from leaderboards.aggregate.audit import Unchanged, audit, write_lines
from policies.declaration.levels import Level
from tests.support.wording import assert_says

QUESTIONS = range(4)


def audit_records(**policies: tuple[list[str], list[str] | None]) -> pd.DataFrame:
    """By policy the outputs at ratio 0.5, and what was kept."""
    rows = [
        {
            "task": "base",
            "mode": "agnostic",
            "policy": policy,
            "ratio": 0.0 if policy == "full" else 0.5,
            "level_kind": "ratio",
            "level": 0.0 if policy == "full" else 0.5,
            "repeat": 0,
            "kept_tokens": 50.0,
            "realised_ratio": 0.0 if policy == "full" else 0.5,
            "evidence_tokens": 6,
            "press_arguments": "{}",
            "example_id": f"base/{number // 2}",
            "question_id": f"base/{number // 2}/{number}",
            "status": "ok",
            "output_text": outputs[number],
            "gold_nll": None if number == 3 else float(number),
            "due": False,
            "next_token_accuracy": None,
            "cache_digest": digests[number] if digests else None,
        }
        for policy, (outputs, digests) in policies.items()
        for number in QUESTIONS
    ]
    return pd.DataFrame(rows)


FULL = (["a", "b", "c", "d"], ["all"] * 4)
CHANGED = ["a", "b", "c", "x"]


def test_the_same_kept_tokens_everywhere_are_found_with_both_names() -> None:
    identical, _ = audit(
        audit_records(full=FULL, one=(CHANGED, list("1234")), other=(list("efgh"), list("1234")))
    )
    (line,) = identical
    assert_says(line, "one and other are identical", "ratio 0.5", "all of 4 records")


def test_outputs_that_are_all_those_of_the_full_cache_are_flagged() -> None:
    """At a low ratio many policies change nothing."""
    identical, unchanged = audit(
        audit_records(full=FULL, one=(FULL[0], None), other=(FULL[0], None))
    )
    assert identical == []
    assert [flagged.policy for flagged in unchanged] == ["one", "other"]
    (line,) = write_lines(unchanged)
    assert_says(line, "one, other at ratio 0.5 (4 records) change nothing", "is compressed")


def test_one_line_names_all_that_change_nothing_for_one_reason() -> None:
    found = [
        Unchanged("a", (Level("ratio", 0.5), Level("ratio", 0.9)), 4, 0.5),
        Unchanged("b", (Level("ratio", 0.9),), 4, 0.9),
        Unchanged("c", (Level("ratio", 0.9),), 4, 0.9),
        Unchanged("whole", (Level("ratio", 0.5),), 4, 0.0),
    ]
    compressed, whole = write_lines(found)
    assert compressed.startswith(
        "a at ratio 0.5, 0.9 (4 records); b, c at ratio 0.9 (4 records) change nothing of"
    )
    assert_says(whole, "whole at ratio 0.5 (4 records)", "changes nothing", "at most 10%")


FAULT = {"level_kind": "rate", "ratio": None, "realised_ratio": 0.0}


def at_rates(*rates: float) -> pd.DataFrame:
    """A fault that changes nothing at these rates, as stored."""
    names = {f"zeros {rate}": rate for rate in rates}
    frame = audit_records(full=FULL, **dict.fromkeys(names, (FULL[0], None)))
    for name, rate in names.items():
        frame.loc[frame["policy"] == name, [*FAULT, "level", "policy"]] = [
            *FAULT.values(),
            rate,
            "zeros",
        ]
    return frame


def test_a_fault_is_sound_at_rate_0_and_where_it_changes_likelihoods_alone() -> None:
    assert audit(at_rates(0.0)) == ([], [])
    frame = at_rates(0.0, 0.1, 0.5)
    assert [(one.policy, one.where) for one in audit(frame)[1]] == [("zeros", "rate 0.5")]
    (line,) = write_lines(audit(frame)[1])
    assert_says(line, "zeros at rate 0.5 (4 records)", "exactly as likely")
    frame.loc[frame["level"] == 0.5, "gold_nll"] += 1e-5
    assert audit(frame) == ([], [])


def test_where_nothing_is_written_likelihoods_tell_whether_anything_changed() -> None:
    """Running text has no outputs, and no output is not the same output."""
    nothing = ([""] * 4, None)
    frame = audit_records(full=nothing, one=nothing, other=nothing).assign(next_token_accuracy=0.5)
    frame["gold_nll"] = frame["gold_nll"].fillna(3.0)
    assert [flagged.policy for flagged in audit(frame)[1]] == ["one", "other"]
    frame.loc[frame["policy"] != "full", "gold_nll"] += 0.01
    assert audit(frame) == ([], [])


@pytest.mark.parametrize("declared", [{"one": ("other",)}, {"other": ("one",)}])
def test_what_is_declared_equal_may_be_equal(declared: dict[str, tuple[str, ...]]) -> None:
    frame = audit_records(full=FULL, one=(CHANGED, list("1234")), other=(CHANGED, list("1234")))
    assert audit(frame, declared) == ([], [])


def test_one_page_is_the_same_whatever_chooses_it() -> None:
    frame = audit_records(full=FULL, one=(CHANGED, list("1234")), other=(CHANGED, list("1234")))
    pages = frame.assign(press_arguments='{"by": "mean", "size": 16}')
    assert [found.partition(" are")[0] for found in audit(pages)[0]] == ["one and other"]
    assert audit(pages.assign(kept_tokens=16.0)) == ([], [])
    assert audit(frame.assign(kept_tokens=16.0))[0] != []


def test_an_oracle_may_be_recency_where_it_cannot_keep_all_of_the_evidence() -> None:
    frame = audit_records(
        full=FULL, oracle=(CHANGED, list("1234")), recency=(CHANGED, list("1234"))
    )
    assert [found.partition(" are")[0] for found in audit(frame)[0]] == ["oracle and recency"]
    assert audit(frame.assign(evidence_tokens=51)) == ([], [])
    others = frame.replace({"oracle": "one"}).assign(evidence_tokens=51)
    assert [found.partition(" are")[0] for found in audit(others)[0]] == ["one and recency"]
