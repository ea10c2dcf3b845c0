"""The page on method: what it tells of definitions, tasks, policies and the run, and that hostile
text stays text."""

from typing import Any

import pandas as pd
import pytest

from kvbench import __version__
from kvbench.publish.method import describe_method, write_citation
from kvbench.store.store import Store
from leaderboards.downloads.sheets import Sheet
from leaderboards.pages.definitions import chapters
from leaderboards.pages.method import (
    Method,
    PolicyEntry,
    RunEntry,
    TaskEntry,
    TaskExample,
    build_method,
)
from policies import TITLES
from tests.support.browsing.pages import HOSTILE, Elements, assert_inert
from tests.support.wording import assert_says


@pytest.fixture(scope="module")
def method(small_run: Store, small_records: pd.DataFrame) -> Method:
    return describe_method({"small": small_run.run}, [small_records])


def example(**changes: Any) -> TaskExample:
    told: dict[str, Any] = {"context": "Ada lives in Oslo.", "question": "Where?", "gold": "Oslo"}
    return TaskExample(**{**told, "evidence": ((0, 18),), "answers": ((13, 17),), **changes})


def test_every_task_and_policy_of_the_run_is_told(method: Method, small_run: Store) -> None:
    assert [task.name for task in method.tasks] == ["base", "hops"]
    assert [policy.name for policy in method.policies] == [
        policy.name for policy in small_run.identity.policies
    ]
    snapkv = next(policy for policy in method.policies if policy.name == "snapkv")
    assert (snapkv.paper, snapkv.title) == ("arXiv 2404.14469", TITLES["arXiv 2404.14469"])
    marks = "adapted; window under half of the paper's"
    assert "kernel_size 5, window_size" in snapkv.arguments
    assert f"(paper: 64); {marks} (on base)" in snapkv.arguments
    assert f"(paper: 64); {marks} (on hops)" in snapkv.arguments
    assert snapkv.runs.startswith("scorer")


def test_an_example_is_one_of_the_run_with_its_answer_marked(
    method: Method, small_records: pd.DataFrame
) -> None:
    for task in method.tasks[:2]:
        assert task.example is not None
        own = small_records[
            (small_records["task"] == task.name)
            & (small_records["question"] == task.example.question)
        ]
        assert task.example.context in set(own["context"])
        assert task.example.gold in {golds[0] for golds in own["golds"]}
        marked = [piece.text for piece in task.example.excerpt if piece.kind == "answer"]
        assert task.example.gold in marked
        assert "".join(piece.text for piece in task.example.excerpt) == task.example.context


def test_the_page_tells_definitions_papers_command_and_versions(
    method: Method, small_run: Store
) -> None:
    sheets = [Sheet("cells", "Every measure", ("a",), ((1,),))]
    page = build_method(method, sheets, "records.parquet", 726)
    text = Elements(page).text
    for chapter in chapters():
        for definition in chapter.definitions:
            assert definition.text in text, definition.name
            assert definition.formula in text
            assert definition.source in text
    for policy in method.policies:
        assert policy.name in text
        assert policy.title in text
    assert method.runs[0].command in text
    options = ("--tasks base,hops", "--policies snapkv,knorm", "--limit 3", "--seed 0")
    assert_says(text, *options, "--mode agnostic", "--context-tokens")
    identity = small_run.identity
    assert identity.git_revision is not None
    for fact in (identity.packages["torch"], identity.git_revision, identity.model_fingerprint):
        assert fact in text
    links = Elements(page).values("href")
    assert {"index.html", "data/cells.csv", "data/records.parquet"} <= set(links)
    assert all(
        link.startswith(("#", "data", "index.html", "method.html", "../index.html"))
        for link in links
    )


def test_it_offers_bibtex_with_the_version_and_the_day_of_the_run(small_run: Store) -> None:
    citation = write_citation({"my_run": small_run.run})
    created = small_run.run.created
    assert citation.startswith("@software{kvbench,\n")
    assert citation.endswith("}")
    assert citation.count("{") == citation.count("}")
    assert f"version = {{{__version__}}}" in citation
    assert f"year = {{{created[:4]}}}" in citation
    assert rf"my\_run: {created[:10]}" in citation
    page = build_method(Method(("toy",), (), (), (), citation))
    assert "@software{kvbench," in page
    assert "BibTeX" not in build_method(Method(("toy",), (), (), ()))


def test_hostile_text_is_text() -> None:
    of_task = dict.fromkeys(
        ("name", "version", "description", "source", "chance", "instruction"), HOSTILE
    )
    asked = example(context=HOSTILE * 2, question=HOSTILE, gold=HOSTILE, perfect_output=HOSTILE)
    task = TaskEntry(**of_task, contexts=3, example=asked, prompts={HOSTILE: HOSTILE})
    names = ("name", "description", "paper", "title", "runs", "budget", "arguments")
    policy = PolicyEntry(**dict.fromkeys(names, HOSTILE))
    run = RunEntry(HOSTILE, HOSTILE, (HOSTILE,), HOSTILE, {HOSTILE: [HOSTILE, {HOSTILE: HOSTILE}]})
    sheet = Sheet("x", HOSTILE, ("a",), ())
    method = Method((HOSTILE,), (task,), (policy, policy), (run, run))
    assert_inert(build_method(method, [sheet], "records.parquet", 1), 20)
