"""The page on instructions in a real browser: quiet, inside its width, readable, and hostile text inert."""

from pathlib import Path

import pytest

from tests.support.browsing.chromium import LOWEST_CONTRAST, Chromium, needs_chromium, on_every_screen
from tests.support.browsing.pages import HOSTILE_IN_A_BROWSER as HOSTILE
from tests.support.records.study_records import instructions_page, records, small_study

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def test_the_page_is_quiet_fits_and_can_be_read(browser: Chromium, page: Path, width: int, scheme: str) -> None:
    browser.open_quietly(page, width, scheme)
    assert browser.evaluate("document.querySelectorAll('figure svg path').length") > 10
    assert browser.evaluate("document.title") == "Instructions under compression · kvbench", "hostile text ran"
    assert browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert browser.evaluate(LOWEST_CONTRAST) >= 4.5
