"""The page, its curves and the terminal table: what they say, that they are inert, and that they repeat exactly."""

import base64
import hashlib
import io
import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from leaderboards.aggregate.row import F1, GER, HALLUCINATION, SLOT_COVERAGE, SummaryRow
from leaderboards.aggregate.summary import summarise
from leaderboards.figures.curves import curve_plot
from leaderboards.figures.gallery import EXPECTED
from leaderboards.metrics import Measure
from leaderboards.pages.front import FRONT, METHOD, build_pages
from leaderboards.pages.imported import IMPORTED
from leaderboards.pages.results import Results
from leaderboards.rendering.style import line_styles
from leaderboards.terminal.table import terminal_table
from tests.support.synthetic_records import POLICIES, at_ratio, by_budget, failed, realistic_records

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
NAMES = (FRONT, "task-base.html", "task-hops.html")
LOCAL = ("#", "data:,", "data/", "examples-", "task-", FRONT, METHOD, IMPORTED)
RUN: dict[str, Any] = {
    "status": "complete",
    "identity": {
        "model": "reference",
        "seed": 0,
        "git_dirty": True,
        "git_revision": None,
        "tasks": [{"name": "base", "version": "1.0.0"}],
        "policies": [{"name": "snapkv", "paper": "arXiv 2404.14469", "arguments": {"window_size": 9}}],
    },
}


def spoiled(one: dict[str, Any]) -> dict[str, Any]:
    """h2o fails on one context of hops at 0.9; tova rewrites the cache."""
    if (one["task"], one["policy"], one["ratio"], one["example_index"]) == ("hops", "h2o", 0.9, 0):
        identity = ("task", "policy", "ratio", "example_id", "example_index", "question_id", "answerable")
        return failed("the scores hold NaN", **{name: one[name] for name in identity})
    if one["policy"] == "tova":
        return one | {"eviction_rate": None, "ger": None, "ger_by_layer": None, "slot_coverage": None}
    return one


@pytest.fixture(scope="module")
def rows() -> list[SummaryRow]:
    return summarise(realistic_records(contexts=6, change=spoiled))


@pytest.fixture(scope="module")
def pages(rows: list[SummaryRow]) -> dict[str, str]:
    return build_pages([Results.of(RUN, rows)])


@pytest.fixture(scope="module")
def page(pages: dict[str, str]) -> str:
    return pages[FRONT]


def front(rows: list[SummaryRow]) -> str:
    return build_pages([Results.of(RUN, rows)])[FRONT]


