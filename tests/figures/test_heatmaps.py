"""Heat maps: their cells are the records' own means, and blank ones say why."""

import json
from pathlib import Path

import pytest
from matplotlib.image import imread
from pandas import DataFrame

from leaderboards.aggregate.row import GER, RIGHT, SummaryRow
from leaderboards.aggregate.summary import summarise
from leaderboards.figures.heatmaps import HeatMap, task_map
from leaderboards.rendering.printed import Paper
from leaderboards.statistics.bootstrap import Blank
from tests.support.records.synthetic_records import realistic_records

RATIOS = (0.5, 0.9)
POLICIES = ("full", "random", "snapkv", "knorm")


@pytest.fixture(scope="module")
def records() -> DataFrame:
    return realistic_records(policies=POLICIES, ratios=RATIOS, contexts=5)


@pytest.fixture(scope="module")
def rows(records: DataFrame) -> list[SummaryRow]:
    return summarise(records)


def shown(found: HeatMap | Blank) -> HeatMap:
    assert isinstance(found, HeatMap)
    return found


def test_tasks_stand_against_policies_with_the_rows_values(rows: list[SummaryRow]) -> None:
    found = shown(task_map(rows, "agnostic"))
    assert found.tasks == ("base", "hops")
    assert list(found.policies) == ["snapkv", "knorm", "full", "random"]
    values = {(row.policy, row.task, row.at.value): row for row in rows}
    layer = found.layers[GER.name, "0.5"]
    assert layer.values[0] == tuple(values["snapkv", task, 0.5].ger for task in found.tasks)
    whole = tuple(values["full", task, 0.0].right for task in found.tasks)
    assert found.layers[RIGHT.name, "0.5"].values[2] == found.layers[RIGHT.name, "0.9"].values[2] == whole
    assert found.first == (RIGHT.name, "0.9")


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


def test_a_map_is_printed_with_its_numbers(rows: list[SummaryRow], tmp_path: Path) -> None:
    found = shown(task_map(rows, "agnostic"))
    found.save((RIGHT.name, "0.5"), tmp_path / "tasks.svg", "right at 0.5")
    text = (tmp_path / "tasks.svg").read_text()
    number = found.layers[RIGHT.name, "0.5"].cells[0][0].text
    for words in ("right at 0.5", "hops", "snapkv", number, "Right, percent"):
        assert f">{words}<" in text, words
    found.save((RIGHT.name, "0.5"), tmp_path / "narrow.svg", "", Paper(2.5, headed=False))
    narrow = (tmp_path / "narrow.svg").read_text()
    assert f">{number}<" not in narrow, "its cells are too narrow for numbers"
    assert ">Right, percent<" in narrow
    found.save((RIGHT.name, "0.5"), tmp_path / "tasks.png", "right at 0.5")
    assert imread(tmp_path / "tasks.png").shape[1] >= 1800
