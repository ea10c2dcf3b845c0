"""Rigid answers by hand: wrong, with their tokens left, and heads that agree more than in right
answers."""

from typing import Any

import numpy as np
import pytest
from pandas import DataFrame

from leaderboards.statistics.columns import with_levels
from leaderboards.studies.routing.rigidity import RIGID, two_modes, with_rigidity
from leaderboards.studies.routing.routes import CELL
from leaderboards.studies.routing.study import STUDY
from policies.declaration.levels import Level
from tests.support.records.routing_tables import base_cell, routing_input

HEADS = 4


def answer_and_attention(
    question: int, policy: str, distinct: tuple[int, int] | None, **values: Any
) -> tuple[dict[str, Any], Any]:
    """A joined answer, and its attention: how many tokens the heads of each of two layers look
    at."""
    cell = base_cell(question, policy)
    cell["repeat"] = 0
    rows = []
    for layer, count in enumerate(distinct or ()):
        top = [min(head, count - 1) for head in range(HEADS)]
        rows += [
            {**cell, "step": step, "layer": layer, "top": top if step else [0] * HEADS}
            for step in (0, 1)
        ]
    known = {
        "right": False,
        "right_with_full": True,
        "ger": 0.0,
        "context": f"base/{question}",
        "erased": False,
    }
    return {**cell, **known, **values}, rows


ANSWERS = [
    # Ten right answers of the full cache: one has a consensus of 2/4, nine of 3/4. The tenth
    # percentile is 0.725.
    *(
        answer_and_attention(number, "full", (2, 2) if number == 0 else (3, 3), right=True)
        for number in range(10)
    ),
    answer_and_attention(0, "knorm", (1, 2)),  # rigid: (1 + 2) / 2 / 4 is 0.375
    answer_and_attention(1, "knorm", (3, 3)),  # heads look at as many tokens as ever
    answer_and_attention(2, "knorm", (1, 1), right=True),
    answer_and_attention(3, "knorm", (1, 1), ger=0.5),  # half of its tokens are gone
    answer_and_attention(4, "knorm", (1, 1), ger=1.0, erased=True),
    answer_and_attention(5, "knorm", None),  # an empty answer has no token at which heads look
    answer_and_attention(6, "knorm", (2, 3), ger=0.25),  # rigid: 0.625
    answer_and_attention(7, "knorm", (3, 4), right=True),
]


def judge_rigidity() -> DataFrame:
    joined, attention = zip(*ANSWERS, strict=True)
    rows = [row for of_answer in attention for row in of_answer]
    return with_rigidity(DataFrame(joined), DataFrame(rows), CELL)


def test_rule_by_hand() -> None:
    found = judge_rigidity().set_index("policy").loc["knorm"]
    assert found["rigid"].tolist() == [True, False, False, False, False, False, True, False]
    assert found["heads_agree"].tolist() == [True, False, True, True, True, False, True, False]
    assert np.isnan(found["consensus"].iloc[5])


def test_what_the_full_cache_has_wrong_is_not_rigid() -> None:
    unknown = (
        judge_rigidity()
        .drop(columns=["consensus", "heads_agree", "rigid"])
        .assign(right_with_full=False)
    )
    rows = [row for _, of_answer in ANSWERS for row in of_answer]
    assert not with_rigidity(unknown, DataFrame(rows), CELL)["rigid"].any()


def test_shares_stand_beside_erasure_and_right_answers() -> None:
    found = {(one.policy, one.level): one for one in two_modes(with_levels(judge_rigidity()))}
    one = found["knorm", Level("ratio", 0.5)]
    assert [one.erased.mean, one.rigid.mean] == pytest.approx([1 / 8, 2 / 8])
    assert one.heads_agree_if_right is not None
    assert one.heads_agree_if_right.mean == pytest.approx(1 / 2)


def test_classes_of_the_download_are_all_answers_and_rigidity_enters_no_sum() -> None:
    sheet = next(one for one in STUDY.find(routing_input()).sheets if one.name == "routing-classes")
    table = DataFrame(sheet.rows, columns=sheet.columns)
    cell = ["task", "policy", "level_kind", "level"]
    sums = table[table["kind"] == "class"].groupby(cell)["share"].sum()
    assert sums.tolist() == pytest.approx([1.0] * len(sums))
    assert set(table.loc[table["kind"] == "mode", "outcome"]) >= {RIGID}
