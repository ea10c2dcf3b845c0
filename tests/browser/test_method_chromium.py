"""The page on method and the downloads in a real browser: quiet, inside the width, and files that
hold the numbers."""

import json
import time
from pathlib import Path

import pandas as pd
import pytest

from kvbench.cli.program import main
from tests.support.browsing.chromium import (
    LOWEST_CONTRAST,
    Chromium,
    needs_chromium,
    on_every_screen,
)
from tests.support.browsing.pages import HOSTILE_IN_A_BROWSER as HOSTILE
from tests.support.records.kvpress_folders import evaluation
from tests.support.records.small_store import small_store

pytestmark = needs_chromium

DOWNLOADS = "[...document.querySelectorAll('a[download]')].map(each => each.href)"


@pytest.fixture(scope="module")
def hostile_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a run by somebody who calls the model something hostile, and of results from
    elsewhere."""
    folder = tmp_path_factory.mktemp("runs")
    store = small_store(folder / "small")
    content = json.loads((store.folder / "run.json").read_text())
    # A run with another is refused.
    seen = "".join(character for character in HOSTILE if character.isprintable())
    content["identity"]["model"] = content["command"] = content["job"]["model"] = seen
    (store.folder / "run.json").write_text(json.dumps(content))
    evaluation(
        folder / "results",
        {"qa": {"string_match": 50.0}},
        predicted=["=1+1", "Rome"],
        press_name=HOSTILE,
    )
    assert main(["site", str(store.folder), "--site", str(folder / "site")]) == 0
    assert main(["import-kvpress", str(folder / "results"), "--site", str(folder / "site")]) == 0
    return folder / "site"


@on_every_screen
@pytest.mark.parametrize("name", ["method.html", "imported.html"])
def test_a_page_is_quiet_fits_and_can_be_read(
    browser: Chromium, hostile_site: Path, name: str, width: int, scheme: str
) -> None:
    browser.open_quietly(hostile_site / name, width, scheme)
    assert browser.evaluate(LOWEST_CONTRAST) >= 4.5


def test_the_command_stands_on_the_page_as_it_is_to_be_typed(
    browser: Chromium, hostile_site: Path
) -> None:
    browser.open(hostile_site / "method.html")
    command = browser.evaluate("document.querySelector('.command').textContent")
    assert command.startswith("python -m kvbench run --model '</script><img src=")
    assert "--tasks base,hops --policies snapkv,knorm --limit 3" in command


def test_downloads_parse_back_to_what_the_pages_show(browser: Chromium, hostile_site: Path) -> None:
    browser.open(hostile_site / "method.html")
    links = browser.evaluate(DOWNLOADS)
    names = {link.rpartition("/")[2] for link in links}
    tables = ("cells", "board", "cliff", "cliff-summary")
    assert names == {*(f"{name}.csv" for name in tables), "records.parquet"}
    cells = pd.read_csv(hostile_site / "data/cells.csv").set_index(["task", "policy", "ratio"])
    browser.open(hostile_site / "task-base.html")
    shown = browser.evaluate(
        "[...document.querySelectorAll('.panel.right tbody.sortable tr')].map(row => "
        "[row.querySelector('th').textContent.trim(), ...[...row.querySelectorAll('td b')].map(e "
        "=> e.textContent)])"
    )
    assert len(shown) == 2 + 3
    for policy, *values in shown:
        assert values == [
            f"{100 * cells.loc[('base', policy, ratio), 'right']:.1f}" for ratio in (0.5, 0.9)
        ], policy


def test_a_download_begins_when_its_link_is_clicked(
    browser: Chromium, hostile_site: Path, tmp_path: Path
) -> None:
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for page, name in (
        ("method.html", "records.parquet"),
        ("index.html", "board.csv"),
        ("imported.html", "imported.csv"),
    ):
        browser.open(hostile_site / page)
        browser.evaluate(f"document.querySelector('a[download][href$=\"{name}\"]').click()")
        for _ in range(100):
            if (tmp_path / name).is_file():
                break
            time.sleep(0.05)
        assert (tmp_path / name).read_bytes() == (hostile_site / "data" / name).read_bytes()
