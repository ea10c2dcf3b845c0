"""Pages speak of what the task measures, and say each thing once."""

import re
from typing import Any

import pytest

from leaderboards.aggregate.duels import duels
from leaderboards.aggregate.outcomes import join_outcomes
from leaderboards.aggregate.pooled import pool, pool_levels
from leaderboards.pages.comparison import build_comparison
from leaderboards.pages.examples import build_examples
from tests.support.browsing.pages import Elements, build_pages, examples_in, results_of
from tests.support.records.synthetic_records import frame, realistic_records, record


def _prose() -> list[dict[str, Any]]:
    text: dict[str, Any] = {
        "task": "prose",
        "f1": None,
        "em": None,
        "golds": [],
        "question": "",
        "ger": None,
        "slot_coverage": None,
    }
    return [
        record(
            **text,
            example_id=f"prose-{place}",
            policy=policy,
            ratio=ratio,
            next_token_accuracy=share,
        )
        for place in range(12)
        for policy, ratio, share in (("full", 0.0, 0.6), ("snapkv", 0.5, 0.5), ("random", 0.5, 0.4))
    ]


@pytest.fixture(scope="module")
def prose_page() -> str:
    return build_pages([results_of(frame(_prose()), "toy")])["index.html"]


def test_a_page_of_running_text_alone_speaks_of_next_tokens(prose_page: str) -> None:
    text = " ".join(Elements(prose_page).text.split())
    assert "Next tokens kept over bytes held" in text
    assert "60 % of next tokens" in text
    assert "Each cell has 12 texts." in text
    assert not re.search(
        r"\bF1\b|right answers|questions about", text.split("This run, and where")[0]
    )
    tables = re.findall(r"<caption[^>]*><span><b>([^<]+)</b>", prose_page)
    assert "Next-token accuracy" in tables
    assert "Right" not in tables, "a blank table"
    assert "examples-prose.html#" in prose_page


def test_no_example_of_running_text_is_marked_as_wrong() -> None:
    page = build_examples("toy", "prose", frame(_prose()))
    answers = examples_in(page)["cells"]["snapkv"]["0.5"]
    assert {(one["verdict"], one["wrong"]) for one in answers} == {
        ("next tokens right: 50 %", False)
    }


def test_a_paragraph_stands_once_on_the_first_page() -> None:
    records = realistic_records(policies=("full", "snapkv", "random"), ratios=(0.1, 0.5))
    page = build_pages([results_of(records)])["index.html"]
    said = [
        " ".join(one.split())
        for one in re.findall(r"<p[^>]*>(.*?)</p>", page, re.DOTALL)
        if len(one) > 60
    ]
    told = [one for one in said if "download" not in one]
    assert [one for one in set(told) if told.count(one) > 1] == []
    assert page.count("Unweighted mean over 2 of 2 tasks") == 1
    assert page.count("Wrong of answered looks only at") == 1
    assert page.count("The hallucination rate counts wrong") == 1


def test_a_comparison_says_once_how_its_cells_are_read() -> None:
    others = ("knorm", "tova", "random", "recency")
    records = realistic_records(policies=("full", "snapkv", *others), ratios=(0.1, 0.5))
    verdicts = duels(records, "snapkv", others)
    outcomes = join_outcomes(
        pool_levels(records, "snapkv", others), pool(records, "snapkv", others)
    )
    page = build_comparison("toy", verdicts, outcomes=outcomes)
    assert page.count("the 2 levels of a task") == 1
    assert page.count("Under each difference: what the two have") == 1
    assert page.count("▼</span> worse") == 1, "the key"
    grey = re.findall(r'<p class="quiet">([^<]+)</p>', page)
    # Two opponents may have as many cells of each verdict.
    told = [line for line in grey if " cells" not in line]
    assert len(told) == len(set(told))
