"""The study of routes: what reaches an answer, what heads do and what probes find, by hand; and its
page."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from leaderboards.rendering.frames import PolicyLine
from leaderboards.routing.reach import EPSILON
from leaderboards.studies.declaration import build_study, list_studies
from leaderboards.studies.routing import heads, probes
from leaderboards.studies.routing.probes import probe
from leaderboards.studies.routing.routes import reach_curves, telling_epsilon, with_routes
from leaderboards.studies.routing.study import STUDY
from policies.declaration.levels import UNTREATED, Level
from tests.support.browsing.pages import Elements
from tests.support.records.routing_tables import attention, records, routes, routing_input, states
from tests.support.wording import assert_says

HALF, MOST = Level("ratio", 0.5), Level("ratio", 0.9)


def test_reach_is_counted_where_the_full_cache_is_right() -> None:
    joined = with_routes(routes(), records())
    assert telling_epsilon(joined) == 0.3
    curves = {
        (one.policy, one.level, epsilon): one
        for epsilon in (EPSILON, 0.3, 0.7, 0.9)
        for one in reach_curves(joined, epsilon)
    }
    full = curves["full", UNTREATED, 0.7]
    assert (full.reached.mean, full.reached.n, full.right.mean) == (1.0, 11, 1.0)
    # Of two tokens, each reached in a tenth of the cases.
    assert full.chance == pytest.approx(1 - 0.9**2)
    assert curves["full", UNTREATED, EPSILON].chance == pytest.approx(1 - 0.5**2)
    assert curves["full", UNTREATED, 0.9].reached.mean == 0.0
    assert full.width == pytest.approx(0.8)
    # 0, 2, 4, ..., 10 of all but 1.
    assert curves["snapkv", HALF, 0.3].reached.mean == pytest.approx(6 / 11)
    gone = curves["knorm", HALF, 0.3]
    assert [gone.reached.mean, gone.relayed.mean] == pytest.approx([1 / 11, 1 / 11])
    assert curves["knorm", HALF, 0.7].relayed.mean == 0.0


def test_agreement_of_heads_by_hand() -> None:
    found = {
        (one.policy, one.level): one
        for one in heads.agreements(heads.with_questions(attention(), records()))
    }
    one = found["snapkv", HALF]
    assert one.by_layer["consensus"].tolist() == [0.5, 1.0]
    # Half of 40 tokens are left: they look at one with 1 / 20.
    of_two_heads = (1 / 20 * 1 + 19 / 20 * 2) / 2
    assert one.by_layer["consensus_by_chance"].tolist() == [pytest.approx(of_two_heads)] * 2
    assert one.by_layer["agreement"].tolist() == [1.0, 0.5]
    assert one.slope is not None
    assert one.slope.mean == 0.5


def test_only_depths_with_something_to_lose_are_drawn() -> None:
    """Behind the first layer a probe finds nothing with the full cache either."""
    section = probes.build_content(routing_input()).parts[1]
    assert [style.policy for style in section.styles] == ["last", "right"]
    assert "middle" in section.details[0].columns


def test_consensus_by_depth_is_drawn_under_compression_and_beside_another_model() -> None:
    """The other model has one layer more, whose heads look at two tokens as well: both end at a
    depth of 1."""
    given = routing_input()
    third = attention()
    third = third[third["layer"] == 1].assign(layer=2)
    deeper = pd.concat([attention(), third])
    other = replace(given, model="other", tables={"attention": deeper}, number=2)
    content = heads.build_content(replace(given, beside=[other]))
    parts = {part.identifier: part for part in content.parts}
    snapkv = next(one for one in parts["consensus"].pictures if one.title == "snapkv")
    lines = [mark for mark in snapkv.drawing.marks if isinstance(mark, PolicyLine)]
    assert [line.style.policy for line in lines] == ["full cache", "0.5", "0.9"]
    assert [y for _, y in lines[1].places] == [0.5, 1.0]
    both = next(one for one in parts["consensus-beside-1"].pictures if one.title == "snapkv at 0.5")
    here, there = (mark for mark in both.drawing.marks if isinstance(mark, PolicyLine))
    assert (here.style.policy, there.style.policy) == ("toy", "other")
    assert here.places == ((0.0, 0.5), (1.0, 1.0))
    assert there.places == ((0.0, 0.5), (0.5, 1.0), (1.0, 1.0))
    assert "consensus-beside-1" not in [
        part.identifier for part in heads.build_content(other).parts
    ]


def test_probes_find_what_states_hold_and_nothing_else() -> None:
    labelled = probes.with_labels(states(), records())
    by_layer = {(one.label, one.layer): one for one in probes.by_layer(labelled)}
    assert by_layer[probes.LETTER, 2].macro_f1 > 0.9
    assert by_layer[probes.LETTER, 2].macro_f1 - by_layer[probes.LETTER, 2].control > 0.3
    assert by_layer[probes.TYPE, 0].macro_f1 < by_layer[probes.TYPE, 2].macro_f1
    by_level = {
        (one.label, one.policy, one.level, one.layer): one for one in probes.by_level(labelled)
    }
    assert by_level[probes.LETTER, "full", UNTREATED, 2].macro_f1 > 0.9
    assert by_level[probes.LETTER, "knorm", MOST, 2].macro_f1 < 0.8


def test_probes_of_three_depths_stand_beside_right_answers() -> None:
    """Of two layers there are two depths: the state behind the first holds nothing, behind the last
    what is kept."""
    labelled = probes.with_labels(states(), records())
    cells = list(probes.by_level(labelled))
    rows = {
        (row["label"], row["policy"], row["level"]): row
        for row in probes.beside_answers(labelled, cells, probes.depths(2))
    }
    full, half = (
        rows[probes.LETTER, policy, level]
        for policy, level in (("full", UNTREATED), ("snapkv", HALF))
    )
    assert set(full) >= {"middle", "last"}
    assert "early" not in full
    assert full["last"] > 0.9 > full["middle"]
    assert full["right"].mean == pytest.approx(11 / 12)
    assert half["right"].mean == half["f1"] == pytest.approx(6 / 12)
    assert half["last"] < full["last"]


def test_its_page_says_first_whether_ger_explains_the_errors_and_says_what_was_observed() -> None:
    given = replace(
        routing_input(), runs=[{"status": "complete", "identity": {"scope": "context"}}]
    )
    assert "routing" in [study.name for study in list_studies(given)]
    page, content = build_study(STUDY, given)
    assert [part.identifier for part in content.parts] == [
        *(
            "lost",
            "classes-base",
            "rigidity-base",
            "reach-base",
            "agreement",
            "consensus",
            "probes",
            "depths",
        )
    ]
    assert [picture.title for picture in content.parts[1].pictures] == ["snapkv", "knorm"]
    # Of the 11 questions that the full cache has right, snapkv loses 5 at 0.5 and all at 0.9. All
    # records have GER 0.
    assert_says(
        content.parts[0].text,
        "16 lost answers of snapkv",
        "0 have GER 1",
        "16 are unreachable",
        "explains none",
    )
    assert dict(content.facts) == {
        "Contexts observed": "6 of 6 of base",
        "Not observed": "nothing",
        "Least attention in each step": "0.3",
    }
    rows = {(row[0], row[1]): row for row in content.parts[1].details[0].rows}
    columns = content.parts[1].details[0].columns
    half = dict(zip(columns, rows["snapkv", "0.5"], strict=True))
    assert half["right"].startswith("50")
    assert half["wrong with the full cache too"].startswith("8")  # one of 12
    assert half["unreachable"].startswith("42")
    gone = dict(zip(columns, rows["knorm", "0.9"], strict=True))
    # What is reached is said nothing of.
    assert (gone["erased"].split()[0], gone["silent"].split()[0]) == (
        "83",
        "8",
    )
    assert len(Elements(page).headings) > 20
    assert {sheet.name for sheet in content.sheets} >= {
        "routing-classes",
        "routing-reach",
        "routing-probes",
    }


CONTEXTS = [f"context {number // 4}" for number in range(120)]


def planted(strength: float, seed: int = 0) -> tuple[npt.NDArray[np.float64], list[str]]:
    """Features of three classes of answers; ``strength``: how far apart their means are."""
    generator = np.random.default_rng(seed)
    numbers = generator.integers(0, 3, len(CONTEXTS))
    features = generator.normal(size=(len(CONTEXTS), 12))
    features[np.arange(len(numbers)), numbers] += strength
    return features, [f"type {number}" for number in numbers]


def test_a_probe_finds_what_is_planted() -> None:
    found, control = probe(*planted(6.0), CONTEXTS)
    assert found > 0.95
    assert control == pytest.approx(1 / 3, abs=0.15)


def test_a_probe_finds_nothing_in_noise() -> None:
    scores = [probe(*planted(0.0, seed), CONTEXTS) for seed in range(3)]
    assert np.mean(scores, axis=0) == pytest.approx(1 / 3, abs=0.1)


def test_macro_f1_by_hand() -> None:
    """Features of one class alone: all answers of "a" and one in three of "b" look alike, so "b" is
    never guessed."""
    labels = ["a", "a", "b"] * 4
    contexts = [f"context {number // 3}" for number in range(12)]
    found, _ = probe(np.ones((12, 2)), labels, contexts)
    assert found == pytest.approx((2 * 8 / (2 * 8 + 4) + 0) / 2)  # F1 of "a" is 0.8


def test_a_probe_that_saw_one_class_says_that_class() -> None:
    """A run of two contexts ended without a page, as nothing can be fitted to answers of one
    class."""
    found, _ = probe(np.ones((6, 2)), ["a"] * 3 + ["b"] * 3, ["one"] * 3 + ["two"] * 3)
    assert found == 0.0
