"""Nothing is shown that is not defined: every column of every table, download and record, and every measure."""

import re

import pytest

from kvbench.store.tables import JOINED
from leaderboards.aggregate.answers import answer_kinds
from leaderboards.aggregate.duels import duels
from leaderboards.aggregate.row import SummaryRow
from leaderboards.aggregate.summary import summarise
from leaderboards.boards.board import _columns, all_standings, boards_of
from leaderboards.claims.registry import claims
from leaderboards.claims.verdict import judge
from leaderboards.downloads.sheets import Sheet
from leaderboards.downloads.tables import (
    Imported,
    board_sheet,
    cells_sheet,
    duels_sheet,
    imported_sheet,
    kinds_sheet,
    register_sheet,
)
from leaderboards.metrics import CURVES, METRICS, TABLES
from leaderboards.pages.claims import build_claims
from leaderboards.pages.comparison import build_comparison
from leaderboards.pages.definitions import chapters
from leaderboards.pages.imported import build_imported
from leaderboards.studies.declaration import build_study
from leaderboards.studies.routing.study import STUDY as ROUTING
from policies import KINDS, Level
from policies.declaration.levels import names_of
from tests.support.browsing.pages import Elements, build_pages, results_of
from tests.support.records.routing_tables import routing_input
from tests.support.records.study_records import instructions_page, small_study, treated_pages
from tests.support.records.synthetic_records import realistic_records

DEFINITIONS = [definition for chapter in chapters() for definition in chapter.definitions]
NAMES = {name for definition in DEFINITIONS for name in definition.names}
HALF_AND_MOST = [Level("ratio", 0.5), Level("ratio", 0.9)]
# What is asked of a policy, its name, and a heading without words.
A_LEVEL = re.compile(rf"(({'|'.join(KINDS)}) )?[\d.]+")
AT_A_LEVEL = re.compile(rf"(.+) at {A_LEVEL.pattern}")
IMPORTED = Imported("ruler", "toy", "", "snapkv", 0.5, "", (("string_match", 50.0),), 1, 3, 3, 40.0, 30.0)

JUDGED = judge(list(claims().values()), {})  # nothing was run: all are undecided


def sheets() -> list[Sheet]:
    """One of each kind that is written."""
    records = realistic_records(policies=["full", "random", "snapkv", "knorm"], contexts=4)
    rows = summarise(records)
    found = all_standings(records, rows)
    return [
        cells_sheet(rows),
        board_sheet(found, boards_of(records, rows, found)),
        duels_sheet("verdicts", duels(records, "snapkv", ["knorm"]), {}),
        kinds_sheet("failures", answer_kinds(records, "snapkv", ["knorm"])),
        imported_sheet([IMPORTED]),
        register_sheet(JUDGED),
        *instructions_page("toy", small_study())[1].sheets,
        *(sheet for _, content in treated_pages() for sheet in content.sheets),
        *build_study(ROUTING, routing_input())[1].sheets,
    ]


def headings() -> set[str]:
    """Of the columns of all pages."""
    records = realistic_records(policies=["full", "random", "recency", "snapkv", "knorm"], contexts=4)
    pages = [
        *build_pages([results_of(records)]).values(),
        build_comparison("toy", duels(records, "snapkv", ["knorm"])),
        instructions_page("toy", small_study())[0],
        *(page for page, _ in treated_pages()),
        build_study(ROUTING, routing_input())[0],
        build_imported("results", [IMPORTED]),
        build_claims("toy", JUDGED, {}, []),
    ]
    return {heading.strip() for page in pages for heading in Elements(page).headings}


def defined(heading: str) -> bool:
    at_a_level = AT_A_LEVEL.fullmatch(heading)
    return bool(A_LEVEL.fullmatch(heading)) or heading in NAMES or (at_a_level is not None and at_a_level[1] in NAMES)


def test_every_heading_of_every_page_is_defined() -> None:
    found = headings()
    assert {"area", "safe ratio", "GER at 0.9", "gain", "score, by kvpress"} <= found
    policies = {"full", "snapkv", "knorm", "base", "hops", ""}  # whose column it is, of a policy or task
    assert {heading for heading in found - policies if not defined(heading)} == set()


@pytest.mark.parametrize("sheet", sheets(), ids=lambda sheet: sheet.name)
def test_every_column_of_every_download_is_defined(sheet: Sheet) -> None:
    assert {column for column in sheet.columns if not defined(column)} == set()


def test_every_measure_metric_and_column_of_the_records_is_defined() -> None:
    assert set(SummaryRow.model_fields) - NAMES == set()
    assert {measure.title for measure in (*CURVES, *TABLES)} - NAMES == set()
    assert set(METRICS) - NAMES == set()
    assert {"model", "setting", *JOINED} - NAMES == set()


def test_every_column_of_the_board_is_defined_at_every_level() -> None:
    """Also those in which no policy of a run has a value."""
    at_half_and_most = _columns(HALF_AND_MOST, names_of(HALF_AND_MOST))
    mixed = [*HALF_AND_MOST, Level("bits", 2.0)]
    of_kinds = _columns(mixed, names_of(mixed))
    names = [column.name for columns in (at_half_and_most, of_kinds) for column, _ in columns]
    assert {"right at 0.5", "F1 at ratio 0.5", "right at bits 2"} <= set(names)
    assert len(names) > 18
    assert [name for name in names if not defined(name)] == []


def test_a_name_is_defined_once() -> None:
    names = [name for definition in DEFINITIONS for name in dict.fromkeys(definition.names)]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
    titles = [definition.name for definition in DEFINITIONS]
    assert len(set(titles)) == len(titles)


def test_what_a_paper_defines_names_it_and_has_a_formula() -> None:
    by_name = {definition.name: definition for definition in DEFINITIONS}
    for name in ("Safe ratio", "Area", "Protection gain", "Slot coverage"):
        assert by_name[name].formula, name
    for name in ("GER, the Global Eviction Ratio", "Protection gain", "Leakage, and defence leakage"):
        assert "arXiv" in by_name[name].source, name
    for name in ("Rank, and rank interval", "Better than another policy", "Means of subsets", "Interval"):
        assert re.search(r"\d{4}", by_name[name].source), name
