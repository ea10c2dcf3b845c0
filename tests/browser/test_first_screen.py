"""The first screen in a real browser: the matrix and a number are in view, nothing is cut off, and
links lead on."""

import re
from pathlib import Path

import pytest

from leaderboards.pages.front import FRONT, page_renderers
from leaderboards.pages.results import Results, task_page
from leaderboards.rendering.templating import Neighbours
from policies import POLICIES
from tests.support.browsing.chromium import Chromium, needs_chromium
from tests.support.browsing.pages import results_of, write_pages
from tests.support.records.synthetic_records import realistic_records

pytestmark = needs_chromium
WIDTHS = (390, 1300, 1920)
HEIGHT = 900
TASKS = ["base", "hops", "long_context", "arithmetic"]
# Of the cells of a table that are shown, the texts that are wider than their cell, or stick out of
# the window.
CUT = """selector => [...document.querySelectorAll(selector)].filter(each => each.offsetParent !== null)
  .flatMap(cell => [...cell.querySelectorAll('b, .sign')].filter(text => getComputedStyle(text).clipPath === 'none'
    && text.offsetParent !== null)
  .filter(text => { const [inner, outer] = [text, cell].map(one => one.getBoundingClientRect());
    return inner.left < outer.left - 1 || inner.right > outer.right + 1 || text.scrollWidth > text.clientWidth + 1
      && getComputedStyle(text).display !== 'inline'; })
  .map(text => text.textContent))"""


@pytest.fixture(scope="module")
def results() -> Results:
    return results_of(realistic_records(tasks=TASKS, contexts=6), "reference")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, results: Results) -> Path:
    return write_pages(tmp_path_factory.mktemp("site"), results).parent


