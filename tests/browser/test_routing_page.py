"""The page on routes in a real browser: it fits, leads with routes that tell, and shows causes and other models."""

from pathlib import Path

import pytest

from leaderboards.studies.declaration import build_study
from leaderboards.studies.routing.study import STUDY
from tests.browser.test_treatment_pages import CUT
from tests.studies.test_causes import given as with_causes
from tests.support.browsing.chromium import Chromium, needs_chromium
from tests.support.records.routing_tables import routing_input

pytestmark = needs_chromium

# Drawings that are wider than their figure, and texts of drawings that lie outside of them.
OUTSIDE = """[...document.querySelectorAll('figure svg')].filter(each => each.checkVisibility()).filter(svg => {
  const box = svg.getBoundingClientRect();
  return box.right > innerWidth || [...svg.querySelectorAll('text')].some(text => {
    const inner = text.getBoundingClientRect(); return inner.left < box.left - 2 || inner.right > box.right + 2; });
}).length"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    for name, given in (("observed", routing_input()), ("causes", with_causes())):
        (folder / f"{name}.html").write_text(build_study(STUDY, given)[0], encoding="utf-8")
    return folder


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("name", ["observed", "causes"])
def test_it_fits_and_nothing_is_cut(browser: Chromium, pages: Path, name: str, width: int) -> None:
    browser.open_quietly(pages / f"{name}.html", width)
    assert (browser.evaluate("document.querySelectorAll('figure svg').length") > 0) == (name == "observed")
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth") is True
    assert browser.evaluate(CUT) == []
    assert browser.evaluate(OUTSIDE) == 0
