"""Classes of failures from stored routes: each answer by hand, and together all answers."""

from typing import Any

import pytest
from pandas import DataFrame

from leaderboards.routing.reach import EPSILONS
from leaderboards.studies.routing.routes import (
    FailureClass,
    classify,
    shares,
    telling_epsilon,
    with_routes,
)
from tests.support.records.routing_tables import base_cell
from tests.support.records.synthetic_records import frame, record

CHANCE = [1.0, 1.0, 0.9, 0.5, 0.2, 0.05, 0.0, 0.0]  # by EPSILONS


def route_and_record(
    question: int, policy: str, **values: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A route and the columns of its record."""
    cell = base_cell(question, policy)
    of_route = {
        "unobserved": None,
        "answer_alive": True,
        "answer_width": 0.6,
        "said_width": None,
        "chance": CHANCE,
    }
    route = {
        **cell,
        "repeat": 0,
        **of_route,
        **{name: values.pop(name) for name in set(values) & set(of_route)},
    }
    given = {"right": False, "answered": True, "hallucination_kind": "fabricated", **values}
    return route, {**cell, "draw_id": f"context {question % 2}", "answer_tokens": 3, **given}


ANSWERS = [
    *(
        route_and_record(number, "full", right=number != 1, hallucination_kind=None)
        for number in range(9)
    ),
    route_and_record(0, "knorm", right=True, answer_alive=False, answer_width=0.0),
    route_and_record(1, "knorm"),
    route_and_record(2, "knorm", answer_alive=False, answer_width=0.0),
    route_and_record(3, "knorm", answer_width=0.0),
    route_and_record(4, "knorm", answered=False, hallucination_kind=None),
    route_and_record(5, "knorm", hallucination_kind="confused", said_width=0.2),
    route_and_record(
        6, "knorm", answer_alive=False
    ),  # its route leads through a token that has read it
    route_and_record(
        7,
        "knorm",
        unobserved="it failed",
        answer_alive=None,
        answer_width=None,
        chance=None,
        right=None,
    ),
    route_and_record(8, "knorm", hallucination_kind="confused", said_width=0.0),
]
LOOSE = [
    *(
        FailureClass.RIGHT,
        FailureClass.BEYOND_MODEL,
        FailureClass.ERASED,
        FailureClass.UNREACHABLE,
        FailureClass.SILENT,
        FailureClass.CONFUSED,
    ),
    *(FailureClass.UNUSED, FailureClass.NOT_OBSERVED, FailureClass.UNUSED),
]


def joined() -> DataFrame:
    routes, records = zip(*ANSWERS, strict=True)
    unanswerable = route_and_record(9, "knorm", answer_tokens=0)
    everything = [*records, unanswerable[1]]
    return with_routes(
        DataFrame([*routes, unanswerable[0]]), frame([record(**one) for one in everything])
    )


def of_knorm(found: list[FailureClass]) -> list[FailureClass]:
    return [one for one, policy in zip(found, joined()["policy"], strict=True) if policy == "knorm"]


def test_each_answer_is_in_one_class_by_hand() -> None:
    assert of_knorm(classify(joined())) == LOOSE
    strict = of_knorm(classify(joined(), 0.7))
    assert strict[4:] == [FailureClass.UNREACHABLE] * 2 + [
        FailureClass.ERASED,
        FailureClass.NOT_OBSERVED,
        FailureClass.UNREACHABLE,
    ]
    # What it says is not reached so widely.
    assert of_knorm(classify(joined(), 0.3))[5] is FailureClass.UNUSED


def test_the_shares_of_all_classes_are_one() -> None:
    found = shares(LOOSE, [str(number % 3) for number in range(9)])
    assert list(found) == list(FailureClass)
    assert sum(one.mean for one in found.values()) == pytest.approx(1)
    assert found[FailureClass.UNUSED].mean == pytest.approx(2 / 9)
    low, high = found[FailureClass.UNUSED].interval or (0, 0)
    assert low < 2 / 9 < high


def test_the_telling_epsilon_is_where_few_tokens_reach_the_answer_of_the_full_cache() -> None:
    assert EPSILONS[5] == 0.5
    assert telling_epsilon(joined()) == 0.5
    nothing = joined()
    nothing["chance"] = [[1.0] * len(EPSILONS)] * len(nothing)
    assert telling_epsilon(nothing) == EPSILONS[-1]
