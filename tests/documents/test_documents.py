"""The README and docs say what is so: tables come from the registries, commands run, links lead somewhere."""

import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from kvbench.cli.program import application, main
from kvbench.documents import pages as documents
from kvbench.documents.pages import BLOCKS, DOCS, ROOT, blocks_of, fill_tables, pages
from kvbench.models.shipped import ADAPTERS, SHIPPED
from kvbench.system.errors import KVBenchError
from kvbench.system.markdown import table
from tests.support.records.kvpress_folders import evaluation

PAGES = {page.name: page for page in pages()}
COMMAND = re.compile(r"^(?:python -m )?kvbench (.+)$", re.MULTILINE)
# A single context here, which is too few for a verdict, and fewer figures: tests/figures draws all of them.
SMALLER = {
    r"--limit \d+": "--limit 1",
    "--formats png": "--formats png --only f1",
    r"(--suite routing .*)0\.5,0\.9": r"\g<1>0.9",
}
NEEDS = "# needs "  # marks a command that wants what a test machine has not
every_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


def commands() -> dict[str, None]:
    """Returns the commands of all fences for a shell, each once, in order: the README comes first."""
    fences = [
        fence for page in PAGES.values() for fence in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S)
    ]
    return dict.fromkeys(command for fence in fences for command in COMMAND.findall(fence))


def smaller(command: str) -> str:
    for words, fewer in SMALLER.items():
        command = re.sub(words, fewer, command)
    return command


@every_page
def test_tables_are_those_of_the_registries(page: Path) -> None:
    assert fill_tables(page.read_text(), page.name) == page.read_text(), f"{page.name} has drifted: make readme"


def test_every_table_stands_on_a_page() -> None:
    assert {name for page in PAGES.values() for name in blocks_of(page.read_text())} == set(BLOCKS)


def test_a_table_that_is_unknown_or_has_no_end_is_named() -> None:
    with pytest.raises(KVBenchError, match=r"x\.md: unknown table 'task'.*tasks"):
        fill_tables("<!-- begin task -->\n<!-- end task -->", "x.md")
    with pytest.raises(KVBenchError, match=r"x\.md: the table 'tasks' has no end"):
        fill_tables("<!-- begin tasks -->\n", "x.md")


def test_a_table_is_markdown() -> None:
    assert table(("a", "b"), [(1, "x")]) == "| a | b |\n| --- | --- |\n| 1 | x |"


@every_page
def test_pictures_and_links_are_there(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).is_file(), target


def test_the_documents_are_short_and_each_answers_its_question_first() -> None:
    """Words as ``wc -w`` counts them; ten lines are what a reader sees of a page without scrolling."""
    words = {name: len(page.read_text().split()) for name, page in PAGES.items()}
    assert words["README.md"] < 900
    assert sum(words.values()) < 12_000
    for name, page in PAGES.items():
        assert name in ("README.md", "index.md") or "**In short.**" in "".join(page.read_text().splitlines()[:3]), name


def test_the_readme_has_no_code_of_a_claim() -> None:
    assert re.findall(r"\b[EFNPR][1-9]\b", re.sub(r"\bF1\b", "", PAGES["README.md"].read_text())) == []


def test_the_readme_leads_to_every_page() -> None:
    readme = PAGES["README.md"].read_text()
    assert len((ROOT / "docs" / "architecture.md").read_text().splitlines()) < 150
    for page in DOCS.glob("*.md"):
        assert page == DOCS / "index.md" or f"](docs/{page.name})" in readme
        assert page.name in PAGES, "the index does not lead to it"


def test_the_documents_render_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.glob("*.html")} >= {
        Path(name).with_suffix(".html").name for name in PAGES
    } - {"README.html"}


def test_every_command_that_needs_more_than_a_test_machine_has_options_that_exist() -> None:
    marked = [command.split(NEEDS)[0] for command in commands() if NEEDS in command]
    assert marked
    for command in marked:
        name, *words = shlex.split(command)
        options = {option for parameter in application(name).params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_every_other_command_runs_in_the_order_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (press,) = set(re.findall(r"^```python\n(.*?)^```", PAGES["README.md"].read_text(), re.MULTILINE | re.DOTALL))
    (tmp_path / "loud_values.py").write_text(press)
    assert len(press.splitlines()) <= 20
    evaluation(tmp_path / "results" / "ruler", {"qa": {"string_match": 50.0}})
    monkeypatch.chdir(tmp_path)
    for command in commands():
        if NEEDS not in command:
            words = shlex.split(smaller(command), comments=True)
            monkeypatch.setattr("sys.argv", words)
            assert main(words) == 0, f"{command}\n{capsys.readouterr().err}"
    listed = (tmp_path / "site/index.html").read_text()
    assert all(f'href="{name}/index.html"' in listed for name in ("first", "budgets", "both", "study"))
    assert (tmp_path / "site/first/index.html").is_file()
    assert (tmp_path / "runs/first/summary.json").is_file()
    assert (tmp_path / "figures/f1-base-agnostic.png").is_file()
    assert "imported from kvpress" in (tmp_path / "site/imported.html").read_text()
    assert "snapkv+whitelist" in (tmp_path / "site/study/instructions.html").read_text()
    assert (
        "against knorm" in next((tmp_path / "site").glob("compare-*/compare-LoudValuesPress.html")).read_text().lower()
    )
    assert (tmp_path / "datasets/hops/data/test.parquet").is_file()


def test_a_model_has_its_scores_in_card_and_tables_once_they_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter needs a base that is fetched, so that its scores come later than its weights."""
    (adapter,) = ADAPTERS
    measured = documents.read_measured()["reference"]
    for models in (("reference",), ("reference", adapter)):
        monkeypatch.setattr(documents, "read_measured", partial(dict.fromkeys, models, measured))
        assert documents.model_card(adapter).count("## Scores with the full cache") == (adapter in models)
        for shown in (documents.full_cache(), documents.read_profiles()):
            assert [name for name in SHIPPED if f"`{name}`" in shown] == list(models)
