"""Each run has a folder of its own in ``site``, and the list there leads to all of them."""

import json
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest

from kvbench.cli.program import main
from kvbench.publish.claims import publish_register
from kvbench.publish.comparison import publish_comparison
from kvbench.publish.site_list import ENTRY_FILES, RUN
from kvbench.store.run_file import read_run_file
from kvbench.store.store import Store
from leaderboards.claims.registry import chosen_claims
from tests.support.browsing.links import follow_links
from tests.support.browsing.pages import Elements
from tests.support.records.kvpress_folders import evaluation
from tests.support.records.small_store import small_store

SITE = Path("site")


def shown_links(page: Path) -> list[str]:
    """Returns the addresses that a reader of a page can follow."""
    links = []
    for tag, attributes in Elements(page.read_text(encoding="utf-8")).found:
        address = attributes.get("href")
        if tag == "a" and address:
            links.append(address)
    return links


def run_of_one_task(of: Path, folder: Path) -> None:
    """Copies a run with its first task alone, as one of another seed, which stands on a board of
    its own."""
    shutil.copytree(of, folder)
    path = folder / "run.json"
    content = json.loads(path.read_text())
    kept, *others = content["identity"]["tasks"]
    content["identity"] |= {"tasks": [kept], "seed": 1}
    path.write_text(json.dumps(content))
    for task in others:
        for rows in folder.glob(f"*/{task['name']}"):
            shutil.rmtree(rows)


def links_of(page: Path) -> list[str]:
    return Elements(page.read_text(encoding="utf-8")).values("href")


def test_every_run_keeps_its_page_and_stands_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "an#other"):
        small_store(tmp_path / "runs" / name)
        assert main(["site", f"runs/{name}"]) == 0
    pages = [tmp_path / "site" / name / "index.html" for name in ("one", "an#other")]
    assert all(page.is_file() for page in pages)
    listed = tmp_path / "site/index.html"
    assert [link for link in links_of(listed) if link.endswith("/index.html")] == [
        "an%23other/index.html",
        "one/index.html",
    ], "the newest first"
    rows = Elements(listed.read_text(encoding="utf-8")).rows
    entry = json.loads((tmp_path / "site/one" / ENTRY_FILES[RUN]).read_text())
    assert [
        "one",
        "run",
        entry["model"],
        ", ".join(entry["tasks"]),
        entry["verdicts"],
        entry["created"][:16].replace("T", " "),
    ] in rows
    assert entry["verdicts"] == "4 open", "two methods, and two uses of two contexts"
    for page in pages:
        assert "../index.html" in shown_links(page)
    before = pages[0].read_bytes()
    assert main(["site", "runs/an#other"]) == 0
    assert pages[0].read_bytes() == before


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pages of a run, of a run of one task, of both together, of comparisons and
    of registers of claims beside and within them, and of imported results."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        store = small_store(Path("runs/one"))
        shutil.copytree(store.folder, "runs/compare-one")
        run_of_one_task(store.folder, Path("runs/base"))
        evaluation(folder / "results" / "x", {"qa": {"string_match": 60.0}})
        commands = (
            ["import-kvpress", "results"],
            ["site", "runs/one"],
            ["site", "runs/base"],
            ["site", "runs/one", "runs/base", "--site", "site/two of them"],
        )
        for command in commands:
            assert main(command) == 0, command
        for run, folder_of_page in (("compare-one", None), ("one", SITE / "one")):
            store = Store.open(Path("runs") / run)
            publish_comparison(store, store.frame(), "snapkv", ["random"], folder_of_page, {})
        for folder_of_page in (None, SITE / "one"):
            publish_register(chosen_claims("R1"), "reference", {"routes": store}, 0, folder_of_page)
    return folder / SITE


def test_every_link_leads_to_a_page_and_to_a_place_on_it(made: Path) -> None:
    assert follow_links(sorted(made.rglob("*.html"))) > 200


def test_the_list_a_board_and_the_method_are_reached_from_every_page(made: Path) -> None:
    pages = {page.resolve() for page in made.rglob("*.html")}
    assert {page.parent.name for page in pages} == {
        "site",
        "one",
        "base",
        "two of them",
        "compare-one",
        "claims-reference",
    }
    leads_to = {
        page: {
            target
            for link in shown_links(page)
            if (target := (page.parent / unquote(link.partition("#")[0])).resolve()) in pages
        }
        for page in pages
    }
    listed = (made / "index.html").resolve()
    for page, targets in leads_to.items():
        if page == listed:
            continue
        assert listed in targets, f"{page} does not link to the list"
        assert {"index.html", "method.html"} <= {
            target.name for target in targets - {listed} | {page}
        } or page.parent == made
    assert reached(leads_to, listed) == pages, "a page that nothing leads to"


