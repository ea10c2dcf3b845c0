"""Each run has a folder of its own in ``site``, and the list there leads to all of them."""

import json
from pathlib import Path

import pytest

from kvbench.cli.program import main
from kvbench.publish.site_list import ENTRY_FILE
from tests.support.pages import Elements
from tests.support.small_store import small_store


def links_of(page: Path) -> list[str]:
    return Elements(page.read_text(encoding="utf-8")).values("href")


def test_every_run_keeps_its_page_and_stands_in_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "an#other"):
        small_store(tmp_path / "runs" / name)
        assert main(["site", f"runs/{name}"]) == 0
    pages = [tmp_path / "site" / name / "index.html" for name in ("one", "an#other")]
    assert all(page.is_file() for page in pages)
    listed = tmp_path / "site/index.html"
    assert [link for link in links_of(listed) if link.endswith("/index.html")] == [
        "../index.html",
        "an%23other/index.html",
        "one/index.html",
    ], "the newest first"
    rows = Elements(listed.read_text(encoding="utf-8")).rows
    entry = json.loads((tmp_path / "site/one" / ENTRY_FILE).read_text())
    assert ["one", "run", entry["model"], ", ".join(entry["tasks"]), entry["created"][:16].replace("T", " ")] in rows
    for page in pages:
        assert '<li data-page="../index.html">' in page.read_text(encoding="utf-8")
    before = pages[0].read_bytes()
    assert main(["site", "runs/an#other"]) == 0
    assert pages[0].read_bytes() == before


def test_a_folder_elsewhere_is_in_no_list_and_a_broken_entry_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small_store(tmp_path / "runs/x")
    assert main(["site", "runs/x", "--out", "elsewhere/x"]) == 0
    assert not (tmp_path / "elsewhere/index.html").exists()
    assert '<li hidden data-page="../index.html">' in (tmp_path / "elsewhere/x/index.html").read_text()
    broken = tmp_path / "site/broken" / ENTRY_FILE
    broken.parent.mkdir(parents=True)
    broken.write_text("[]")
    assert main(["site", "runs/x"]) == 0
    assert "broken" not in (tmp_path / "site/index.html").read_text()
