"""A site removes the files of an earlier one from its folder, and no others."""

import json
from pathlib import Path

import pytest

from kvbench.cli.program import main
from kvbench.publish.site_list import LIST_FILE, remove_former_files
from tests.support.records.small_store import small_store


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def test_what_the_last_site_wrote_and_this_one_did_not_is_removed(tmp_path: Path) -> None:
    make(tmp_path, "index.html", "task-base.html", "data/cells.csv", "data/instructions-gain.csv", "task-list.html")
    remove_former_files(tmp_path, ["index.html", "task-base.html", "data/cells.csv", "data/instructions-gain.csv"])
    remove_former_files(tmp_path, ["index.html", "data/cells.csv"])
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"index.html", "data/cells.csv", "task-list.html", LIST_FILE}
    assert json.loads((tmp_path / LIST_FILE).read_text()) == ["data/cells.csv", "index.html"]


@pytest.mark.parametrize(
    "listed",
    [
        '["../mine", "/etc/x", "data/../mine", "..", "data/..", "a/b", 3, "folder", "gone"]',
        '{"mine": 1}',
        "[",
        "[" * 100_000,
        "\udcff",
    ],
)
def test_a_list_that_was_edited_leads_nowhere_else(tmp_path: Path, listed: str) -> None:
    site = tmp_path / "site"
    make(tmp_path, "mine", "site/data/x", "site/a/b", "site/folder/y")
    (site / LIST_FILE).write_bytes(listed.encode("utf-8", "surrogateescape"))
    remove_former_files(site, ["index.html"])
    assert all((tmp_path / name).exists() for name in ("mine", "site/data/x", "site/a/b", "site/folder/y"))
    assert json.loads((site / LIST_FILE).read_text()) == ["index.html"]


def test_the_command_leaves_files_of_the_user_and_takes_away_tasks_that_are_gone(tmp_path: Path) -> None:
    store, site = small_store(tmp_path / "runs/small"), tmp_path / "site"
    mine = ("task-list.html", "examples-of-mine.html", "instructions.html", "data/instructions-mine.csv")
    make(site, *mine)
    (site / "task-x.html").mkdir()
    assert main(["site", str(store.folder), "--site", str(site)]) == 0
    listed = json.loads((site / LIST_FILE).read_text())
    assert {"index.html", "task-base.html", "examples-hops.html", "data/board.csv", "data/records.parquet"} <= set(
        listed
    )
    assert all((site / name).is_file() for name in listed)
    (site / LIST_FILE).write_text(json.dumps([*listed, "task-gone.html"]))
    make(site, "task-gone.html")
    assert main(["site", str(store.folder), "--site", str(site)]) == 0
    assert not (site / "task-gone.html").exists()
    assert all((site / name).is_file() for name in mine)
