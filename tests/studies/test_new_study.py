"""A study is declared in one file; its page, its link, its definitions and its downloads are then
there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from leaderboards.studies import declaration as registry
from tests.support.records.small_store import small_store

ROOT = Path(__file__).parents[2]
DECLARED = """
from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.rendering.templating import Listing
from leaderboards.studies.declaration import Study, StudyContent, StudySection


def find(given):
    counts = given.records.groupby("policy", sort=True).size()
    rows = tuple((name, str(count)) for name, count in counts.items())
    listing = Listing("Answers", COLUMNS, rows)
    return StudyContent(
        parts=[StudySection("counts", "How often each was asked", "Counted.", listings=(listing,))],
        facts=[("Policies asked", str(len(counts)))],
        sheets=[Sheet.of("counts", "Answers of each policy", [dict(zip(COLUMNS, row)) for row in rows])],
    )


COLUMNS = ("policy", "number of answers")
STUDY = Study(
    name="counting",
    title="How much was asked",
    lead="How many answers does each policy give?",
    takes=lambda given: "base" in set(given.records["task"]),
    find=find,
    chapter=Chapter("counting", "Counting", (Definition("Number of answers", "All of a policy, counted."),)),
)
"""


@pytest.fixture(scope="module")
def counting_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a run, written with a copy of the package that has one more file."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(
        ROOT / "leaderboards", folder / "leaderboards", ignore=shutil.ignore_patterns("__pycache__")
    )
    (folder / "kvbench").symlink_to(ROOT / "kvbench")  # which takes its packages from beside itself
    declared = folder / "leaderboards/studies/counting/study.py"
    declared.parent.mkdir()
    declared.write_text(DECLARED)
    store = small_store(folder / "runs/small").folder
    done = subprocess.run(
        [sys.executable, "-m", "kvbench", "site", str(store), "--site", str(folder / "site/small")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "site/small"


def test_its_page_is_built_and_the_front_page_leads_to_it(counting_site: Path) -> None:
    page = (counting_site / "counting.html").read_text()
    assert "<h1>How much was asked</h1>" in page
    assert "How many answers does each policy give?" in page
    assert "<dt>Policies asked</dt>" in page
    assert 'id="counts"' in page
    assert '<th scope="row">full</th>' in page
    assert (
        '<a href="counting.html">How much was asked</a>'
        in (counting_site / "index.html").read_text()
    )


def test_its_definitions_are_on_the_page_of_method_and_its_downloads_given_out(
    counting_site: Path,
) -> None:
    method = (counting_site / "method.html").read_text()
    assert "All of a policy, counted." in method
    assert 'href="data/counts.csv"' in method
    assert (
        (counting_site / "data/counts.csv")
        .read_text()
        .startswith("model,setting,policy,number of answers")
    )
    assert 'href="data/counts.csv"' in (counting_site / "counting.html").read_text()


def test_a_run_without_what_a_study_takes_has_no_page_of_it(counting_site: Path) -> None:
    assert not (counting_site / "instructions.html").exists()


def test_the_publisher_names_no_study() -> None:
    names = [f"studies.{name}" for name in registry.studies()]
    sources = [path.read_text() for path in (ROOT / "kvbench/publish").glob("*.py")]
    assert sources
    assert not any(name in source for name in names for source in sources)