class Elements(HTMLParser):
    """All start tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._hidden = False
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._hidden = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._hidden else data

    def values(self, attribute: str) -> list[str]:
        return [value for _, attributes in self.found if (value := attributes.get(attribute))]


def row_with(policy: str, task: str = "base", reason: str | None = None, **measures: Any) -> SummaryRow:
    base: dict[str, Any] = {"task": task, "mode": "agnostic", "policy": policy, **at_ratio(0.5), "n": 4}
    return SummaryRow(**(base | measures), reason=reason)


def test_the_mean_is_on_the_front_page_and_each_task_on_its_own(pages: dict[str, str]) -> None:
    assert list(pages) == [FRONT, "task-base.html", "task-hops.html"]
    for page, title in zip(pages.values(), ("All tasks", "base", "hops"), strict=True):
        assert re.findall(r'<section id="section-\d+" class="task".*?<h2[^>]*>([^<]+)</h2>', page, re.DOTALL) == [title]
        assert page.count("<figure>") == len(EXPECTED) + 1, "curves, and a scatter"
    assert {"task-base.html", "task-hops.html"} <= set(Elements(pages[FRONT]).values("href"))


def test_the_page_names_every_policy_task_and_measure(page: str) -> None:
    text = Elements(page).text
    for name in (*POLICIES, "base", "hops", "All tasks", "agnostic", "reference"):
        assert name in text
    for measure in ("F1", "Hallucination rate", "Global Eviction Ratio", "Realised ratio"):
        assert f"{measure}, " in text, f"no table of {measure}"


def test_the_pages_show_the_numbers_of_the_rows(rows: list[SummaryRow], pages: dict[str, str]) -> None:
    shown = Counter(re.findall(r'class="value"[^>]*>([\d.]+)</', "".join(pages.values())))
    expected = Counter(F1.text(row.f1) for row in rows if row.f1 is not None)
    expected += Counter(
        HALLUCINATION.text(row.hallucination_rate) for row in rows if row.hallucination_rate is not None
    )
    expected += Counter(GER.text(row.ger) for row in rows if row.ger is not None)
    expected += Counter(f"{row.realised_ratio:.3f}" for row in rows if row.realised_ratio is not None)
    assert shown == expected


def test_a_blank_cell_says_why_in_place_and_in_a_footnote(pages: dict[str, str]) -> None:
    reason = "4 of 24 failed: the scores hold NaN"
    assert f'<td class="blank" title="{reason}">' in pages["task-hops.html"]
    assert re.search(rf'<li id="section-1-f1-note-1">{reason} \(h2o at 0\.9\)</li>', pages["task-hops.html"])
    assert f"hops: {reason} (h2o at 0.9)" in pages[FRONT], "the mean over tasks is blank too"
    assert "not applicable: the policy rewrites the cache (tova at 0.1, tova at 0.2" in pages["task-base.html"]


def test_best_and_tied_are_told_in_words() -> None:
    def ranked(policy: str, f1: float, **marks: Any) -> SummaryRow:
        return row_with(policy, f1=f1, f1_low=f1 - 2, f1_high=f1 + 2, **marks)

    apart = front([ranked("snapkv", 80, best_in=("f1",)), ranked("tova", 60), ranked("random", 90)])
    assert len(re.findall(r'best: </span><a class="value" [^>]*>80\.0<', apart)) == 1
    assert apart.count(">best: <") == 1
    close = front([ranked("snapkv", 80, tied_in=("f1",)), ranked("tova", 79, tied_in=("f1",))])
    assert (close.count(">best: <"), close.count(">tied: <")) == (0, 2)


def test_one_task_is_not_shown_twice() -> None:
    pages = build_pages([Results.of(RUN, summarise(realistic_records(tasks=["base"], contexts=2, ratios=[0.5])))])
    assert list(pages) == [FRONT]
    assert "All tasks" not in Elements(pages[FRONT]).text
    assert pages[FRONT].count("<figure>") == len(EXPECTED) + 1


def test_hostile_names_and_reasons_are_text() -> None:
    rows = [row_with(HOSTILE, task=HOSTILE, reason=HOSTILE), row_with("full", task=HOSTILE, ratio=0.0, f1=50.0)]
    more = [row_with("full", ratio=0.0, f1=40.0), row_with("full", task="all", ratio=0.0, f1=45.0)]
    run = {"model": HOSTILE, HOSTILE: [HOSTILE, {HOSTILE: HOSTILE}]}
    for of, least in ((rows, 5), (rows + more, 2)):
        for page in build_pages([Results.of(run, of)]).values():
            assert_inert(page, least)


def assert_inert(page: str, least: int) -> None:
    elements = Elements(page)
    scripts = [attributes.get("type") for tag, attributes in elements.found if tag == "script"]
    assert scripts.count(None) == 1
    assert set(scripts) <= {None, "application/json"}
    assert "img" not in {tag for tag, _ in elements.found}
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    assert elements.text.count(HOSTILE) >= least


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_loaded_from_anywhere(pages: dict[str, str], name: str) -> None:
    page = pages[name]
    elements = Elements(page)
    for attribute in ("src", "href", "xlink:href", "srcset", "action", "data"):
        assert all(value.startswith(LOCAL) for value in elements.values(attribute))
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []
    without_scripts = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)  # comments begin with two slashes
    assert re.findall(r"(?<!http:)//\w", without_scripts) == []
    assert set(re.findall(r"https?://[^\s\"'<>]+", page)) == {"http://www.w3.org/2000/svg"}, "a name, not an address"


@pytest.mark.parametrize("name", NAMES)
def test_only_the_script_of_the_page_may_run(pages: dict[str, str], name: str) -> None:
    page = pages[name]
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page.replace("&#39;", "'"))
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy.replace("&#43;", "+")


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_unique_and_every_link_and_label_has_its_target(pages: dict[str, str], name: str) -> None:
    page = pages[name]
    elements = Elements(page)
    ids = Counter(elements.values("id"))
    assert [name for name, count in ids.items() if count > 1] == []
    links = {value[1:] for value in elements.values("href") if value.startswith("#")}
    labels = {name for attribute in ("aria-labelledby", "aria-controls") for name in elements.values(attribute)}
    references = set(re.findall(r"url\(#([^)]+)\)", page))
    assert (links | labels | references) - set(ids) == set()


def test_tables_are_labelled_for_a_screen_reader(pages: dict[str, str]) -> None:
    tables = re.findall(r'<table class="heat">(.*?)</table>', "".join(pages.values()), flags=re.DOTALL)
    assert len(tables) == 3 * 4
    for table in tables:
        assert "<caption" in table
        assert table.count('<th scope="row">') == len(POLICIES)
        assert table.count('<th scope="col"') == 10


def test_the_same_rows_give_the_same_bytes_in_another_process(rows: list[SummaryRow], tmp_path: Path) -> None:
    some = [row for row in rows if row.policy in ("full", "snapkv", "random")]
    stored = tmp_path / "rows.txt"
    stored.write_text("\n".join(row.model_dump_json() for row in some))
    code = (
        "import pathlib, sys\n"
        "from leaderboards.aggregate.row import SummaryRow\n"
        "from leaderboards.pages.results import Results\n"
        "from leaderboards.pages.front import build_pages\n"
        "lines = pathlib.Path(sys.argv[1]).read_text().splitlines()\n"
        "rows = [SummaryRow.model_validate_json(line) for line in lines]\n"
        "pages = build_pages([Results.of({'seed': 0}, rows)])\n"
        "sys.stdout.buffer.write(''.join(pages.values()).encode())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", code, stored], capture_output=True, check=True, env=environment)
    assert done.stdout == "".join(build_pages([Results.of({"seed": 0}, some)]).values()).encode()


def lines_of(figure: str, index: int) -> list[ElementTree.Element]:
    return [group for group in ElementTree.fromstring(figure).iter() if group.get("data-policy") == str(index)]


def test_a_curve_has_a_line_for_each_policy_and_a_band_for_each_method(rows: list[SummaryRow]) -> None:
    for measure in EXPECTED:
        figure = curve_plot(rows, "base", "agnostic", measure).svg()
        for policy, style in line_styles(rows).items():
            classes = sorted(group.get("class", "") for group in lines_of(figure, style.index))
            expected = [] if style.control else ["band"]
            expected += ["policy"]
            if policy == "tova" and measure in (GER, SLOT_COVERAGE):  # it rewrites the cache
                expected = []
            assert classes == expected, (policy, measure.name)


def test_a_blank_cell_is_a_gap_in_its_curve() -> None:
    values = {0.1: 90.0, 0.2: 80.0, 0.3: None, 0.4: 60.0, 0.5: 50.0}
    rows = [
        row_with("full", ratio=0.0, f1=95.0),
        *(row_with("knorm", ratio=ratio, f1=f1) for ratio, f1 in values.items()),
    ]
    full, knorm = line_styles(rows).values()
    figure = curve_plot(rows, "base", "agnostic", F1).svg()
    paths = [group[0].get("d", "") for group in lines_of(figure, knorm.index)]
    assert [path.count("L") + 1 for path in paths] == [3, 2], "from the full cache over two ratios, a gap, and two more"
    (reference,) = lines_of(figure, full.index)
    start, end = re.findall(r"[ML] ([\d.]+) ([\d.]+)", reference[0].get("d", ""))
    assert start[1] == end[1], "the full cache is a horizontal line"
    assert re.findall(r"M ([\d.]+) ([\d.]+)", paths[0]) == [start], "a policy starts where the full cache is"


def test_policies_are_told_apart_without_colour() -> None:
    rows = [row_with(f"policy-{number}") for number in range(24)] + [row_with(policy) for policy in ("full", "random")]
    styles = line_styles(rows)
    assert len({(style.marker, style.dashes) for style in styles.values()}) == len(rows)
    assert all(style.control and not style.marker for style in list(styles.values())[-2:])


def printed(rows: list[SummaryRow], measure: Measure) -> str:
    """The table as a terminal of 80 columns shows it."""
    file = io.StringIO()
    Console(width=80, file=file).print(terminal_table(rows, measure))
    return file.getvalue()


def test_the_terminal_table_fits_80_columns_and_loses_no_policy(rows: list[SummaryRow]) -> None:
    many = [row_with("a/very/long/path/to/file.py:MyPress", "all", level=step / 20, f1=100.0) for step in range(20)]
    for of_run, policies in ((rows, list(POLICIES)), (many, ["a/very/long/path/…"])):
        for measure in (F1, HALLUCINATION):
            lines = printed(of_run, measure).splitlines()
            assert max(map(len, lines)) <= 80
            assert not [line for line in lines[3:] if "…" in line.removeprefix(policies[0])], "no number is cut"
            assert [line.split()[0] for line in lines[3:]] == policies


def in_budgets(one: dict[str, Any]) -> dict[str, Any]:
    """The record as if not 0.5 and 0.9 had been asked for, but 64 and 16 tokens."""
    return by_budget(one, {0.5: 64, 0.9: 16})


def test_budgets_are_shown_as_tokens_wherever_ratios_are() -> None:
    rows = summarise(realistic_records(tasks=["base"], ratios=[0.5, 0.9], contexts=4, change=in_budgets))
    page = front(rows)
    text = Elements(page).text
    assert "asked budget: tokens of each context to keep in every head" in text
    assert "<dt>Asked budgets</dt><dd>16 to 64</dd>" in page
    assert "asked ratio: the share" not in text
    lines = printed(rows, F1).splitlines()
    assert "by the tokens kept in a head" in " ".join(" ".join(lines[:2]).split())
    assert next(line for line in lines if line.startswith("policy")).split() == ["policy", "16", "64", "all"]
    figure = curve_plot(rows, "base", "agnostic", F1).svg()
    texts = [element for element in ElementTree.fromstring(figure).iter() if element.tag.endswith("}text")]
    ticks = {"".join(element.itertext()).strip() for element in texts}
    assert {"16", "64", "asked budget, in tokens of a head"} <= ticks
    snapkv = line_styles(rows)["snapkv"]
    (line,) = [group for group in lines_of(figure, snapkv.index) if group.get("class") == "policy"]
    drawn = next(path.get("d", "") for path in line.iter() if path.tag.endswith("}path"))
    assert len(re.findall(r"[ML] ", drawn)) == 2, "from one budget to the other, and not from the full cache"


def test_the_terminal_table_takes_names_as_they_are() -> None:
    text = printed([row_with("[red]press[/]", "all", f1=12.34)], F1)
    assert "[red]press[/]" in text
    assert "12.3" in text
