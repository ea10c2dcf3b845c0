"""The README and docs say what is so: tables come from the registries, commands run, links lead
somewhere."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import kvbench.checks.patient
from docs.scripts.needles import GUESS
from docs.scripts.tables import (
    BLOCKS,
    DOCS,
    MEASURED,
    ROOT,
    blocks_of,
    examined,
    fill_tables,
    pages,
)
from kvbench.cli.program import COMMANDS, application, main
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import CommandLine
from tests.support.records.kvpress_folders import evaluation

PAGES = {page.name: page for page in pages()}
COMMAND = re.compile(r"^(?:python -m )?kvbench (.+)$", re.MULTILINE)
# A single context of its own length here, one ratio to compare at, and the toy model where no run
# of before is read: tests/checks and tests/claims try more.
SMALLER = {
    r"^(run .*)--limit \d+": r"\1--limit 1 --context-tokens native --max-new-tokens 6",
    r"^(compare .*)--limit \d+": r"\1--limit 1 --context-tokens native --ratios 0.5",
    r"^(doctor|claims) .*": r"\g<0> --model TOY",
    r"--limit \d+": "--limit 1",
    r"^check-submission .*": r"\g<0> --replay 1",
}
NEEDS = "# needs "  # marks a command that wants what a test machine has not
# Reference and code, which a reader looks up: docstrings, a notebook, and an example.
LOOKED_UP = re.compile(
    r"<!-- begin (library|first press|log json) -->.*?<!-- end \1 -->", re.DOTALL
)
every_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


def commands() -> list[str]:
    """Returns the commands of all fences for a shell, each once, in order: the README comes
    first."""
    fences = [
        fence
        for page in PAGES.values()
        for fence in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S)
    ]
    return list(dict.fromkeys(command for fence in fences for command in COMMAND.findall(fence)))


def smaller(command: str) -> str:
    for words, fewer in SMALLER.items():
        command = re.sub(words, fewer, command)
    return command


@every_page
def test_tables_are_those_of_the_registries(page: Path) -> None:
    assert fill_tables(page.read_text(), page.name) == page.read_text(), (
        f"{page.name} has drifted: make readme"
    )


def test_every_table_stands_on_a_page() -> None:
    assert {name for page in PAGES.values() for name in blocks_of(page.read_text())} == set(BLOCKS)


def test_a_table_that_is_unknown_or_has_no_end_is_named() -> None:
    with pytest.raises(KVBenchError, match=r"x\.md: unknown table 'task'.*tasks"):
        fill_tables("<!-- begin task -->\n<!-- end task -->", "x.md")
    with pytest.raises(KVBenchError, match=r"x\.md: the table 'tasks' has no end"):
        fill_tables("<!-- begin tasks -->\n", "x.md")


@every_page
def test_pictures_and_links_are_there(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).is_file(), target


def test_the_documents_are_short_and_each_answers_its_question_first() -> None:
    """Words as ``wc -w`` counts them; ten lines are what a reader sees of a page without
    scrolling."""
    words = {}
    for name, page in PAGES.items():
        lines = LOOKED_UP.sub("", page.read_text()).splitlines()
        # Numbers stand in tables, which a reader looks up. The register of papers is nearly all
        # tables.
        read = [line for line in lines if name == "papers.md" or not line.lstrip().startswith("|")]
        words[name] = len(" ".join(read).split())
    assert words["README.md"] < 900
    # The register has a row for each table of the five texts, and a reader looks one up: it is
    # counted apart.
    assert words["papers.md"] < 2_600
    # Of these, 400 say what texts E and F damage and when, and how figures for paper are drawn; 400
    # more what the pages show of texts N, R and P, and why claims are not decided.
    assert sum(words.values()) - words["papers.md"] < 14_800
    for name, page in PAGES.items():
        assert name in ("README.md", "index.md") or "**In short.**" in "".join(
            page.read_text().splitlines()[:3]
        ), name


def sentences(text: str) -> list[str]:
    """Splits what is neither code, a table, a generated block nor a heading."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"<!-- begin.*?<!-- end.*?-->", "", text, flags=re.DOTALL)
    prose = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "!"))]
    return re.split(r"(?<=[.!?:])\s+", " ".join(prose))


def test_numbers_stand_in_tables() -> None:
    """A sentence that carries more than three numbers is a table that nobody has drawn."""
    number = re.compile(r"(?<![\w.])[-+±]?\d[\d,.]*")
    heavy = [
        sentence
        for page in PAGES.values()
        for sentence in sentences(page.read_text())
        if len(number.findall(sentence)) > 3
    ]
    assert heavy == []


def test_the_results_of_the_readme_stand_beside_the_full_cache_and_chance() -> None:
    rows = [line.split(" | ") for line in BLOCKS["needles"]().splitlines() if line[:2] == "| "]
    names = [row[0].removeprefix("| ") for row in rows]
    assert names[2] == "`full`"
    assert names[-1] == GUESS
    assert "`random`" in names
    assert {len(row) for row in rows} == {5}


