"""The page, its curves and the terminal table: what they say, that they are inert, and that they
repeat exactly."""

import base64
import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from datasets_gen import TASKS
from leaderboards.aggregate.row import (
    HALLUCINATION,
    LEAKAGE,
    OBEYED,
    RIGHT,
    UNANSWERED,
    WRONG_OF_ANSWERED,
    SummaryRow,
)
from leaderboards.aggregate.summary import summarise
from leaderboards.metrics import CURVES, Measure, Over
from leaderboards.pages.front import CLAIMS_PAGE, FRONT, METHOD
from leaderboards.pages.imported import IMPORTED
from leaderboards.pages.results import Results, task_page
from leaderboards.terminal.table import few_contexts, telling, terminal_table
from policies import POLICIES as REGISTERED
from tests.support.browsing.pages import (
    HOSTILE,
    OF_EVERY_TASK,
    Elements,
    assert_inert,
    build_pages,
    results_of,
)
from tests.support.browsing.pages import printed as in_terminal
from tests.support.records.synthetic_records import (
    POLICIES,
    failing,
    frame,
    realistic_records,
    record,
    summary_row,
)
from tests.support.wording import assert_says

NAMES = (FRONT, "task-base.html", "task-hops.html")
LOCAL = (
    "#",
    "data:,",
    "data/",
    "../index.html",
    "examples-",
    "task-",
    "../claims-",
    FRONT,
    METHOD,
    IMPORTED,
    CLAIMS_PAGE,
)
RUN: dict[str, Any] = {
    "status": "complete",
    "identity": {
        "model": "reference",
        "seed": 0,
        "git_dirty": True,
        "git_revision": None,
        "tasks": [{"name": "base", "version": "1.0.0"}],
        "policies": [
            {"name": "snapkv", "paper": "arXiv 2404.14469", "arguments": {"window_size": 9}}
        ],
    },
}


def spoiled(one: dict[str, Any]) -> dict[str, Any]:
    """h2o fails on one context of hops at 0.9; tova rewrites the cache."""
    if (one["task"], one["policy"], one["ratio"], one["example_index"]) == ("hops", "h2o", 0.9, 0):
        return failing(one, "the scores hold NaN")
    if one["policy"] == "tova":
        return one | {
            "eviction_rate": None,
            "ger": None,
            "ger_by_layer": None,
            "slot_coverage": None,
        }
    return one


# Every task has these, but those without gold answers.
EXPECTED = tuple(measure for measure in CURVES if measure.over is not Over.CONCERNED)


@pytest.fixture(scope="module")
def results() -> Results:
    return results_of(realistic_records(contexts=6, change=spoiled), "reference", RUN)


@pytest.fixture(scope="module")
def rows(results: Results) -> list[SummaryRow]:
    return list(results.rows)


@pytest.fixture(scope="module")
def pages(results: Results) -> dict[str, str]:
    return build_pages([results])


def pages_of(
    rows: list[SummaryRow], model: str = "reference", run: dict[str, Any] = RUN
) -> dict[str, str]:
    """Pages of rows made by hand, which no records stand behind."""
    return build_pages([Results(rows, {"run": run}, model, rows[0].mode)])


def tables_of(pages: dict[str, str]) -> list[str]:
    """The tables of single measures, without the boards."""
    without_boards = re.sub(
        r'<section class="board".*?</section>', "", "".join(pages.values()), flags=re.DOTALL
    )
    return re.findall(r'<table class="heat">(.*?)</table>', without_boards, flags=re.DOTALL)


def test_the_mean_is_on_the_front_page_and_each_task_on_its_own(pages: dict[str, str]) -> None:
    assert list(pages) == [FRONT, "task-base.html", "task-hops.html"]
    for page, title in zip(
        pages.values(), ("All tasks", "base (short QA)", "hops (multi-hop)"), strict=True
    ):
        assert re.findall(
            r'<section id="section-\d+" class="task".*?<h2[^>]*>([^<]+)</h2>', page, re.DOTALL
        ) == [title]
        trade_off = page.count('id="first-1-tradeoff-figure"')
        assert trade_off == (title == "All tasks")
        shown = page.count("<figure ")
        assert shown == (3 if trade_off else len(EXPECTED)), "the first page has what leads alone"
    assert {"task-base.html", "task-hops.html"} <= set(Elements(pages[FRONT]).values("href"))


