"""The board in a real browser: every filter, sorting, and all of it in the address."""

from pathlib import Path
from typing import Any

import pytest

from leaderboards.pages.results import Results
from tests.support.browsing.chromium import Chromium, needs_chromium, on_every_screen
from tests.support.browsing.pages import HOSTILE_IN_A_BROWSER as HOSTILE
from tests.support.browsing.pages import results_of, write_pages
from tests.support.records.synthetic_records import realistic_records

pytestmark = needs_chromium

POLICIES = ("full", "oracle", "random", "recency", "snapkv", "knorm", "tova")
FAMILIES = {"snapkv": "scorer", "tova": "scorer", HOSTILE: "plug-in"} | dict.fromkeys(
    POLICIES[:4], "control"
)
TASKS = ["base", "hops"]
SHOWN = "[...document.querySelectorAll('#boards > .board:not(#comparison)')].filter(each => !each.hidden)"
ROWS = f"[...{SHOWN}[0].querySelectorAll('tbody tr')].filter(row => !row.hidden).map(row => row.dataset.name)"
TITLE = f"{SHOWN}.map(each => each.querySelector('h3').textContent)"
HEADINGS = f"[...{SHOWN}[0].querySelectorAll('thead th')].filter(each => !each.hidden).map(each => each.textContent)"


def hostile(one: dict[str, Any]) -> dict[str, Any]:
    return one | {"policy": HOSTILE} if one["policy"] == "knorm" else one


def of_mode(mode: str, model: str, **more: Any) -> Results:
    records = realistic_records(
        policies=POLICIES, ratios=[0.5, 0.7, 0.9], contexts=5, change=hostile, **more
    )
    return results_of(
        records.assign(mode=mode), model, {"seed": 0}, f"runs/{mode}", families=FAMILIES
    )


