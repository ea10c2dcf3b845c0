"""Definitions: every measure, metric and derived column has one, and what comes from a paper names
it."""

import re

from leaderboards.boards.board import DERIVED
from leaderboards.metrics import MEASURES, METRICS
from leaderboards.pages.definitions import chapters

DEFINITIONS = {one.name: one for chapter in chapters() for one in chapter.definitions}


def test_every_metric_measure_and_derived_column_is_defined_once() -> None:
    columns = [column for one in DEFINITIONS.values() for column in one.columns]
    assert len(columns) == len(set(columns))
    derived = {column for measure in DERIVED for column in measure.columns}
    assert {*METRICS, *MEASURES, *derived} - set(columns) == set()
    assert sum(len(chapter.definitions) for chapter in chapters()) == len(DEFINITIONS)


def test_what_a_paper_defines_names_it_and_has_a_formula() -> None:
    for name in ("Safe ratio", "Area", "Protection gain", "Slot coverage"):
        assert DEFINITIONS[name].formula, name
    for name in (
        "GER, the Global Eviction Ratio",
        "Protection gain",
        "Leakage, and defence leakage",
    ):
        assert "arXiv" in DEFINITIONS[name].source, name
    for name in (
        "Rank, and rank interval",
        "Better than another policy, by area",
        "Means of subsets",
        "Interval of a paired loss",
    ):
        assert re.search(r"\d{4}", DEFINITIONS[name].source), name