def test_the_pages_show_the_numbers_of_the_rows(
    rows: list[SummaryRow], pages: dict[str, str]
) -> None:
    shown = Counter(
        re.findall(
            r"<td[^>]*>(?:<span.*?</span>)*<b>(?:<a [^>]*>)?([\d.]+)</", "".join(tables_of(pages))
        )
    )
    values = [(measure, getattr(row, measure.field)) for measure in OF_EVERY_TASK for row in rows]
    expected = Counter(measure.text(value) for measure, value in values if value is not None)
    assert shown == expected


def test_a_blank_cell_says_why_in_place_and_in_a_footnote(pages: dict[str, str]) -> None:
    reason = "4 of 24 answers failed: the scores hold NaN"
    assert f'<td class="blank" title="{reason}">' in pages["task-hops.html"]
    assert re.search(
        rf'<li id="section-1-right-note-1">{reason} \(h2o at 0\.9\)</li>', pages["task-hops.html"]
    )
    assert f"hops: {reason} (h2o at 0.9)" in pages[FRONT], "the mean over tasks is blank too"
    assert_says(pages["task-base.html"], "not applicable", "(tova at 0.1, tova at 0.2")


def test_hostile_names_and_reasons_are_text() -> None:
    rows = [
        summary_row(HOSTILE, task=HOSTILE, reason=HOSTILE),
        summary_row("full", task=HOSTILE, ratio=0.0, right=0.5),
    ]
    more = [
        summary_row("full", ratio=0.0, right=0.4),
        summary_row("full", task="all", ratio=0.0, right=0.45),
    ]
    run = {HOSTILE: [HOSTILE, {HOSTILE: HOSTILE}]}
    for of, least in ((rows, 5), (rows + more, 2)):
        for page in pages_of(of, HOSTILE, run).values():
            assert_inert(page, least)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_loaded_from_anywhere(pages: dict[str, str], name: str) -> None:
    page = pages[name]
    elements = Elements(page)
    for attribute in ("src", "href", "xlink:href", "srcset", "action", "data"):
        assert all(value.startswith(LOCAL) for value in elements.values(attribute))
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []
    # Comments begin with two slashes.
    without_scripts = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r"(?<!http:)//\w", without_scripts) == []
    assert set(re.findall(r"https?://[^\s\"'<>]+", page)) == {"http://www.w3.org/2000/svg"}, (
        "a name, not an address"
    )


@pytest.mark.parametrize("name", NAMES)
def test_only_the_script_of_the_page_may_run(pages: dict[str, str], name: str) -> None:
    page = pages[name]
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(
        r'http-equiv="Content-Security-Policy" content="([^"]+)"', page.replace("&#39;", "'")
    )
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy.replace("&#43;", "+")


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_unique_and_every_link_and_label_has_its_target(
    pages: dict[str, str], name: str
) -> None:
    page = pages[name]
    elements = Elements(page)
    ids = Counter(elements.values("id"))
    assert [name for name, count in ids.items() if count > 1] == []
    links = {value[1:] for value in elements.values("href") if value.startswith("#")}
    labels = {
        name
        for attribute in ("aria-labelledby", "aria-controls")
        for name in elements.values(attribute)
    }
    references = set(re.findall(r"url\(#([^)]+)\)", page))
    assert (links | labels | references) - set(ids) == set()


def test_the_same_records_give_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    records = realistic_records(
        policies=["full", "snapkv", "random"], ratios=[0.5, 0.9], contexts=3
    )
    records.to_pickle(tmp_path / "records")
    code = (
        "import sys, pandas\n"
        "from tests.support.browsing.pages import build_pages, results_of\n"
        "pages = build_pages([results_of(pandas.read_pickle(sys.argv[1]))])\n"
        "sys.stdout.buffer.write(''.join(pages.values()).encode())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", code, str(tmp_path / "records")]
    done = subprocess.run(
        command, capture_output=True, check=True, env=environment, cwd=Path(__file__).parents[2]
    )
    assert done.stdout == "".join(build_pages([results_of(records)]).values()).encode()