@pytest.fixture(scope="module")
def every_use(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run of the size of the default one; one policy masks, and loses nothing at any
    ratio."""
    tasks = [*TASKS, "knowledge", "coreference", "multi_entity", "multi_presence", "instructions"]
    policies = [policy.name for policy in POLICIES.values() if policy.by_default]
    records = realistic_records(tasks=tasks, policies=policies, contexts=6, questions=2)
    masks = records["policy"] == "adakv_snapkv"
    right = {"f1": 100.0, "right": True, "hallucinated": False, "abstained": False}
    records.loc[masks, list(right)] = list(right.values())
    records.loc[masks, "kv_bytes"] = records.loc[records["policy"] == "full", "kv_bytes"].max()
    return write_pages(tmp_path_factory.mktemp("every-use"), results_of(records, "reference"))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_matrix_and_a_number_are_on_the_first_screen(
    browser: Chromium, site: Path, width: int
) -> None:
    browser.open_quietly(site / FRONT, width)
    matrix = "document.querySelector('.uses')"
    sentence = browser.evaluate("document.querySelector('.finding').getBoundingClientRect().bottom")
    box = browser.evaluate(
        f"(({{top, bottom}}) => [top, bottom])({matrix}.tBodies[0].getBoundingClientRect())"
    )
    assert 0 < sentence < box[0] < box[1] <= HEIGHT, (
        "the answer in words, and all policies but controls"
    )
    assert re.search(r"\d", browser.evaluate(f"{matrix}.querySelector('tbody').textContent"))
    header = browser.evaluate("document.querySelector('header').getBoundingClientRect().height")
    assert header <= 64, "one line, or two low ones on a phone"
    wider = (
        "(box => box.scrollWidth - box.clientWidth)(document.querySelector('.uses').parentElement)"
    )
    assert browser.evaluate(wider) <= 0, "the matrix needs no scrolling"
    assert browser.evaluate(f"({CUT})('.uses td')") == []


@pytest.mark.parametrize("width", [390, 1280, 1300, 1920])
def test_a_matrix_of_every_use_and_twelve_policies_is_in_view_and_cuts_nothing(
    browser: Chromium, every_use: Path, width: int
) -> None:
    browser.open_quietly(every_use, width)
    matrix = "document.querySelector('.uses')"
    assert browser.evaluate(f"{matrix}.tHead.rows[0].cells.length") == 8
    assert browser.evaluate(f"{matrix}.querySelectorAll('tbody tr').length") == 11
    assert "adakv_\u200bsnapkv 0 bytes" in browser.evaluate(f"{matrix}.textContent")
    wider = "(box => box.scrollWidth - box.clientWidth)"
    assert browser.evaluate(f"{wider}({matrix}.parentElement)") <= 0
    policies = f"[...{matrix}.tBodies[0].rows].map(row => row.getBoundingClientRect().bottom)"
    in_view = sum(bottom <= HEIGHT for bottom in browser.evaluate(policies))
    assert in_view >= (5 if width == 390 else 7), (
        "on a phone a cell is as high as its interval needs"
    )
    assert browser.evaluate(f"({CUT})('.uses td')") == []
    chart = browser.evaluate(
        "document.querySelector('.screen figure svg').getBoundingClientRect().top"
    )
    assert width == 390 or chart <= HEIGHT - 100, "the trade-off is in view too"
    legend = (
        "document.querySelector('.short-key')"
        if width == 390
        else "document.querySelector('.keys')"
    )
    assert 0 < browser.evaluate(f"{legend}.getBoundingClientRect().bottom") <= HEIGHT, (
        "and what the cells mean"
    )
    board = (
        "[...document.querySelectorAll('.board .scroll')].find(each => each.offsetParent !== null)"
    )
    hint = browser.evaluate(f"getComputedStyle({board}, '::before').content")
    assert ("sideways" in hint) == (width == 390)
    assert width == 390 or browser.evaluate(f"{wider}({board})") <= 0


@pytest.mark.parametrize(("contexts", "muted"), [(6, True), (10, False)])
def test_verdicts_are_muted_and_hatched_below_ten_contexts_with_a_warning(
    browser: Chromium, tmp_path: Path, contexts: int, muted: bool
) -> None:
    records = realistic_records(tasks=["base", "hops"], contexts=contexts, ratios=[0.1, 0.5])
    browser.open_quietly(write_pages(tmp_path, results_of(records)), 1300)
    verdicts = "[...document.querySelectorAll('.uses td.safe, .uses td.unsafe, .board td.verdict')]"
    strengths = browser.evaluate(
        f"{verdicts}.map(each => "
        f"Number(getComputedStyle(each).backgroundColor.match(/[\\d.]+/g)[3] ?? 1))"
    )
    assert len(strengths) > 10
    coloured = [strength for strength in strengths if strength]
    assert (max(coloured) < 0.2) == muted
    hatched = browser.evaluate(
        f"{verdicts}.map(each => getComputedStyle(each).backgroundImage !== 'none')"
    )
    assert set(hatched) == {muted}
    warning = browser.evaluate(
        "document.getElementById('safe').textContent.includes('verdicts say little')"
    )
    assert warning == muted
    note = browser.evaluate(
        "document.querySelector('.board .quiet').textContent.includes('cells are hatched')"
    )
    assert note == muted


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", [FRONT, task_page("hops")])
def test_every_link_of_the_header_is_in_view(
    browser: Chromium, site: Path, results: Results, page: str, width: int
) -> None:
    """With the link to the list of all runs, which a folder in ``site`` has, and without a header
    that scrolls."""
    listed = site / f"listed-{page}"
    neighbours = Neighbours("../index.html")
    render_page = page_renderers([results], neighbours=neighbours)[page]
    listed.write_text(render_page(), encoding="utf-8")
    browser.open_quietly(listed, width)
    links = browser.evaluate("""[...document.querySelectorAll('header a')].map(link => {
      const box = link.getBoundingClientRect(), middle = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
      return [link.textContent, box.left, box.right, link.contains(document.elementFromPoint(...middle))];
    })""")
    listed.unlink()
    assert [text for text, *_ in links][-1] == "All runs"
    assert len(links) == (5 if page == FRONT else 4)
    assert all(0 <= left < right <= width and is_on_top for _, left, right, is_on_top in links), (
        links
    )
    header = "(box => box.scrollWidth - box.clientWidth)(document.querySelector('header nav'))"
    assert browser.evaluate(header) <= 0


def test_pages_lead_to_what_is_there(site: Path) -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in site.glob("*.html")}
    for name, page in pages.items():
        links = {link.partition("#")[0] for link in re.findall(r'href="([^"#][^"]*)"', page)}
        assert name == FRONT or FRONT in links
        assert "method.html" in links
    assert {f"task-{task}.html" for task in TASKS} <= set(
        re.findall(r'href="([^"]+)"', pages[FRONT])
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1300])
def test_each_cell_has_verdict_level_difference_and_interval_and_unsafe_is_told_from_open(
    browser: Chromium, tmp_path: Path, width: int, scheme: str
) -> None:
    records = realistic_records(tasks=TASKS, contexts=12, ratios=[0.25, 0.5])
    browser.open_quietly(write_pages(tmp_path, results_of(records, "reference")), width, scheme)
    cells = browser.evaluate(
        "[...document.querySelectorAll('.uses td')].map(cell => cell.innerText.replace(/\\s+/g, ' "
        "'))"
    )
    verdict = r"[✓?✕][≤≥]?[\d.]+" if width == 390 else r"(safe to|open at|unsafe from) [\d.]+"
    assert len(cells) > 20
    for cell in cells[3 * len(TASKS) :]:
        assert re.match(rf" ?{verdict}\?? [+−]?[\d.]+ \[[+−]?[\d.]+, [+−]?[\d.]+\]", cell), cell
    colours = "selector => getComputedStyle(document.querySelector(selector)).backgroundColor"
    ground, unsafe = (
        browser.evaluate(f"({colours})('{selector}')")
        for selector in (".uses td.open", ".uses td.unsafe")
    )
    strength = float(re.findall(r"[\d.]+", unsafe)[3])
    assert ground == "rgba(0, 0, 0, 0)"
    assert strength > 0.1
