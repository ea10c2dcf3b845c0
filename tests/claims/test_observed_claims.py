"""Claims R5 and R6, of attention and routes whose truth is known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame

from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.declaration import BESIDE, NoStatistic, Statistic
from leaderboards.claims.registry import claims
from leaderboards.claims.texts.routing import OBSERVED
from leaderboards.claims.verdict import judge
from tests.support.records.claim_statistics import measured, value
from tests.support.records.routing_tables import attention, records, routes
from tests.support.wording import assert_says


def observed_evidence(**tables: DataFrame) -> Evidence:
    """Six contexts with two questions each; ``tables`` take the place of those that are made by
    default."""
    return Evidence(records(), 0, {"attention": attention(), "routes": routes(), **tables})


def of_policy(policy: str) -> Evidence:
    whole = observed_evidence()
    frames = {
        name: table[table["policy"].isin(["full", policy])] for name, table in whole.tables.items()
    }
    return replace(
        whole, records=whole.records[whole.records["policy"].isin(["full", policy])], tables=frames
    )


def looking_at(table: DataFrame, top: list[int], **where: Any) -> DataFrame:
    """Has all heads of some answers look at given tokens."""
    chosen = np.logical_and.reduce([table[name] == wanted for name, wanted in where.items()])
    return table.assign(
        top=[top if one else before for before, one in zip(table["top"], chosen, strict=True)]
    )


def test_failures_whose_heads_look_at_one_token_are_rigid() -> None:
    """snapkv has half of its answers at 0.5 and none at 0.9, where heads of layer 1 now look at one
    token too."""
    rigid = looking_at(attention(), [3, 3], policy="snapkv", level=0.9)
    found = measured("R5", {OBSERVED.name: observed_evidence(attention=rigid)})
    assert [value(one) for one in found.values()] == pytest.approx([0.25, 0.25])
    first = next(iter(found.values()))
    assert isinstance(first, Statistic)
    assert first.note == "6 pairs"
    assert {
        one.verdict
        for one in judge([claims()["R5"]], {OBSERVED.name: observed_evidence(attention=rigid)})
    } == {"holds"}


def test_without_pairs_there_is_nothing_to_say() -> None:
    found = measured("R5", {OBSERVED.name: of_policy("knorm")})
    assert all(isinstance(one, NoStatistic) for one in found.values())


def test_signs_of_the_slope_that_differ_are_a_product_below_0() -> None:
    """Heads agree in layer 0 and not in layer 1; in the other model it is the reverse."""
    reverse = looking_at(looking_at(attention(), [3, 7], layer=0), [3, 3], layer=1)
    other = {OBSERVED.name + BESIDE: observed_evidence(attention=reverse)}
    assert value(
        measured("R6", {OBSERVED.name: observed_evidence(), **other})[""]
    ) == pytest.approx(-0.25)
    (judged,) = judge([claims()["R6"]], {OBSERVED.name: observed_evidence(), **other})
    assert judged.verdict == "holds"
    assert_says(judged.why, "slope 0.50", "-0.50")
    same = {OBSERVED.name + BESIDE: observed_evidence()}
    assert [
        one.verdict for one in judge([claims()["R6"]], {OBSERVED.name: observed_evidence(), **same})
    ] == ["does not hold"]


def test_one_architecture_decides_nothing() -> None:
    (judged,) = judge([claims()["R6"]], {OBSERVED.name: observed_evidence()})
    assert (judged.verdict, "--beside" in judged.why) == ("undecided", True)


def test_what_was_not_observed_is_said() -> None:
    bare = Evidence(records())
    assert "no table routes" in judge([claims()["R5"]], {OBSERVED.name: bare})[0].why
