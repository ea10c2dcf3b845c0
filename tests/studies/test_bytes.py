"""The page on equal bytes says what is true of records whose truth is known."""

import numpy as np
import pytest
from pandas import DataFrame, concat

from leaderboards.studies.bytes.study import BOTH, EVICTION, QUANTISATION, STUDY, FrontierPoint, family_of, front, near
from leaderboards.studies.declaration import StudyInput, StudySection, build_study
from tests.support.records.damaged_records import treated_records

WHOLE = 1000


def point(held: float, score: float) -> FrontierPoint:
    return FrontierPoint("one", EVICTION, 0.5, held, np.array([score]))


@pytest.fixture(scope="module")
def parts() -> dict[str, StudySection]:
    """int4 keeps all in 30 %, snapkv three of four answers in 50 % and one in 25 %, both together all in 26 %; whole
    pages cost snapkv one answer more."""
    at_ratios = treated_records(
        {
            "snapkv": lambda ratio, question: question < (3 if ratio < 0.6 else 1),
            "snapkv+pages16": lambda ratio, question: question < (2 if ratio < 0.6 else 1),
        },
        (0.5, 0.75),
        kind="ratio",
    )
    both = treated_records({"snapkv+int4": lambda ratio, question: True}, (0.2,), kind="ratio")
    alone = treated_records({"int4": lambda ratio, question: True}, (0.0,), kind="ratio")
    records: DataFrame = concat([at_ratios, both, alone]).drop_duplicates(["policy", "level", "question_id"])
    held = {"full": 1.0, "int4": 0.3, "snapkv+int4": 0.26}
    records["kv_bytes"] = [
        round(WHOLE * held.get(policy, 1 - level))
        for policy, level in zip(records["policy"], records["level"], strict=True)
    ]
    given = StudyInput("toy", records)
    assert STUDY.takes(given)
    return {part.identifier: part for part in build_study(STUDY, given)[1].parts}


def test_the_front_leaves_out_what_others_exceed_in_fewer_bytes(parts: dict[str, StudySection]) -> None:
    (table,) = parts["front"].listings
    assert table.rows == (
        ("snapkv at 0.75", "eviction", "25.0", "25 [25 to 25]"),
        ("snapkv+int4 at 0.2", "both", "26.0", "100 [100 to 100]"),
    )


def test_the_best_of_each_way_is_set_against_eviction_at_equal_bytes(parts: dict[str, StudySection]) -> None:
    (table,) = parts["targets"].listings
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["25 %, eviction"] == ("snapkv at 0.75", "25.0", "25 [25 to 25]", "–")
    assert rows["25 %, quantisation"] == ("int4", "30.0", "100 [100 to 100]", "+75 [+75 to +75]")
    assert rows["25 %, both"] == ("snapkv+int4 at 0.2", "26.0", "100 [100 to 100]", "+75 [+75 to +75]")
    assert rows["6.25 %, both"][0] == "none is near"
    assert str(parts["targets"].text).startswith(
        "base: at 25 % of the bytes quantisation alone scores most, +75 [+75 to +75] points against eviction alone. Of "
    )


def test_what_an_engine_can_free_is_set_against_the_plain_policy(parts: dict[str, StudySection]) -> None:
    (table,) = parts["deployed"].listings
    assert table.rows == (
        ("snapkv", "75 [75 to 75]", "25 [25 to 25]"),
        ("snapkv+pages16", "-25 [-25 to -25]", "+0 [+0 to +0]"),
    )


def test_points_are_on_the_front_that_nothing_exceeds() -> None:
    points = [point(50, 60), point(25, 60), point(12, 20), point(12, 30), point(100, 90)]
    assert [(one.held, one.score[0]) for one in front(points)] == [(12, 30), (25, 60), (100, 90)]
    assert [one.held for one in near(points, 12.5)] == [12, 12]
    assert not near(points, 6.25)


def test_policies_have_a_family_by_what_they_do() -> None:
    names = (
        "snapkv",
        "int4(v_bits=2)",
        "knorm+int8",
        "full",
        "random",
        "zeros",
        "snapkv+pages16",
        "snapkv+zeros(rate=1)",
    )
    found = [family_of(name) for name in names]
    assert found == [EVICTION, QUANTISATION, BOTH, "", "", "", "", ""]
