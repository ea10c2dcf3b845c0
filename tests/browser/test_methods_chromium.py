"""The page of methods in a real browser: places, losses, filters, and all of it in the address."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docs.scripts.board_table import SITE
from leaderboards.boards.declaration import TableCell
from leaderboards.boards.rank import RANK
from leaderboards.boards.safe_ratio import SAFE_RATIO
from leaderboards.pages.methods.all_methods import (
    AboutMethod,
    Elsewhere,
    build_methods,
    methods_table,
    places_on_models,
)
from leaderboards.pages.methods.one_method import build_one_method
from leaderboards.pages.results import Results
from leaderboards.statistics.rank import RankInterval
from leaderboards.statistics.safe_ratio import SafeRatio
from tests.support.browsing.chromium import Chromium, needs_chromium, on_every_screen
from tests.support.browsing.pages import HOSTILE_IN_A_BROWSER as HOSTILE
from tests.support.browsing.pages import results_of
from tests.support.records.synthetic_records import realistic_records

POLICIES = ("full", "oracle", "random", "recency", "snapkv", "knorm", "tova")
TASKS = ["base", "niah_single_2"]
METHODS = {
    "snapkv": AboutMethod("scorer", "Attention from the last tokens", "arXiv 2404.14469", ""),
    "tova": AboutMethod("scorer", "Attention from the last token", "-", "a prefill of its own"),
    HOSTILE: AboutMethod("plug-in", HOSTILE, "-", ""),
}
SHOWN = "[...document.querySelectorAll('.methods')].filter(each => !each.hidden)"
ROWS = f"[...{SHOWN}[0].querySelectorAll('tbody tr')].filter(row => !row.hidden).map(row => row.dataset.name)"


def hostile(one: dict[str, Any]) -> dict[str, Any]:
    return one | {"policy": HOSTILE} if one["policy"] == "knorm" else one


def results_on(model: str) -> Results:
    records = realistic_records(
        policies=POLICIES, ratios=[0.5, 0.75], contexts=8, change=hostile, tasks=TASKS
    )
    return results_of(records, model, {"seed": 0}, f"runs/{model}")


@pytest.fixture(scope="module")
def results() -> Results:
    return results_on("toy")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, results: Results) -> Path:
    text = build_methods(
        [results, results_on("other")],
        METHODS,
        left_out={"think": "it removes at most 0.49 of the cache"},
    )
    file = tmp_path_factory.mktemp("site") / "methods.html"
    file.write_text(text, encoding="utf-8")
    return file


def test_cells_are_the_standings_of_the_boards(results: Results) -> None:
    table = methods_table(results, "methods-1", "toy", Elsewhere({"snapkv": 11}, {}))
    assert {line.name for line in table.methods} == {"snapkv", "tova", HOSTILE}
    assert {line.name for line in table.controls} == {"oracle", "random", "recency"}
    places = [line.cells[0].sort for line in table.methods]
    assert places == sorted(places, key=lambda place: (place is None, place))
    by_policy = {one.policy: one for one in results.standings["agnostic", "all"]}
    (of_base,) = [one for one in results.standings["agnostic", "base"] if one.policy == "tova"]
    (line,) = [line for line in table.methods if line.name == "tova"]
    cells = dict(zip(table.columns, line.cells, strict=True))
    rank, safe = by_policy["tova"][RANK], of_base[SAFE_RATIO]
    assert isinstance(rank, RankInterval)
    assert isinstance(safe, SafeRatio)
    assert cells["place"].sort == rank.rank
    for loss in safe.levels:
        cell = cells[f"short QA, {loss.level:g}"]
        assert cell.sort == pytest.approx(loss.difference.mean)
        assert cell.detail.endswith(loss.verdict)
    assert cells["kvpress’s board"].is_blank
    (other,) = [line for line in table.methods if line.name == "snapkv"]
    assert other.cells[1].text == "11"
    # No context of these has a secret.
    assert "leakage" not in table.columns
    assert all(len(line.cells) == len(table.columns) for line in table.methods)


def test_the_summary_names_who_is_first_who_frees_memory_and_who_is_safe(results: Results) -> None:
    table = methods_table(results, "methods-1", "toy", Elsewhere({}, {}))
    first: list[str] = []
    for standing in results.standings["agnostic", "all"]:
        rank = standing[RANK]
        if isinstance(rank, RankInterval) and 1 in (rank.rank, rank.low):
            first.append(standing.policy)
    sentences = table.summary.split(". ")
    assert sorted(sentences[0].removeprefix("Loses least: ").split(", ")) == sorted(first)
    clauses = sentences[-1].removeprefix("Shown to be safe at half ").rstrip(".").split("; ")
    named = {}
    for clause in clauses:
        use, _, names = clause.removeprefix("for ").partition(": ")
        named[use] = names.split(", ")
    for line in table.methods:
        cells = dict(zip(table.columns, line.cells, strict=True))
        at_half = {name: cell for name, cell in cells.items() if name.endswith(", 0.5")}
        is_safe = {name: "safe" in cell.detail.split() for name, cell in at_half.items()}
        assert (line.name in named["every use"]) == all(is_safe.values())
        for name, of_use in is_safe.items():
            use = name.removesuffix(", 0.5")
            assert of_use == (line.name in [*named.get(use, named["every use"])])
    assert table.note.startswith("With the full cache: ")


def test_wrong_answers_are_a_mean_of_the_tasks_that_have_answers() -> None:
    """Next tokens of a text are no answers, and cost a method nothing of the column."""

    def without_answers(one: dict[str, Any]) -> dict[str, Any]:
        blank = {"answered": None, "hallucinated": None}
        return one | blank if one["task"] == TASKS[-1] else one

    records = realistic_records(
        policies=POLICIES, ratios=[0.5, 0.75], contexts=8, change=without_answers, tasks=TASKS
    )
    found = results_of(records, "toy", {"seed": 0}, "runs/toy")
    table = methods_table(found, "methods-1", "toy", Elsewhere({}, {}))
    wrong = {}
    for row in found.rows:
        if (row.task, row.ratio) == ("base", 0.5):
            wrong[row.policy] = row.wrong_of_answered
    for line in table.methods:
        cells = dict(zip(table.columns, line.cells, strict=True))
        assert cells["wrong of answered"].sort == wrong[line.name]


def test_where_tasks_have_no_measure_in_common_each_has_a_curve(results: Results) -> None:
    def as_text(one: dict[str, Any]) -> dict[str, Any]:
        if one["task"] != TASKS[-1]:
            return one
        blank = dict.fromkeys(("right", "f1", "em", "answered", "hallucinated"))
        return one | blank | {"next_token_accuracy": 0.5}

    records = realistic_records(
        policies=POLICIES, ratios=[0.5, 0.75], contexts=8, change=as_text, tasks=TASKS
    )
    with_text = results_of(records, "toy", {"seed": 0}, "runs/toy")
    page = build_one_method("snapkv", METHODS["snapkv"], "", [with_text], "index.html")
    assert "base: right" in page
    assert "niah_single_2: next-token accuracy" in page
    page = build_one_method("snapkv", METHODS["snapkv"], "", [results], "index.html")
    assert "base: right" not in page
    assert page.count("-right-figure") == 1


def test_places_on_other_models_of_its_mode_stand_beside_its_own(results: Results) -> None:
    in_view = replace(results_on("third"), mode="aware")
    models = places_on_models([results, results_on("other"), in_view], {"other": {"tova": "no"}})
    table = methods_table(results, "methods-1", "toy, agnostic", Elsewhere({}, models))
    places = [column for column in table.columns if column.startswith("place")]
    assert places == ["place", "place, other"]
    for line in table.methods:
        own, other = line.cells[:2]
        assert other == (own if line.name != "tova" else TableCell.blank("no"))


def test_the_summary_names_a_method_that_keeps_no_more_than_chance() -> None:
    changed = {"random": "snapkv", "snapkv": "random"}

    def change_places(one: dict[str, Any]) -> dict[str, Any]:
        return one | {"policy": changed.get(one["policy"], one["policy"])}

    records = realistic_records(
        policies=POLICIES, ratios=[0.5, 0.75], contexts=8, change=change_places, tasks=TASKS
    )
    found = results_of(records, "toy", {"seed": 0}, "runs/toy")
    summary = methods_table(found, "methods-1", "toy", Elsewhere({}, {})).summary
    (sentence,) = [part for part in summary.split(". ") if "at random" in part]
    behind = sentence.removeprefix("Not better than eviction at random: ").split(", ")
    assert "snapkv" in behind
    assert "random" not in behind, "a control is no method"


@needs_chromium
@on_every_screen
def test_the_page_is_quiet_and_fits(browser: Chromium, page: Path, width: int, scheme: str) -> None:
    browser.open_quietly(page, width, scheme)
    text = browser.evaluate("document.body.textContent").replace("\u200b", "")
    assert HOSTILE in text
    assert "it removes at most 0.49 of the cache" in text


@needs_chromium
def test_rows_are_chosen_and_sorted_and_the_address_keeps_it(browser: Chromium, page: Path) -> None:
    browser.open(page)
    in_order = browser.evaluate(ROWS)
    assert {*in_order} == {"snapkv", "tova", HOSTILE, "oracle", "random", "recency"}
    assert browser.evaluate(f"{SHOWN}.map(each => each.dataset.title)") == ["toy"]
    browser.open(page, fragment="model=other&family=scorer")
    assert browser.evaluate(f"{SHOWN}.map(each => each.dataset.title)") == ["other"]
    assert sorted(browser.evaluate(ROWS)) == ["snapkv", "tova"]
    browser.open(page, fragment="name=SNAP&sort=descending:place")
    assert browser.evaluate(ROWS) == ["snapkv"]
    assert browser.evaluate("document.getElementById('filter-name').value") == "SNAP"
    browser.open(page, fragment="sort=descending:place")
    backwards = [name for name in browser.evaluate(ROWS) if name in METHODS]
    assert backwards == [name for name in in_order if name in METHODS][::-1]


@needs_chromium
def test_losses_at_one_ratio_stand_beside_each_other_and_the_address_keeps_which(
    browser: Chromium, page: Path
) -> None:
    heads = f"[...{SHOWN}[0].querySelectorAll('thead th')].filter(head => !head.hidden).map(head => head.textContent.trim())"
    cells = f"[...{SHOWN}[0].querySelectorAll('tbody tr')].map(row => [...row.cells].filter(cell => !cell.hidden).length)"
    browser.open(page)
    at_half = browser.evaluate(heads)
    assert {"needle, 0.5", "short QA, 0.5", "place"} <= {*at_half}
    assert not any(head.endswith(", 0.75") for head in at_half)
    assert {*browser.evaluate(cells)} == {len(at_half)}
    browser.open(page, fragment="removed=0.75")
    assert [head.replace("0.75", "0.5") for head in browser.evaluate(heads)] == at_half
    browser.evaluate(
        "(choice => { choice.value = 'both'; choice.dispatchEvent(new Event('change')); })"
        "(document.getElementById('filter-removed'))"
    )
    assert {*at_half} < {*browser.evaluate(heads)}
    assert "removed=both" in browser.evaluate("location.hash")


@needs_chromium
def test_the_first_table_of_the_shipped_board_is_seen_whole(browser: Chromium) -> None:
    """Its last columns, of time and bytes, were once behind the edge of the window."""
    browser.open(SITE / "index.html", width=1280)
    scrolled = browser.evaluate(f"{SHOWN}[0].querySelector('.scroll').scrollWidth")
    assert scrolled <= browser.evaluate(f"{SHOWN}[0].querySelector('.scroll').clientWidth")