def test_the_readme_has_no_code_of_a_claim() -> None:
    assert (
        re.findall(r"\b[EFNPR][1-9]\b", re.sub(r"\bF1\b", "", PAGES["README.md"].read_text())) == []
    )


def test_the_readme_leads_to_every_page() -> None:
    readme = PAGES["README.md"].read_text()
    for page in DOCS.glob("*.md"):
        assert page == DOCS / "index.md" or f"](docs/{page.name})" in readme
        assert page.name in PAGES, "the index does not lead to it"


def test_the_places_to_look_are_there() -> None:
    text = PAGES["architecture.md"].read_text()
    table = text.partition("## Where to look")[2].partition("\n## ")[0]
    places = re.findall(r"`([^`]+/[^`]*)`", table)
    assert len(places) > 10
    assert [place for place in places if not (ROOT / place).exists()] == []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents as pages, built once. A warning ends the build."""
    folder = tmp_path_factory.mktemp("documents")
    build = ["mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", *build], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_documents_render_without_a_warning(built: Path) -> None:
    assert {path.name for path in built.glob("*.html")} >= {
        Path(name).with_suffix(".html").name for name in PAGES
    } - {"README.html"}
    assert [path.name for path in built.rglob("*") if path.suffix in (".py", ".pyc")] == []
    assert not (built / "scripts").exists()


def test_the_documents_load_nothing_from_elsewhere(built: Path) -> None:
    """A page may lead to another host, and asks none while it is read."""
    html = [path.read_text() for path in built.glob("*.html")]
    assert html
    loaded = re.compile(
        r"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)"""
    )
    assert [address for page in html for address in loaded.findall(page)] == []
    styles = [path.read_text() for path in built.rglob("*.css")]
    assert styles
    foreign = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")
    assert [style[:80] for style in styles if foreign.search(style)] == []


def test_every_command_has_options_that_exist() -> None:
    for command in commands():
        name, *words = shlex.split(command, comments=True)
        application(name).make_context(name, words)


def test_each_command_runs_once_in_the_order_given(
    toy_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (press,) = set(
        re.findall(
            r"^```python\n(.*?)^```", PAGES["README.md"].read_text(), re.MULTILINE | re.DOTALL
        )
    )
    (tmp_path / "loud_values.py").write_text(press)
    assert len(press.splitlines()) <= 20
    evaluation(tmp_path / "results" / "ruler", {"qa": {"string_match": 50.0}})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kvbench.checks.patient, "LENGTHS", kvbench.checks.patient.LENGTHS[:2])
    first = {
        shlex.split(command)[0]: command for command in reversed(commands()) if NEEDS not in command
    }
    assert set(COMMANDS) - set(first) == {"bench", "ls", "fetch"}
    for command in commands():
        if command in first.values():
            words = shlex.split(smaller(command).replace("TOY", str(toy_folder)), comments=True)
            monkeypatch.setattr("sys.argv", words)
            assert main(words) == 0, f"{command}\n{capsys.readouterr().err}"
    assert 'href="first/index.html"' in (tmp_path / "site/index.html").read_text()
    assert (tmp_path / "runs/first/summary.json").is_file()
    assert (tmp_path / "figures/right-base-agnostic.png").is_file()
    assert "score, by kvpress" in (tmp_path / "site/imported.html").read_text()
    page = next((tmp_path / "site").glob("compare-*/compare-LoudValuesPress.html"))
    assert "against knorm" in page.read_text().lower()
    assert (tmp_path / "datasets/hops/data/test.parquet").is_file()


def test_each_verdict_against_a_text_has_a_reason_that_was_measured() -> None:
    against = {
        row["claim"]
        for rows in examined().values()
        for row in rows
        if row["claim_verdict"] == "does not hold"
    }
    assert against
    reasons = (MEASURED.parent / "claims.md").read_text().partition("## Why claims do not hold")[2]
    assert [claim for claim in sorted(against) if f"\n- {claim}: " not in reasons] == []


def test_the_figures_of_plan_in_the_readme_are_those_that_the_command_prints(
    cli: CommandLine,
) -> None:
    """Below the command stands a line of figures, ``name: figure; name: figure``."""
    text = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"^python -m kvbench (plan .+)$", text, re.MULTILINE)
    (stated,) = re.findall(r"^(answers: .+)\.$", text, re.MULTILINE)
    assert cli(*shlex.split(command), "--json", "--quiet") == 0
    printed = {row["what"]: row["how much"] for row in json.loads(cli.out)["tables"]["figures"]}
    figures = dict(one.split(": ") for one in stated.split("; "))
    assert len(figures) > 5
    assert figures == {name: printed.get(name) for name in figures}
