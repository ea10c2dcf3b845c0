"""The page in a real browser: quiet, inside its width, and usable by mouse, by keyboard and without
its script."""

from pathlib import Path

import pytest

from leaderboards.aggregate.duels import duels
from leaderboards.aggregate.outcomes import join_outcomes
from leaderboards.aggregate.pooled import pool, pool_levels
from leaderboards.pages.comparison import build_comparison
from leaderboards.pages.front import FRONT
from tests.support.browsing.chromium import (
    IN_VIEW,
    LOWEST_CONTRAST,
    Chromium,
    needs_chromium,
    on_every_screen,
)
from tests.support.browsing.pages import HOSTILE_IN_A_BROWSER as HOSTILE
from tests.support.browsing.pages import OF_EVERY_TASK, results_of, write_pages
from tests.support.records.synthetic_records import failing, realistic_records

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def front_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with a long policy name, a blank cell, and a hostile reason in it."""

    def spoil(one: dict[str, object]) -> dict[str, object]:
        if (one["policy"], one["ratio"], one["task"]) == ("h2o", 0.5, "hops"):
            return failing(one, HOSTILE)
        return (
            one | {"policy": "a/long/path/to/a/file.py:MyPress"}
            if one["policy"] == "knorm"
            else one
        )

    records = realistic_records(contexts=4, change=spoil)
    run = {"seed": 0, "revision": "f4d4353" * 30}
    return write_pages(tmp_path_factory.mktemp("site"), results_of(records, HOSTILE, run))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
@pytest.mark.parametrize("name", [FRONT, "task-hops.html"])
def test_the_page_is_quiet_and_never_wider_than_its_window(
    browser: Chromium, front_page: Path, name: str, width: int, scheme: str
) -> None:
    browser.open_quietly(front_page.with_name(name), width, scheme)
    assert browser.evaluate("document.querySelectorAll('figure svg path').length") > 50


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a comparison with verdicts of all kinds, of a press with a long name."""
    records = realistic_records(policies=["full", "snapkv", "knorm", "oracle"], contexts=20)
    name = "a/long/path/to/a/file.py:MyPress(window_size=16)"
    renamed = records.assign(policy=records["policy"].replace("snapkv", name))
    others = ("knorm", "oracle")
    found = duels(renamed, name, others)
    path = tmp_path_factory.mktemp("site") / "compare.html"
    outcomes = join_outcomes(pool_levels(renamed, name, others), pool(renamed, name, others))
    path.write_text(build_comparison(HOSTILE, found, outcomes=outcomes), encoding="utf-8")
    return path


@on_every_screen
def test_a_comparison_is_quiet_fits_and_can_be_read(
    browser: Chromium, comparison: Path, width: int, scheme: str
) -> None:
    browser.open_quietly(comparison, width, scheme)
    assert browser.evaluate("document.querySelectorAll('td.better').length") > 0
    assert browser.evaluate("document.querySelectorAll('td.worse').length") > 0
    assert browser.evaluate(LOWEST_CONTRAST) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_on_tiles_can_be_read(browser: Chromium, front_page: Path, scheme: str) -> None:
    browser.open(front_page, scheme=scheme)
    assert browser.evaluate(LOWEST_CONTRAST) >= 4.5


def test_every_table_is_there_without_the_script(browser: Chromium, front_page: Path) -> None:
    browser.open(front_page, script=False)
    shown = f"[...document.querySelectorAll('.panel table.heat')].filter({IN_VIEW}).length"
    assert browser.evaluate(shown) == len(OF_EVERY_TASK)
    assert (
        browser.evaluate(f"[...document.querySelectorAll('[role=tab]')].filter({IN_VIEW}).length")
        == 0
    )
    browser.open(front_page)
    assert browser.evaluate(shown) == 1


def test_tabs_follow_the_arrow_keys(browser: Chromium, front_page: Path) -> None:
    browser.open(front_page)
    browser.evaluate("document.querySelector('[role=tab]').focus()")
    chosen = "document.querySelector('[role=tab][aria-selected=true]').textContent"
    panel = f"[...document.querySelector('.measures').querySelectorAll('.panel')].filter({IN_VIEW}).map(each => each.id)"
    first, second, *_, last = OF_EVERY_TASK
    for key, measure in (
        ("ArrowRight", second),
        ("End", last),
        ("ArrowRight", first),
        ("ArrowLeft", last),
    ):
        browser.press(key)
        assert browser.evaluate(chosen) == measure.title
        assert browser.evaluate(panel) == [f"section-1-{measure.name}"]
        assert browser.evaluate("document.activeElement.textContent") == measure.title


def test_a_column_sorts_both_ways_with_blanks_last(browser: Chromium, front_page: Path) -> None:
    browser.open(front_page.with_name("task-hops.html"))
    table = "document.querySelector('#section-1-right table')"
    heading = f"[...{table}.querySelectorAll('thead th')].find(each => each.textContent === '0.5')"
    column = f"[...{table}.querySelector('tbody.sortable').rows].map(row => row.cells[5].dataset.sort ?? null)"
    original = browser.evaluate(column)
    assert original.count(None) == 1
    numbers = [float(value) for value in original if value is not None]
    for order, expected in (
        ("descending", sorted(numbers, reverse=True)),
        ("ascending", sorted(numbers)),
    ):
        browser.evaluate(f"{heading}.querySelector('button').click()")
        assert browser.evaluate(f"{heading}.getAttribute('aria-sort')") == order
        sorted_column = browser.evaluate(column)
        assert [float(value) for value in sorted_column[:-1]] == expected
        assert sorted_column[-1] is None
    browser.evaluate(f"{heading}.querySelector('button').click()")
    assert browser.evaluate(column) == original