def reached(leads_to: dict[Path, set[Path]], first: Path) -> set[Path]:
    found, ahead = {first}, [first]
    while ahead:
        new = leads_to[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def test_claims_lead_to_the_run_behind_them_and_the_run_to_them(made: Path) -> None:
    """The pages of the run are older than the register, and lead to it by the list."""
    assert "../one/index.html" in shown_links(made / "claims-reference/claims.html")
    for name in ("one", "two of them"):
        assert "../index.html" in shown_links(made / name / "index.html")
    listed = made / "index.html"
    assert {"claims-reference/claims.html", "one/claims.html"} <= set(shown_links(listed))
    rows = Elements(listed.read_text(encoding="utf-8")).rows
    assert ["claims-reference", "claims"] in [row[:2] for row in rows]


def test_no_command_changes_the_pages_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of ``site`` too, where a folder has a list of its own; a run that is published again
    leads directly to what has come beside it."""
    monkeypatch.chdir(tmp_path)
    store = small_store(Path("runs/one"))
    evaluation(Path("results/x"), {"qa": {"string_match": 60.0}})
    assert main(["site", "runs/one", "--site", "out"]) == 0
    out = Path("out")
    listed = out / "all-runs.html"
    before = {page: page.read_bytes() for page in out.glob("*.html") if page != listed}
    assert len(before) > 3
    publish_comparison(store, store.frame(), "snapkv", ["random"], out, {})
    publish_register(chosen_claims("R1"), "reference", {"routes": store}, 0, out)
    assert main(["import-kvpress", "results", "--site", "out"]) == 0
    assert {page: page.read_bytes() for page in before} == before
    kinds = [row[:2] for row in Elements(listed.read_text(encoding="utf-8")).rows]
    assert ["one", "run"] in kinds
    assert ["compare-snapkv", "comparison of snapkv"] in kinds
    assert ["imported", "imported results"] in kinds
    others = {"claims.html", "imported.html"}
    assert {"index.html", "compare-snapkv.html", *others} <= set(shown_links(listed))
    front = out / "index.html"
    assert "all-runs.html" in shown_links(front)
    assert others.isdisjoint(shown_links(front))
    assert main(["site", "runs/one", "--site", "out"]) == 0
    assert others < set(shown_links(front))


def test_the_list_has_the_last_run_of_a_folder_and_no_removed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second", "third"):
        small_store(Path("runs") / name)
    for name, folder in (("first", "same"), ("second", "same"), ("third", "other")):
        assert main(["site", f"runs/{name}", "--site", f"site/{folder}"]) == 0
    listed = SITE / "index.html"
    assert {"same/index.html", "other/index.html"} < set(shown_links(listed))
    entry = json.loads((SITE / "same" / ENTRY_FILES[RUN]).read_text())
    assert entry["runs"] == ["second"]
    shutil.rmtree(SITE / "same")
    assert main(["site", "runs/third", "--site", "site/other"]) == 0
    assert "other/index.html" in shown_links(listed)
    assert "same/index.html" not in shown_links(listed)


def test_a_comparison_leads_to_the_run_of_the_same_setting_and_says_what_made_it(
    made: Path,
) -> None:
    (beside,) = (made / "compare-one").glob("compare-*.html")
    runs = {link.split("/")[1] for link in shown_links(beside) if link.endswith("/method.html")}
    assert len(runs) == 1
    assert runs < {"one", "base", "two%20of%20them"}
    run, page = read_run_file(made.parent / "runs/compare-one"), beside.read_text(encoding="utf-8")
    revision = run.identity.git_revision
    assert revision is not None
    for told in (revision[:10], run.created[:10], f"<code>{run.command}</code>", "3 of each task"):
        assert told in page
    within = made / "one" / beside.name
    assert {"index.html", "method.html", "../index.html"} <= set(shown_links(within))
    rows = Elements((made / "index.html").read_text(encoding="utf-8")).rows
    assert sorted(row[1] for row in rows if row[0].startswith(("one", "compare-snapkv"))) == [
        "claims",
        "comparison of snapkv",
        "run",
    ]


@pytest.mark.parametrize(
    ("command", "site"),
    [(["run"], "site"), (["compare", "snapkv"], "./site/"), (["site", "runs/x"], "ABSOLUTE")],
)
def test_the_list_is_not_replaced_by_the_page_of_a_run(
    command: list[str],
    site: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    small_store(tmp_path / "runs/x")
    given = str(tmp_path / "site") if site == "ABSOLUTE" else site
    assert main([*command, "--site", given]) == 1
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert "give site/NAME" in error
    assert not (tmp_path / "site").exists()
