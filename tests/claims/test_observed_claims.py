"""Claims R4 to R6, of attention, hidden states and routes whose truth is known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame

from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.declaration import BESIDE, NoStatistic, Statistic
from leaderboards.claims.registry import claims
from leaderboards.claims.texts.heads import OBSERVED, first_loss
from leaderboards.claims.verdict import judge
from tests.support.records.routing_tables import attention, records, routes, states


def evidence(**tables: DataFrame) -> Evidence:
    """Six contexts with two questions each; ``tables`` take the place of those that are made by default."""
    return Evidence(records(), 0, {"attention": attention(), "routes": routes(), "states": states(), **tables})


def of_policy(policy: str) -> Evidence:
    whole = evidence()
    frames = {name: table[table["policy"].isin(["full", policy])] for name, table in whole.tables.items()}
    return replace(whole, records=whole.records[whole.records["policy"].isin(["full", policy])], tables=frames)


def measured(identifier: str, given: Evidence, **more: Evidence) -> dict[str, Statistic | NoStatistic]:
    found = claims()[identifier].measure({OBSERVED.name: given, **more})
    assert isinstance(found, list)
    return {one.part: one for one in found}


def value(found: Statistic | NoStatistic) -> float:
    assert isinstance(found, Statistic), found
    return float(found.values[0])


def looking_at(table: DataFrame, top: list[int], **where: Any) -> DataFrame:
    """Has all heads of some answers look at given tokens."""
    chosen = np.logical_and.reduce([table[name] == wanted for name, wanted in where.items()])
    return table.assign(top=[top if one else before for before, one in zip(table["top"], chosen, strict=True)])


# --- R4


def test_values_that_are_kept_while_answers_are_lost_are_no_early_degradation() -> None:
    """F1 falls from 11/12 to 1/2 at 0.5: a tenth of it is lost at 0.11. All values are there up to 0.9."""
    found = measured("R4", of_policy("snapkv"))["first letter, in the values left of the answer"]
    lost = 0.5 * (0.1 * 11 / 12) / (11 / 12 - 1 / 2)
    assert value(found) == pytest.approx(lost - 0.9)
    assert isinstance(found, Statistic)
    assert found.n == 6
    assert found.note == "a tenth is lost at 0.90 by the probe, at 0.11 by F1"


def test_a_probe_that_finds_nothing_has_nothing_to_lose() -> None:
    noise = states().assign(state=np.zeros(4, dtype="<f2").tobytes())
    found = measured("R4", evidence(states=noise))["first letter, in the question’s last token"]
    assert isinstance(found, NoStatistic)
    assert "there is nothing to lose" in found.reason


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([0.8, 0.76, 0.4], 0.5 + 0.4 / 9), ([0.8, 0.6, 0.9], 0.2), ([0.8, 0.72, 0.1], 0.5), ([0.5, 0.5, 0.46], 0.9)],
)
def test_a_tenth_is_lost_on_the_line_between_two_ratios_and_at_the_last_where_it_never_is(
    scores: list[float], expected: float
) -> None:
    (found,) = first_loss([0.0, 0.5, 0.9], np.array([scores]))
    assert found == pytest.approx(expected)


# --- R5


def test_failures_whose_heads_look_at_one_token_are_rigid() -> None:
    """snapkv has half of its answers at 0.5 and none at 0.9, where heads of layer 1 now look at one token too."""
    rigid = looking_at(attention(), [3, 3], policy="snapkv", level=0.9)
    found = measured("R5", evidence(attention=rigid))
    assert [value(one) for one in found.values()] == pytest.approx([0.25, 0.25])
    first = next(iter(found.values()))
    assert isinstance(first, Statistic)
    # Of 11 questions, snapkv loses 5 at 0.5 and 11 at 0.9, knorm 11 at either; of knorm question 2 is reached.
    assert (
        first.note
        == "6 pairs; of 38 failures 53% erased, 42% unreachable, 5% reached and unused, by routes of at least 0.3"
    )
    assert {one.verdict for one in judge([claims()["R5"]], {OBSERVED.name: evidence(attention=rigid)})} == {"holds"}


def test_without_pairs_there_is_nothing_to_say() -> None:
    found = measured("R5", of_policy("knorm"))
    assert all(isinstance(one, NoStatistic) for one in found.values())


# --- R6


def test_signs_of_the_slope_that_differ_are_a_product_below_0() -> None:
    """Heads agree in layer 0 and not in layer 1; in the other model it is the reverse."""
    reverse = looking_at(looking_at(attention(), [3, 7], layer=0), [3, 3], layer=1)
    other = {OBSERVED.name + BESIDE: evidence(attention=reverse)}
    assert value(measured("R6", evidence(), **other)[""]) == pytest.approx(-0.25)
    (judged,) = judge([claims()["R6"]], {OBSERVED.name: evidence(), **other})
    assert (judged.verdict, judged.why) == ("holds", "slope 0.50 of this model, -0.50 of the one beside it")
    same = {OBSERVED.name + BESIDE: evidence()}
    assert [one.verdict for one in judge([claims()["R6"]], {OBSERVED.name: evidence(), **same})] == ["does not hold"]


def test_one_architecture_decides_nothing() -> None:
    (judged,) = judge([claims()["R6"]], {OBSERVED.name: evidence()})
    assert (judged.verdict, "--beside" in judged.why) == ("undecided", True)


def test_what_was_not_observed_is_said() -> None:
    bare = Evidence(records())
    found = [judge([claims()[name]], {OBSERVED.name: bare})[0] for name in ("R4", "R5")]
    assert [one.why for one in found] == [
        f"nothing was observed: there is no table {name}" for name in ("states", "routes")
    ]
