"""Heat maps: their cells are the records' own means, and blank ones say why."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread
from pandas import DataFrame

from leaderboards.aggregate.facets import NO_SUCH, Facet, facets
from leaderboards.aggregate.row import GER, HALLUCINATION, RIGHT, SummaryRow
from leaderboards.aggregate.summary import summarise
from leaderboards.figures.heat_drawing import save_map
from leaderboards.figures.heatmaps import MEAN, HeatMap, layer_map, question_map, task_map
from leaderboards.rendering.paper import Paper
from leaderboards.statistics.bootstrap import Blank
from policies import Level
from tests.support.records.synthetic_records import failing, realistic_records, record

KINDS = ("location", "person", "date", "thing")
RATIOS = (0.5, 0.9)
POLICIES = ("full", "random", "snapkv", "knorm")


def varied(one: dict[str, Any]) -> dict[str, Any]:
    kind = KINDS[int(one["question_id"])]
    return one | {"answer_type": kind, "question_type": "part" if kind in ("location", "person") else "standard"}


@pytest.fixture(scope="module")
def records() -> DataFrame:
    return realistic_records(policies=POLICIES, ratios=RATIOS, contexts=5, change=varied)


@pytest.fixture(scope="module")
def rows(records: DataFrame) -> list[SummaryRow]:
    return summarise(records)


def shown(found: HeatMap | Blank) -> HeatMap:
    assert isinstance(found, HeatMap)
    return found


def of(found: list[Facet], task: str, value: str) -> Facet:
    (one,) = [facet for facet in found if (facet.task, facet.value) == (task, value)]
    return one


def test_a_facet_is_the_mean_of_the_records_that_share_it(records: DataFrame, rows: list[SummaryRow]) -> None:
    found = facets(records, rows)
    for kind in KINDS[:3]:
        one = of(found, "hops", kind)
        own = records[
            (records["task"] == "hops")
            & (records["answer_type"] == kind)
            & (records["policy"] == "snapkv")
            & (records["ratio"] == 0.9)
        ]
        assert one.n == len(own) == 5
        cell = ("snapkv", Level("ratio", 0.9))
        assert one.values[RIGHT.field][cell] == pytest.approx(own["right"].mean())
        assert one.values[HALLUCINATION.field][cell] == pytest.approx(own["hallucinated"].astype(float).mean())
        assert one.values[GER.field][cell] == pytest.approx(own["ger"].astype(float).mean())
    unanswerable = of(found, "hops", "thing")
    assert unanswerable.values[GER.field]["snapkv", Level("ratio", 0.9)] == Blank(NO_SUCH)


def test_over_all_tasks_a_facet_is_their_unweighted_mean(records: DataFrame, rows: list[SummaryRow]) -> None:
    fewer = records[(records["task"] != "hops") | (records["example_index"] < 2)]
    found = facets(fewer, summarise(fewer))
    cell = ("knorm", Level("ratio", 0.5))
    parts: list[Any] = [of(found, task, "part").values[RIGHT.field][cell] for task in ("base", "hops")]
    assert of(found, "all", "part").values[RIGHT.field][cell] == pytest.approx(sum(parts) / 2)
    assert of(found, "all", "part").n == 2 * (5 + 2)


def test_a_property_that_all_questions_share_has_the_values_of_the_rows(records: DataFrame) -> None:
    alike = records.assign(answer_type="thing", question_type="standard")
    rows = summarise(alike)
    for facet in facets(alike, rows):
        for row in rows:
            if row.task == facet.task:
                cell = (row.policy, row.at)
                for measure in (RIGHT, HALLUCINATION, GER):
                    assert facet.values[measure.field][cell] == pytest.approx(measure.value(row)), (facet.task, cell)


def test_what_is_blank_in_the_row_is_blank_in_its_parts_and_enters_no_mean(records: DataFrame) -> None:
    bad = (records["policy"] == "knorm") & (records["ratio"] == 0.9) & (records["task"] == "hops")
    worst = records[bad].iloc[0]
    identity = ("example_id", "question_id", "policy", "ratio")
    broken = DataFrame(
        [
            failing(one, "it is broken") if all(one[name] == worst[name] for name in identity) else one
            for one in records.to_dict("records")
        ]
    )
    rows = summarise(broken)
    found = facets(broken, rows)
    reason = "1 of 20 answers failed: it is broken"
    cell = ("knorm", Level("ratio", 0.9))
    assert of(found, "hops", "date").values[RIGHT.field][cell] == Blank(reason)
    assert of(found, "all", "date").values[RIGHT.field][cell] == Blank(f"hops: {reason}")
    layer = shown(question_map(found, rows, "hops", "agnostic")).layers[RIGHT.name, MEAN]
    assert layer.values[0][2] == Blank(f"knorm: {reason}"), "the mean of the methods is blank too"
    assert layer.reasons == [f"–: knorm: {reason}"]
    tasks = shown(task_map(rows, "agnostic"))
    assert tasks.groups[0].rows[1].name == "knorm"
    assert tasks.layers[RIGHT.name, "0.9"].values[1][1] == Blank(reason)


def test_an_attack_has_no_hallucination_in_a_map_either() -> None:
    attack = {"question_id": "1", "leakage": 0.5, "hallucinated": None, "f1": 0.0, "question_type": "attack"}
    table = DataFrame([record(policy="full"), record(policy="full", **attack)])
    found = facets(table, summarise(table))
    cell = ("full", Level("ratio", 0.0))
    assert of(found, "base", "attack").values[HALLUCINATION.field][cell] == Blank(NO_SUCH)
    assert of(found, "base", "attack").values[RIGHT.field][cell] == 0


def test_tasks_stand_against_policies_with_the_rows_values(rows: list[SummaryRow]) -> None:
    found = shown(task_map(rows, "agnostic"))
    assert found.columns == ("base", "hops")
    assert [row.name for row in found.groups[0].rows] == ["snapkv", "knorm", "full", "random"]
    values = {(row.policy, row.task, row.at.value): row for row in rows}
    layer = found.layers[GER.name, "0.5"]
    assert layer.values[0] == tuple(values["snapkv", task, 0.5].ger for task in found.columns)
    whole = tuple(values["full", task, 0.0].right for task in found.columns)
    assert found.layers[RIGHT.name, "0.5"].values[2] == found.layers[RIGHT.name, "0.9"].values[2] == whole
    assert found.first == (RIGHT.name, "0.9")


def test_layers_stand_against_levels(rows: list[SummaryRow]) -> None:
    found = shown(layer_map(rows, "base", "agnostic"))
    assert found.columns == ("full", "0.5", "0.9")
    own = {row.at.value: row.ger_by_layer for row in rows if (row.task, row.policy) == ("base", "snapkv")}
    layer = found.layers[GER.name, "snapkv"]
    assert [row[2] for row in layer.values] == list(own[0.9] or ())
    other = found.layers[GER.name, "knorm"].values
    mean = found.layers[GER.name, MEAN].values
    for number, row in enumerate(mean):
        assert row[1] == pytest.approx((layer.values[number][1] + other[number][1]) / 2)  # type: ignore[operator]


def test_the_data_of_a_map_has_every_layer_and_its_reasons(rows: list[SummaryRow]) -> None:
    some = [row for row in rows if (row.policy, row.task, row.ratio) != ("knorm", "base", 0.9)]
    found = shown(task_map(some, "agnostic"))
    data = json.loads(found.data())
    assert set(data["layers"]) == {f"{name}/{level}" for name in ("right", "hallucination", "ger") for level in RATIOS}
    cells = [row.split(" ") for row in data["layers"]["right/0.9"]["rows"]]
    assert data["reasons"][int(cells[1][0].removeprefix("#"))] == "– not run"
    shown_there = found.layers["right", "0.9"].values[1][1]
    assert cells[1][1] == RIGHT.text(None if isinstance(shown_there, Blank) else shown_there)
    values = [row.right for row in some if row.task != "all" and row.right is not None]
    assert data["ends"]["right"] == [100 * min(values), 100 * max(values)], "the whole scale of colours is used"
    heats = [cell.heat for layer in found.layers.values() for row in layer.cells for cell in row if not cell.reason]
    assert (min(heats), max(heats)) == (0, 1)


def test_nothing_compressed_has_no_map() -> None:
    rows = summarise(realistic_records(policies=["full"], contexts=2))
    assert task_map(rows, "agnostic") == Blank("not run")
    assert question_map([], rows, "base", "agnostic") == Blank("not run")
    assert isinstance(layer_map(rows, "base", "agnostic"), Blank)


def test_a_map_is_printed_with_its_numbers(rows: list[SummaryRow], tmp_path: Path) -> None:
    found = shown(task_map(rows, "agnostic"))
    save_map(found, (RIGHT.name, "0.5"), tmp_path / "tasks.svg", "right at 0.5")
    text = (tmp_path / "tasks.svg").read_text()
    number = found.layers[RIGHT.name, "0.5"].cells[0][0].text
    for words in ("right at 0.5", "hops", "snapkv", number, "policy", "task", "Right, percent"):
        assert f">{words}<" in text, words
    save_map(found, (RIGHT.name, "0.5"), tmp_path / "narrow.svg", "", Paper(2.5, headed=False))
    narrow = (tmp_path / "narrow.svg").read_text()
    assert f">{number}<" not in narrow, "its cells are too narrow for numbers"
    assert ">Right, percent<" in narrow
    save_map(found, (RIGHT.name, "0.5"), tmp_path / "tasks.png", "right at 0.5")
    assert imread(tmp_path / "tasks.png").shape[1] >= 1800
