"""The pages on faults, errors and equal bytes in a real browser: nothing is cut, and names leave room for numbers."""

from pathlib import Path

import pytest

from kvbench.experiments.treatment_suites import ERRORS, FAULTS, RATES
from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.errors.study import STUDY as ERRORS_STUDY
from leaderboards.studies.faults.study import STUDY as FAULTS_STUDY
from leaderboards.studies.page import build_study
from tests.support.browsing.chromium import Chromium, needs_chromium
from tests.support.records.damaged_records import treated_records

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


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages with the treatments of whole suites, most of which lose a quarter."""
    folder = tmp_path_factory.mktemp("site")
    rates = [float(rate) for rate in ("0", *RATES.split(",")) if rate != "0"]
    of_suites: dict[Study, tuple[tuple[str, ...], list[float]]] = {
        FAULTS_STUDY: (FAULTS.policies, [0.0, *rates]),
        ERRORS_STUDY: (ERRORS.policies, [0.0, 0.05, 1.0]),
    }
    for study, (policies, levels) in of_suites.items():
        records = treated_records(dict.fromkeys(policies, lambda rate, question: not rate or question > 0), levels)
        page, _ = build_study(study, StudyInput("reference", records))
        (folder / study.file_name()).write_text(page, encoding="utf-8")
    return folder


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("study", ["faults", "errors"])
def test_nothing_is_cut_and_names_leave_room(browser: Chromium, pages: Path, study: str, width: int) -> None:
    browser.open_quietly(pages / f"{study}.html", width)
    assert browser.evaluate("document.querySelectorAll('.list tbody tr').length") > 10
    assert browser.evaluate(CUT) == []
    assert browser.evaluate(ROOM) > 0.5, "half of the window is for numbers"
    if width == 390:
        assert browser.evaluate(NARROWEST_NAME) > 100, "names are not broken into letters"
    if width == 1300:
        assert browser.evaluate(OVER) <= 1, "no table is wider than the window"
