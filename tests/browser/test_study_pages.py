"""The pages of studies in a real browser: quiet, inside their width, readable, with nothing cut."""

from pathlib import Path

import pytest
from pandas import concat

from kvbench.studies.errors.suite import SUITE as ERRORS
from kvbench.studies.faults.suite import RATES
from kvbench.studies.faults.suite import SUITE as FAULTS
from leaderboards.studies.declaration import StudyInput, build_study
from leaderboards.studies.routing.study import STUDY as ROUTING
from leaderboards.studies.treatments.study import STUDY as TREATMENTS
from policies.declaration.names import split_outside_brackets
from tests.studies.test_causes import causes_input
from tests.support.browsing.chromium import (
    LOWEST_CONTRAST,
    Chromium,
    needs_chromium,
    on_every_screen,
)
from tests.support.browsing.pages import HOSTILE_IN_A_BROWSER as HOSTILE
from tests.support.records.damaged_records import treated_records
from tests.support.records.routing_tables import routing_input
from tests.support.records.study_records import instructions_page, records, small_study

pytestmark = needs_chromium

# Texts of cells in view that stick out of their cell, and of names that lie over a number.
CUT = """[...document.querySelectorAll('.list td, .list th')].filter(cell => cell.checkVisibility()).filter(cell => {
  const range = document.createRange(); range.selectNodeContents(cell);
  const [inner, outer] = [range, cell].map(one => one.getBoundingClientRect());
  return inner.left < outer.left - 1 || inner.right > outer.right + 1; }).map(cell => cell.textContent)"""
ROOM = """Math.min(...[...document.querySelectorAll('.list tbody tr')].filter(row => row.checkVisibility()).map(row =>
  1 - row.cells[0].getBoundingClientRect().width / row.closest('.scroll').clientWidth))"""
NARROWEST_NAME = """Math.min(...[...document.querySelectorAll('.list tbody th')].filter(each => each.checkVisibility())
  .map(each => each.getBoundingClientRect().width))"""
OVER = """Math.max(...[...document.querySelectorAll('.scroll')].filter(each => each.checkVisibility())
  .map(each => each.scrollWidth - each.clientWidth))"""
# Pairs of texts of a picture that lie over one another.
OVERLAPS = """[...document.querySelectorAll('figure svg')].filter(svg => svg.checkVisibility()).flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].filter(text => text.checkVisibility() && text.textContent.trim());
  const boxes = texts.map(text => text.getBoundingClientRect());
  return texts.flatMap((one, i) => texts.slice(i + 1).filter((_, k) => {
    const [a, b] = [boxes[i], boxes[i + 1 + k]];
    return a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  }).map(other => `${one.textContent} over ${other.textContent}`)); })"""
# Whether the foot of the page, its definitions and downloads, is within the window.
FOOT = """['definitions', 'downloads'].map(id => document.getElementById(id).getBoundingClientRect())
  .every(box => box.left >= 0 && box.right <= innerWidth && box.height > 50)"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages with the treatments of whole suites, most of which lose a quarter."""
    folder = tmp_path_factory.mktemp("site")
    rates = [float(rate) for rate in ("0", *RATES.split(",")) if rate != "0"]
    for suite, levels in ((FAULTS, [0.0, *rates]), (ERRORS, [0.0, 0.05, 1.0])):
        policies = split_outside_brackets(str(suite.policies))
        others = dict.fromkeys(set(policies) - {"bitflip"}, quarter_lost)
        records = treated_records(others, levels)
        if "bitflip" in policies:
            flips = treated_records({"bitflip": quarter_lost}, [1e-5, 1e-4])
            records = concat([records, flips[flips["policy"] == "bitflip"]], ignore_index=True)
        page, _ = build_study(TREATMENTS, StudyInput("reference", records))
        (folder / f"{suite.name}.html").write_text(page, encoding="utf-8")
    return folder


def quarter_lost(rate: float, question: int) -> bool:
    return not rate or question > 0


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("study", ["faults", "errors"])
def test_nothing_is_cut_and_names_leave_room(
    browser: Chromium, pages: Path, study: str, width: int
) -> None:
    browser.open_quietly(pages / f"{study}.html", width)
    rows = "document.querySelectorAll('.list tbody tr').length"
    assert browser.evaluate(rows) > 10
    assert browser.evaluate("document.querySelectorAll('figure svg').length") > 0
    assert browser.evaluate(CUT) == []
    assert browser.evaluate(OVERLAPS) == []
    assert browser.evaluate(FOOT)
    assert browser.evaluate(ROOM) > 0.5, "half of the window is for numbers"
    if width == 390:
        assert browser.evaluate(NARROWEST_NAME) > 100, "names are not broken into letters"
    if width == 1300:
        assert browser.evaluate(OVER) <= 1, "no table is wider than the window"


@pytest.fixture(scope="module")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model, a plug-in and a family of directives with hostile names."""
    rows = small_study().to_dict("records")
    hostile = [
        row
        | {
            "policy": str(row["policy"]).replace("snapkv", HOSTILE),
            "directive_families": [HOSTILE for _ in row["directive_families"]],
        }
        for row in rows
    ]
    path = tmp_path_factory.mktemp("site") / "instructions.html"
    path.write_text(instructions_page(HOSTILE, records(*hostile))[0], encoding="utf-8")
    return path


@on_every_screen
def test_the_page_is_quiet_fits_and_can_be_read(
    browser: Chromium, instructions: Path, width: int, scheme: str
) -> None:
    browser.open_quietly(instructions, width, scheme)
    assert browser.evaluate("document.querySelectorAll('figure svg path').length") > 10
    assert browser.evaluate("document.title") == "Instructions under compression · kvbench", (
        "hostile text ran"
    )
    assert browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert browser.evaluate(LOWEST_CONTRAST) >= 4.5


# Drawings that are wider than their figure, and texts of drawings that lie outside of them.
OUTSIDE = """[...document.querySelectorAll('figure svg')].filter(each => each.checkVisibility()).filter(svg => {
  const box = svg.getBoundingClientRect();
  return box.right > innerWidth || [...svg.querySelectorAll('text')].some(text => {
    const inner = text.getBoundingClientRect(); return inner.left < box.left - 2 || inner.right > box.right + 2; });
}).length"""


@pytest.fixture(scope="module")
def routing_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    for name, given in (("observed", routing_input()), ("causes", causes_input())):
        (folder / f"{name}.html").write_text(build_study(ROUTING, given)[0], encoding="utf-8")
    return folder


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("name", ["observed", "causes"])
def test_it_fits_and_nothing_is_cut(
    browser: Chromium, routing_pages: Path, name: str, width: int
) -> None:
    browser.open_quietly(routing_pages / f"{name}.html", width)
    assert browser.evaluate("document.querySelectorAll('figure svg').length") > 0
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth") is True
    assert browser.evaluate(CUT) == []
    assert browser.evaluate(OUTSIDE) == 0
