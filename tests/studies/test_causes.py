"""What rows cause, computed from records whose truth is known."""

from collections.abc import Mapping
from typing import Any

import pytest
from pandas import DataFrame, concat

from leaderboards.studies.declaration import StudyInput
from leaderboards.studies.routing.content import (
    Repair,
    build_causes,
    cliff_levels,
    removals,
    repairs,
    with_outcomes,
)
from policies import Level
from tests.support.records.synthetic_records import frame, record

CONTEXTS, QUESTIONS = 6, 2
AT = Level("ratio", 0.9)
# F1 once the evidence is back, and once as many random rows are: of answers that have lost all of
# 100.
TRUTHS: Mapping[str, tuple[float, float, float]] = {  # the last: what the evidence alone explains
    "evicts the evidence": (100.0, 0.0, 1.0),
    "any rows help": (100.0, 100.0, 0.0),
    "half by the evidence": (75.0, 25.0, 0.5),
    "nothing helps": (0.0, 0.0, 0.0),
    "random rows help more": (25.0, 50.0, -0.25),
}


def cell(policy: str, context: int, question: int, level: float) -> dict[str, Any]:
    name = f"{context}/{question}"
    return {
        "task": "base",
        "question_id": name,
        "policy": policy,
        "level_kind": "ratio",
        "level": level,
        "repeat": 0,
    }


def record_of(
    policy: str, context: int, question: int, level: float, f1: float, nats: float
) -> dict[str, Any]:
    of_context = {
        "example_id": f"base-{context}",
        "draw_id": f"base-{context}",
        "example_index": context,
    }
    scores = {
        "f1": f1,
        "right": f1 >= 50,
        "gold_nll": nats,
        "ratio": level,
        "realised_ratio": level,
    }
    return record(**cell(policy, context, question, level), **of_context, **scores)


def tried(
    at: dict[str, Any], target: str, draw: int, f1: float, nats: float, **more: Any
) -> dict[str, Any]:
    action = "remove" if at["policy"] == "full" else "restore"
    row = {**at, "action": action, "target": target, "draw": draw, "rows": 8}
    return {**row, "f1": f1, "right": f1 >= 50, "gold_nll": nats, **more}


def full_and(*others: dict[str, Any]) -> DataFrame:
    full = [
        record_of("full", c, q, 0.0, 100.0, 0.5) for c in range(CONTEXTS) for q in range(QUESTIONS)
    ]
    return frame([*full, *others])


def known() -> tuple[DataFrame, DataFrame]:
    records, rows = [], []
    for policy, (evidence, random, _) in TRUTHS.items():
        for context in range(CONTEXTS):
            for question in range(QUESTIONS):
                at = cell(policy, context, question, AT.value)
                records.append(record_of(policy, context, question, AT.value, 0.0, 10.5))
                rows.append(tried(at, "evidence", 0, evidence, 10.5 - evidence / 10))
                rows += [tried(at, "evidence", draw, random, 10.5 - random / 10) for draw in (1, 2)]
                rows.append(tried(at, "answer", 0, evidence / 2, 10.5 - evidence / 20))
    return DataFrame(rows), full_and(*records)


def explained_shares(outcomes: DataFrame, levels: Mapping[str, Level]) -> dict[str, Repair]:
    """Returns by policy the repair by the evidence rows."""
    return {one.policy: one for one in repairs(outcomes, levels) if one.target == "evidence"}


