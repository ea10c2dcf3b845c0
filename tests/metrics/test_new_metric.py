"""A metric is declared in one place: what a new one takes, and that it is found wherever metrics
are told of."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DECLARED = """

from leaderboards.metrics.declaration import SHARE, Scale

METRICS = (
    *METRICS,
    Metric(
        name="words",
        type=float,
        unit="words",
        better="lower",
        line="Words of the answer, counted",
        definition=Definition("Words", "How many words an answer has.", chapter="answers"),
        bounds=(0, 1000),
        of_answer=lambda answer: float(len(answer.output_text.split())),
        measures=(
            Measure(
                name="words",
                field="mean_words",
                title="Mean words",
                unit="words of an answer",
                over=Over.ALL,
                scale=Scale(1, 2, None),
                better="lower",
                has_interval=True,
                columns=("words",),
                curve=True,
                table=True,
                board=Heading("words", "words of an answer"),
                heading="all words",
            ),
            Measure(
                name="newly-half",
                field="newly_half",
                title="Newly half",
                unit="share of what the full cache has right",
                over=Over.GOLDS,
                scale=SHARE,
                has_interval=True,
                columns=("f1",),
                values=lambda sample: np.asarray((sample.full["f1"] >= 50) & (sample["f1"] < 50), dtype=np.float64),
                weights=lambda sample: np.asarray(sample.full["f1"] >= 50, dtype=np.float64),
                paired=True,
            ),
        ),
    ),
)
"""
SCRIPT = """
import json
import numpy as np
from kvbench.commands.ls import LISTINGS
from docs.scripts import tables as pages
from kvbench.store.scoring import SCORES
from kvbench.store.tables import RECORDS, joined_schema
from leaderboards.boards.board import make_boards
from leaderboards.boards.board import all_standings
from leaderboards.aggregate.summary import summarise
from leaderboards.downloads.tables import board_sheet
from leaderboards.downloads.tables import cells_sheet
from leaderboards.pages.gallery import gallery
from tests.support.browsing.pages import build_pages
from leaderboards.pages.method import Method
from leaderboards.pages.method import build_method
from leaderboards.pages.results import Results
from leaderboards.metrics import Answer
from tests.support.records.synthetic_records import realistic_records

records = realistic_records(["base", "hops"], ["full", "random", "snapkv"], contexts=4)
records["words"] = np.arange(len(records)) % 7
rows = summarise(records)
found = all_standings(records, rows)
boards = make_boards(records, rows, found)
results = Results.of(records, rows, {"run": {}}, "toy")
row = next(row for row in rows if (row.task, row.policy, row.ratio) == ("base", "snapkv", 0.9))
own = records[(records.task == "base") & (records.policy == "snapkv") & (records.ratio == 0.9)]
full = records[(records.task == "base") & (records.policy == "full")]
both = own.merge(full, on=["example_id", "question_id"], suffixes=("", "_full"))
right = both.f1_full >= 50
curve = next(one for one in gallery(rows, "base", "agnostic") if one.name == "words")
print(json.dumps({
    "record": str(RECORDS.schema.field("words").type),
    "range": RECORDS.ranges["words"],
    "parquet": "words" in joined_schema().names,
    "score": SCORES["words"](Answer("one two", "", ["a"], "a", True, [], [], [], "", [], "", "")),
    "mean": [row.mean_words, float(own.words.mean())],
    "interval": [row.mean_words_low, row.mean_words_high],
    "newly_half": [row.newly_half, float((right & (both.f1 < 50)).sum() / right.sum())],
    "newly_half_interval": [row.newly_half_low, row.newly_half_high],
    "newly_half_full": [row.newly_half for row in rows if row.policy == "full"],
    "overall": [row.mean_words_low for row in rows if row.task == "all" and row.policy == "snapkv"],
    "board": [column.name for column in boards["agnostic", "base"].columns],
    "curve": [curve.title, curve.unit, len(curve.plot.spots), curve.plot.drawing.frame.vertical.last],
    "cells": list(cells_sheet(rows).columns),
    "board_sheet": list(board_sheet(found, boards).columns),
    "pages": "".join(build_pages([results]).values()),
    "method": build_method(Method(("toy",), (), (), ())),
    "ls": LISTINGS["metrics"]().rows,
    "readme": pages.metrics(),
}))
"""


@pytest.fixture(scope="module")
def metric_places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Where a metric is found that was written into one file of a copy of the package."""
    folder = tmp_path_factory.mktemp("copy")
    # Compiled, if tests before have imported it.
    shutil.copytree(ROOT / "leaderboards", folder / "leaderboards")
    (folder / "kvbench").symlink_to(ROOT / "kvbench")  # which takes its packages from beside itself
    with (folder / "leaderboards" / "metrics" / "answers.py").open("a") as file:
        file.write(DECLARED)
    script = folder / "script.py"
    script.write_text(SCRIPT)
    paths = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    places: dict[str, Any] = json.loads(done.stdout)
    return places


def test_records_have_its_column_and_its_bounds_and_it_is_scored_from_the_stored_output(
    metric_places: dict[str, Any],
) -> None:
    assert (
        metric_places["record"],
        metric_places["range"],
        metric_places["parquet"],
        metric_places["score"],
    ) == (
        "double",
        [0, 1000],
        True,
        2.0,
    )


def test_the_summary_has_its_mean_with_an_interval(metric_places: dict[str, Any]) -> None:
    mean, expected = metric_places["mean"]
    low, high = metric_places["interval"]
    assert mean == pytest.approx(expected)
    assert low < mean < high
    assert all(low is not None for low in metric_places["overall"])


def test_a_ratio_of_sums_is_paired_with_the_full_cache(metric_places: dict[str, Any]) -> None:
    ratio, expected = metric_places["newly_half"]
    low, high = metric_places["newly_half_interval"]
    assert ratio == pytest.approx(expected)
    assert low <= ratio <= high
    assert ratio > 0
    assert set(metric_places["newly_half_full"]) == {0.0}


def test_board_curves_tables_and_downloads_show_it(metric_places: dict[str, Any]) -> None:
    assert "words at 0.5" in metric_places["board"]
    title, unit, spots, top = metric_places["curve"]
    assert (title, unit) == ("Mean words", "words of an answer; lower is better")
    assert spots > 0
    assert top < 10, "the axis of what has no highest value ends where the values do"
    assert {"mean_words", "mean_words_low", "mean_words_high", "newly_half"} <= set(
        metric_places["cells"]
    )
    assert all(heading in metric_places["pages"] for heading in ("Mean words", "words at 0.5"))


def test_the_page_of_method_ls_and_the_readme_define_it(metric_places: dict[str, Any]) -> None:
    assert "How many words an answer has." in metric_places["method"]
    assert "mean_words_low" in metric_places["method"]
    assert ["words", "words", "lower", "Words of the answer, counted"] in metric_places["ls"]
    assert "- `words`: Words of the answer, counted" in metric_places["readme"]