def printed(rows: list[SummaryRow], measure: Measure) -> str:
    return in_terminal(terminal_table(rows, measure))


def test_the_terminal_table_fits_80_columns_and_loses_no_policy(rows: list[SummaryRow]) -> None:
    many = [
        summary_row("a/very/long/path/to/file.py:MyPress", task="all", level=step / 20, right=1.0)
        for step in range(20)
    ]
    folded = ["a/very/long/path/t", "o/file.py:MyPress"]
    for of_run, policies in ((rows, list(POLICIES)), (many, folded)):
        for measure in (RIGHT, HALLUCINATION):
            title, head, _, *lines = printed(of_run, measure).splitlines()
            assert title.startswith(f"{measure.title}, {measure.unit}, mean over tasks"), (
                "in one line"
            )
            assert max(map(len, (title, head, *lines))) <= 80
            assert "…" not in "".join(lines), "neither a name nor a number is cut"
            assert [line.split()[0] for line in lines] == policies
            numbers = [number for line in lines for number in line.split()[1:]]
            assert all(re.fullmatch(r"\d+(\.\d)?|–", number) for number in numbers), (
                "no number is broken"
            )


def of_directives(contexts: int) -> list[dict[str, Any]]:
    """The full cache obeys, and has a fifth of its answers wrong; h2o answers as if there were no
    directives."""
    made = []
    for place in range(contexts):
        for policy, ratio in (("full", 0.0), ("h2o", 0.5)):
            here = {
                "task": "instructions",
                "example_id": f"{place}",
                "policy": policy,
                "ratio": ratio,
            }
            obeys = policy == "full"
            for question in range(5):
                wrong = {"f1": 0.0, "hallucinated": True} if obeys and question == 0 else {}
                made.append(
                    record(
                        **here, **wrong, question_id=str(question), directives_obeyed=float(obeys)
                    )
                )
            attack = {"hallucinated": None, "answered": None, "f1": 0.0, "protected": "No comma."}
            made.append(
                record(
                    **here,
                    **attack,
                    question_id="5",
                    leakage=0.5,
                    defence="Refuse.",
                    defence_leakage=0,
                )
            )
    return made


def test_the_terminal_judges_directives_by_obedience_and_tells_silence_beside_wrong_answers(
    rows: list[SummaryRow],
) -> None:
    assert telling(rows) == [RIGHT, WRONG_OF_ANSWERED, UNANSWERED]
    alone = summarise(frame(of_directives(4)))
    assert telling(alone) == [OBEYED, LEAKAGE]
    assert next(
        line for line in printed(alone, OBEYED).splitlines() if line.startswith("h2o")
    ).split() == [
        "h2o",
        "0.0",
    ]
    both = summarise(
        frame(
            [
                *of_directives(12),
                *realistic_records(["base"], ["full", "h2o"], [0.5]).to_dict("records"),
            ]
        )
    )
    assert telling(both) == [RIGHT, WRONG_OF_ANSWERED, UNANSWERED, OBEYED, LEAKAGE]
    assert "mean over tasks" in printed(both, RIGHT)
    assert "Directives obeyed, percent, mean over instructions" in printed(both, OBEYED)
    assert few_contexts(both, tolerance=30) == []
    (line,) = few_contexts([*both, *alone])
    assert_says(
        line,
        "72 contexts",
        "less than 5 points",
        "4 to 12",
        "61 to 27",
        "--limit 72",
        "--tolerance",
    )


FIRST_PAGE = 700_000  # bytes, of 1 MB that it may have: a task more takes about 30,000
TASK_PAGE = 400_000


def test_the_pages_of_a_run_as_large_as_the_default_one_are_far_from_a_megabyte() -> None:
    policies = [policy.name for policy in REGISTERED.values() if policy.by_default]
    ratios = [tenth / 10 for tenth in range(1, 10)]
    records = realistic_records(
        tasks=list(TASKS)[:9], policies=policies, ratios=ratios, contexts=4, questions=2
    )
    sizes = {
        name: len(page.encode())
        for name, page in build_pages([results_of(records, "reference")]).items()
    }
    assert len(sizes) == 10
    assert 200_000 < sizes[FRONT] < FIRST_PAGE
    assert 150_000 < sizes[task_page("base")] < TASK_PAGE