@pytest.mark.parametrize("policy", TRUTHS)
def test_what_the_evidence_alone_explains_is_what_was_put_in(policy: str) -> None:
    table, records = known()
    evidence, random, alone = TRUTHS[policy]
    share = explained_shares(with_outcomes(table, records), dict.fromkeys(TRUTHS, AT))[policy]
    assert share.alone is not None
    assert share.random is not None
    assert share.nats is not None
    assert share.f1.mean == pytest.approx(evidence / 100)
    assert share.random.mean == pytest.approx(random / 100)
    assert share.nats.mean == pytest.approx(evidence / 100)
    assert share.alone.mean == pytest.approx(alone)
    assert share.alone.interval == pytest.approx((alone, alone))  # all contexts are alike
    assert share.answers == CONTEXTS * QUESTIONS


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ({0.3: 0, 0.5: 1, 0.9: 2}, 0.5),  # 1 of 2 over 0.2, then 1 of 2 over 0.4
        ({0.3: 0, 0.5: 0, 0.9: 2}, 0.9),
        ({0.3: 2, 0.5: 2, 0.9: 2}, 0.3),
        ({0.3: 0, 0.5: 0, 0.9: 0}, None),
    ],
    ids=["steepest first", "steepest last", "from the full cache on", "nothing is lost"],
)
def test_the_cliff_is_where_lost_answers_rise_fastest(
    lost: dict[float, int], expected: float | None
) -> None:
    records = [
        record_of("a", context, question, level, 0.0 if question < count else 100.0, 1.0)
        for level, count in lost.items()
        for context in range(CONTEXTS)
        for question in range(QUESTIONS)
    ]
    assert cliff_levels(full_and(*records)) == (
        {} if expected is None else {"a": Level("ratio", expected)}
    )


def removed(nats: float, random: float, rows: int = 8) -> DataFrame:
    """The answer's rows cost ``nats`` and more, by context; random rows cost ``random``, the mean
    of two draws."""
    table = [
        tried(
            cell("full", c, q, 0.0),
            "answer",
            drawn,
            20.0 if not drawn else 100.0,
            0.5 + cost,
            rows=taken,
        )
        for c in range(CONTEXTS)
        for q in range(QUESTIONS)
        for drawn, cost, taken in ((0, nats + c / 10, 8), (1, 2 * random, rows), (2, 0.0, rows))
    ]
    return with_outcomes(DataFrame(table), full_and())


def test_removal_by_hand() -> None:
    (removal,) = removals(removed(5.0, 0.1))
    assert removal.random_nats is not None
    assert removal.nats.mean == pytest.approx(5.25)
    assert removal.random_nats.mean == pytest.approx(0.1)
    assert removal.f1.mean == pytest.approx(80)
    assert (removal.rows, removal.answers) == (8, CONTEXTS * QUESTIONS)
    (alone,) = removals(removed(5.0, 0.0, rows=2))
    assert alone.random_nats is None, "without as many other rows nothing is compared"


def causes_input() -> StudyInput:
    table, records = known()
    removal = [
        tried(
            cell("full", c, q, 0.0),
            "answer",
            draw,
            20.0 if not draw else 100.0,
            5.5 if not draw else 0.5,
        )
        for c in range(CONTEXTS)
        for q in range(QUESTIONS)
        for draw in (0, 1)
    ]
    tables = {"interventions": concat([table, DataFrame(removal)])}
    return StudyInput("toy", records, [{"status": "complete"}], tables)


def test_the_page_tells_what_was_put_in() -> None:
    causes = build_causes(causes_input())
    parts = {part.identifier: part for part in causes.parts}
    assert {*parts} == {"causes", "removal"}
    (listing,) = parts["causes"].listings
    # Answer, subject, bridge, evidence, random.
    repaired = (
        "50 [50 to 50]",
        "–",
        "–",
        "100 [100 to 100]",
        "0 [0 to 0]",
    )
    assert listing.rows[0] == (
        "evicts the evidence",
        "ratio 0.9",
        "12",
        "100 [100 to 100]",
        *repaired,
    )
    assert [row[0] for row in listing.rows] == sorted(TRUTHS, key=lambda policy: -TRUTHS[policy][2])
    (removal,) = parts["removal"].listings
    assert [row[0] for row in removal.rows] == ["base"]
    assert {sheet.name for sheet in causes.sheets} == {"routing-repairs", "routing-removals"}
