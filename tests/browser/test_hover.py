"""Plots that tell their numbers, in a real browser."""

from pathlib import Path
from typing import Any

import pytest

from leaderboards.aggregate.row import HALLUCINATION
from leaderboards.pages.gallery import curve_plot
from tests.support.browsing.chromium import Chromium, needs_chromium
from tests.support.browsing.pages import HOSTILE_IN_A_BROWSER as HOSTILE
from tests.support.browsing.pages import results_of, told_by, write_pages
from tests.support.records.synthetic_records import failing, realistic_records

pytestmark = needs_chromium


def spoiled(one: dict[str, Any]) -> dict[str, Any]:
    one = one | {"policy": HOSTILE} if one["policy"] == "h2o" else one
    if (one["policy"], one["ratio"], one["task"]) == ("knorm", 0.9, "hops"):
        return failing(one, "it broke")
    return one


@pytest.fixture(scope="module")
def hovered_page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The page of a task, and what its plot of hallucinations has to say."""
    results = results_of(realistic_records(contexts=6, ratios=(0.3, 0.6, 0.9), change=spoiled))
    plot = told_by(curve_plot(results.rows, "base", "agnostic", HALLUCINATION))
    path = write_pages(tmp_path_factory.mktemp("site"), results).with_name("task-base.html")
    return path, {"plot": plot}


# The figure is not of the first.
UNFOLD = "document.querySelectorAll('details').forEach(each => { each.open = true; })"
CANVAS = (
    "[...document.querySelectorAll('.canvas')]"
    f".find(each => each.querySelector('title').textContent.startsWith('{HALLUCINATION.title}'))"
)
TIP = f"(() => {{ const tip = {CANVAS}.querySelector('.tip'); return tip && !tip.hidden ? tip.innerText : null; }})()"


def lines_of(names: dict[str, str], spot: list[Any]) -> list[str]:
    return [f"{names[str(spot[0])]} at {spot[3]}", *spot[4:]]


def point(browser: Chromium, spot: list[Any], away: float = 0, kind: str = "mouse") -> None:
    """Moves the pointer, or puts a finger, to a spot of the plot, or beside it."""
    frame = browser.evaluate(
        f"(() => {{ {CANVAS}.scrollIntoView({{block: 'center', behavior: 'instant'}}); const f = "
        f"{CANVAS}.querySelector('svg').getBoundingClientRect(); return [f.left, f.top, f.width]; "
        f"}})()"
    )
    scale = frame[2] / 324
    x, y = frame[0] + spot[1] * scale + away, frame[1] + spot[2] * scale
    if kind == "mouse":
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    else:
        browser.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


@pytest.mark.parametrize("width", [1280, 390])
def test_pointing_at_a_point_tells_its_numbers(
    browser: Chromium, hovered_page: tuple[Path, dict[str, Any]], width: int
) -> None:
    path, expected = hovered_page
    browser.complaints.clear()
    browser.open(path, width=width)
    browser.evaluate(UNFOLD)
    plot = expected["plot"]
    assert len(plot["spots"]) > 20
    for spot in plot["spots"][::5]:
        alone = [
            one for one in plot["spots"] if abs(one[1] - spot[1]) + abs(one[2] - spot[2]) < 3
        ] == [spot]
        point(browser, spot, away=1)
        text = browser.evaluate(TIP)
        assert text is not None
        if alone:
            assert text.split("\n") == lines_of(plot["names"], spot)
        inside = browser.evaluate(
            f"(() => {{ const t = {CANVAS}.querySelector('.tip').getBoundingClientRect();"
            " return t.left >= 0 && t.right <= document.documentElement.clientWidth; })()"
        )
        assert inside, "on a phone there is nothing beyond the page"
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.title") != "owned"
    assert browser.complaints == []


def test_the_arrow_keys_walk_along_a_policy_and_across_to_others(
    browser: Chromium, hovered_page: tuple[Path, dict[str, Any]]
) -> None:
    path, expected = hovered_page
    plot = expected["plot"]
    browser.open(path)
    browser.evaluate(UNFOLD)
    browser.press("Tab")
    browser.evaluate(f"{CANVAS}.focus()")
    assert browser.evaluate("document.activeElement.getAttribute('role')") == "group"
    assert "Hallucination rate" in browser.evaluate(
        "document.activeElement.getAttribute('aria-label')"
    )
    first = plot["spots"][0]
    assert browser.evaluate(TIP).split("\n")[0] == lines_of(plot["names"], first)[0]
    along = sorted(
        (spot for spot in plot["spots"] if spot[0] == first[0]), key=lambda spot: spot[1]
    )
    for key, spot in (
        ("ArrowRight", along[1]),
        ("End", along[-1]),
        ("ArrowLeft", along[-2]),
        ("Home", along[0]),
    ):
        browser.press(key)
        assert browser.evaluate(TIP).split("\n")[:2] == lines_of(plot["names"], spot)[:2], key
    browser.press("End")
    told = browser.evaluate(TIP).split("\n")[0]
    neighbours = []
    for key in ("ArrowDown", "ArrowUp"):  # at one end of the plot there is one alone
        browser.press(key)
        neighbours.append(browser.evaluate(TIP).split("\n")[0])
    assert {*neighbours} - {told}, "another policy"
    assert all(name.endswith(" at 0.9") for name in neighbours), "at the same level"
    browser.press("Escape")
    assert browser.evaluate(TIP) is None