@pytest.fixture(scope="module")
def board_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two modes of a model with a hostile name, one of which has a task more, and another model."""
    results = (
        of_mode("agnostic", HOSTILE, tasks=TASKS),
        of_mode("aware", HOSTILE, tasks=["base"]),
        of_mode("agnostic", "other", tasks=TASKS),
    )
    return write_pages(tmp_path_factory.mktemp("site"), *results)


def choose(browser: Chromium, name: str, value: str) -> None:
    browser.evaluate(
        f"(select => {{ select.value = {value!r}; select.dispatchEvent(new Event('change')); }})"
        f"(document.getElementById('filter-{name}'))"
    )


def changing_the_address(browser: Chromium, action: str) -> None:
    """Does what changes the fragment of the address, and waits until the page, which listens too,
    has followed it."""
    browser.evaluate(
        f"new Promise(done => {{ addEventListener('hashchange', () => setTimeout(done), {{once: "
        f"true}}); {action}; }})"
    )


@on_every_screen
def test_the_board_is_quiet_fits_and_keeps_hostile_names_as_text(
    browser: Chromium, board_page: Path, width: int, scheme: str
) -> None:
    browser.open(board_page)
    choose(browser, "task", "hops")
    fragment = browser.evaluate("location.hash.slice(1)")
    browser.open_quietly(board_page, width, scheme, fragment)
    assert HOSTILE in browser.evaluate(f"{SHOWN}[0].textContent").replace("\u200b", "")


def test_model_mode_and_task_choose_one_board_and_never_mix(
    browser: Chromium, board_page: Path
) -> None:
    browser.open(board_page)
    assert browser.evaluate(TITLE) == [f"All tasks, {HOSTILE}, agnostic"]
    choose(browser, "task", "hops")
    assert browser.evaluate(TITLE) == [f"hops (multi-hop), {HOSTILE}, agnostic"]
    choose(browser, "mode", "aware")
    assert browser.evaluate(TITLE) == [f"base (short QA), {HOSTILE}, aware"], (
        "which has no other task"
    )
    choose(browser, "model", "other")
    assert browser.evaluate(TITLE) == ["hops (multi-hop), other, agnostic"], (
        "what was chosen comes back"
    )
    hidden = "[...document.querySelectorAll('#filters label')].filter(each => each.hidden).map(each => each.textContent)"
    assert [text.split()[0] for text in browser.evaluate(hidden)] == ["Mode", "Setting"], (
        "nothing to choose there"
    )


def test_family_and_name_filter_methods_and_leave_the_controls(
    browser: Chromium, board_page: Path
) -> None:
    browser.open(board_page)
    assert set(browser.evaluate(ROWS)) == {*FAMILIES}
    choose(browser, "family", "plug-in")
    assert browser.evaluate(ROWS) == [HOSTILE, *POLICIES[:4]]
    assert (
        browser.evaluate("document.getElementById('filter-count').textContent")
        == "1 of 3 methods, and 4 controls"
    )
    choose(browser, "family", "")
    before = browser.evaluate("history.length")
    browser.evaluate("document.getElementById('filter-name').focus()")
    for letter in "OVA":
        browser.call("Input.insertText", text=letter)
    assert browser.evaluate(ROWS) == ["tova", *POLICIES[:4]]
    assert browser.evaluate("location.hash") == "#name=OVA"
    assert browser.evaluate("history.length") == before, "letters are no steps"
    browser.evaluate("document.querySelector('#filters button').click()")
    assert len(browser.evaluate(ROWS)) == 7
    assert browser.evaluate("location.hash") == ""


def test_every_column_sorts_by_keyboard_and_the_name_from_the_top(
    browser: Chromium, board_page: Path
) -> None:
    browser.open(board_page, fragment="columns=all")
    methods = f"[...{SHOWN}[0].querySelector('tbody').rows].map(row => row.dataset.name)"
    original = browser.evaluate(methods)
    heading = f"{SHOWN}[0].querySelector('thead th')"
    browser.evaluate(f"{heading}.querySelector('button').focus()")
    orders = []
    for _ in range(3):
        browser.press("Enter")
        orders.append(
            (browser.evaluate(f"{heading}.getAttribute('aria-sort')"), browser.evaluate(methods))
        )
    ascending = [HOSTILE, "snapkv", "tova"]
    assert orders == [("ascending", ascending), ("descending", ascending[::-1]), (None, original)]
    for place, name in enumerate(browser.evaluate(HEADINGS)[1:], start=1):
        browser.evaluate(
            f"{SHOWN}[0].querySelectorAll('thead th')[{place}].querySelector('button').focus()"
        )
        browser.press("Enter")
        values = f"[...{SHOWN}[0].querySelector('tbody').rows].map(row => row.cells[{place}].dataset.sort)"
        numbers = [float(value) for value in browser.evaluate(values) if value is not None]
        assert numbers == sorted(numbers, reverse=True), name
        sorted_by = f"{SHOWN}[0].querySelector('[aria-sort=descending]').textContent"
        assert browser.evaluate(sorted_by) == name


def test_the_address_restores_everything_and_a_choice_is_a_step_to_take_back(
    browser: Chromium, board_page: Path
) -> None:
    browser.open(board_page)
    choose(browser, "model", "other")
    choose(browser, "task", "hops")
    choose(browser, "family", "scorer")
    browser.evaluate(f"{SHOWN}[0].querySelectorAll('thead th button')[1].click()")
    browser.evaluate("document.querySelectorAll('#section-3 [role=tab]')[2].click()")
    everything = (
        f"[location.hash, {TITLE}, {HEADINGS}, {ROWS},"
        f" {SHOWN}[0].querySelector('[aria-sort]').textContent,"
        " [...document.querySelectorAll('[role=tab][aria-selected=true]')].map(each => each.id)]"
    )
    chosen = browser.evaluate(everything)
    assert chosen[1] == ["hops (multi-hop), other, agnostic"]
    assert chosen[4:] == ["rank", ["section-1-right-tab", "section-3-hallucination-tab"]]
    browser.open(board_page, fragment=chosen[0][1:])
    assert browser.evaluate(everything) == chosen
    # The history of a tab that other tests have filled loses entries: that a choice makes one is
    # counted instead.
    browser.evaluate(
        "window.steps = 0; history.pushState = new Proxy(history.pushState, { apply: (push, self, "
        "values) => { window.steps += 1; return Reflect.apply(push, self, values); } }); 0"
    )
    choose(browser, "task", "base")
    assert browser.evaluate("window.steps") == 1, "a step that the browser's button takes back"
    changing_the_address(browser, "document.querySelector('nav a[href=\"#section-1\"]').click()")
    assert browser.evaluate(TITLE) == ["base (short QA), other, agnostic"], (
        "a place on the page chooses nothing"
    )
    changing_the_address(browser, f"location.hash = {chosen[0]!r}")  # as the button does
    assert browser.evaluate(everything) == chosen
