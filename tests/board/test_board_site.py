"""The site of the board: a table of all methods, a page for each, and no link that leads nowhere."""

import re
from pathlib import Path

import pytest

from docs.scripts.board import BoardRun, keep
from kvbench.board.pieces import open_pieces
from kvbench.publish.board.pages import publish_board
from kvbench.store.packing import write_run_file
from tests.support.browsing.links import follow_links
from tests.support.records.small_store import small_store

METHODS = ["snapkv", "knorm"]
CONTROLS = ["full", "oracle", "random", "recency"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of two pieces, of the same methods on two tasks."""
    folder = tmp_path_factory.mktemp("board")
    store = small_store(folder / "runs" / "one")
    job = store.run.job
    assert job is not None
    of_suite = job.model_copy(update={"suite": "board"})
    write_run_file(store.folder, store.run.model_copy(update={"job": of_suite}))
    store.run = store.run.model_copy(update={"job": of_suite})
    for task in ("base", "hops"):
        run = BoardRun(f"toy-{task}", ("--model", "reference", "--tasks", task), tuple(METHODS))
        keep(run, store, [*CONTROLS, *METHODS], folder / "records")
    (first,) = publish_board(open_pieces(folder / "records"), folder / "site")
    assert first.name == "index.html"
    return first.parent


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_each_method_has_a_page_and_a_row_that_leads_to_it(site: Path) -> None:
    table = read(site / "index.html")
    for name in [*METHODS, *CONTROLS[1:]]:
        row = table[table.index(f'data-name="{name}"') :].partition("</tr>")[0]
        assert f'<a href="method-{name}.html">' in row
        assert f"<h1>{name.replace('_', '_​')}</h1>" in read(site / f"method-{name}.html")


def test_no_link_leads_nowhere(site: Path) -> None:
    pages = sorted(site.glob("*.html"))
    assert len(pages) == 1 + len(METHODS) + len(CONTROLS) - 1 + 2
    assert follow_links(pages) > 30


def test_a_loss_leads_to_the_examples_of_its_policy_and_level(site: Path) -> None:
    table = read(site / "index.html")
    row = table[table.index('data-name="knorm"') :].partition("</tr>")[0]
    assert 'href="examples-base.html#policy=knorm&amp;level=0.5"' in row


def test_the_page_of_a_method_says_how_it_fails(site: Path) -> None:
    text = read(site / "method-knorm.html")
    assert "Keys of small norm." in text
    assert "arXiv 2406.11430" in text
    for column in ("falls silent", "answers wrongly", "makes a value up", "evidence kept"):
        assert f">{column}</th>" in text
    assert text.count("<svg") >= 2
    rows = re.findall(r'<th scope="row"><span>([^<]+)</span>', text)
    assert [row.replace("​", "") for row in rows] == [
        f"{task}, ratio {ratio}" for task in ("base", "hops") for ratio in ("0.5", "0.9")
    ]
