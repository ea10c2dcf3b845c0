"""The matrix of the first page: what few contexts leave open, and what is said of policies that
free nothing."""

from typing import Any

import pytest

from leaderboards.pages.front import FRONT, nothing_mastered
from leaderboards.pages.sections import section_note
from leaderboards.pages.uses import use_matrix
from tests.support.browsing.pages import build_pages, results_of
from tests.support.records.synthetic_records import frame, record
from tests.support.wording import assert_says


def _made(task: str, contexts: int, **losses: list[float]) -> list[dict[str, Any]]:
    """Records of one task: what each policy loses of 80 % right at ratio 0.5, by context in
    turn."""
    made = []
    for place in range(contexts):
        here = {"task": task, "example_id": f"{task}-{place}"}
        made.append(record(**here, f1=80.0))
        made += [
            record(**here, policy=policy, ratio=0.5, f1=80.0 - of_policy[place % len(of_policy)])
            for policy, of_policy in losses.items()
        ]
    return made


def test_what_the_contexts_do_not_show_of_the_oracle_may_be_chance() -> None:
    """Of 72 contexts the oracle loses 10 points in every other, so that 5 points cannot be
    excluded; snapkv loses none."""
    long = _made("long_context", 72, oracle=[0.0, 10.0], snapkv=[0.0])
    results = results_of(
        frame([*long, *_made("hops", 72, oracle=[0.0], snapkv=[0.0])]), "reference"
    )
    matrix = use_matrix(results)
    cells = {use.name: cell for use, cell in zip(matrix.uses, matrix.methods[0].cells, strict=True)}
    chance = cells["long context"]
    assert (chance.verdict, chance.level, chance.notes, chance.may_be_chance) == (
        "safe",
        "to 0.5",
        ("may be chance",),
        True,
    )
    assert not cells["multi-hop"].may_be_chance
    assert matrix.controls[0].cells[0].verdict == "open"
    page = build_pages([results])[FRONT]
    assert 'class="chance"' in page
    board = results.boards["agnostic", "all"]
    (snapkv,) = board.methods
    safe = next(
        cell
        for column, cell in zip(board.columns, snapkv.cells, strict=True)
        if column.name == "safe ratio"
    )
    assert safe.detail.splitlines() == ["0 [−4.99, +5]", "in long_context +1", "may be chance"]


@pytest.mark.parametrize("tasks", [("base",), ("base", "hops")])
def test_where_the_model_can_do_no_task_that_alone_is_told(tasks: tuple[str, ...]) -> None:
    shared = {"f1": 5.0, "hallucinated": True, "delta_nll": 0.1}
    made = [
        record(task=task, example_id=f"{task}-{place}", policy=policy, ratio=ratio, **shared)
        for task in tasks
        for place in range(12)
        for policy, ratio in (("full", 0.0), ("snapkv", 0.5))
    ]
    results = results_of(frame(made), "reference")
    only = nothing_mastered(results)
    assert all(f"{task}: the model itself has 5 %" in only for task in tasks)
    assert "--tasks niah_single_2" in only
    assert only.split("(")[0] in build_pages([results])[FRONT]
    leads = "ranks and verdicts are withheld; the rise of the right answer’s NLL"
    for task in results.shown:
        note = section_note(results, task)
        assert note.startswith("The model itself has 5 % ")
        assert leads in note
    assert results.mastered == list(tasks)  # all of them have a mean


def test_a_page_says_what_its_contexts_exclude_and_takes_another_tolerance() -> None:
    """Twelve contexts, all alike under snapkv: the first page does not call it safe."""
    records = frame(_made("niah_single_2", 12, oracle=[0.0], snapkv=[0.0]))
    results = results_of(records, "reference")
    cell = use_matrix(results).methods[0].cells[0]
    assert (cell.text, cell.detail) == ("open at 0.5", "0 [−26, +26]\n60 more contexts needed")
    page = build_pages([results])[FRONT]
    assert_says(page, "72 contexts of a task", "less than 5 points", "the 12 here", "27")
    tolerant = results_of(records, "reference", tolerance=30.0)
    cell = use_matrix(tolerant).methods[0].cells[0]
    assert (cell.text, cell.detail) == ("safe to 0.5", "0 [−26, +26]")
    page = build_pages([tolerant])[FRONT]
    assert "up to which less than 30 points" in page
    assert "it is at 30 points or more" in page
    assert "can show at best" not in page


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "prompt facts"),
        ({"directives_obeyed": 1.0}, "system prompt"),
        ({"leakage": 0.5, "protected": "Use capitals."}, "system prompt"),
    ],
)
def test_a_system_prompt_is_named_only_where_it_is_obeyed_or_attacked(
    asked: dict[str, Any], expected: str
) -> None:
    """Level 0 of the task asks for facts alone: a column "system prompt" said of it that directives
    are safe."""
    made = [
        record(
            task="instructions",
            example_id=f"instructions-{place}",
            policy=policy,
            ratio=ratio,
            **asked,
        )
        for place in range(12)
        for policy, ratio in (("full", 0.0), ("snapkv", 0.5))
    ]
    facts = [record(task="hops", example_id=f"hops-{place}") for place in range(12)]
    results = results_of(frame([*made, *facts]), "reference")
    assert [use.name for use in use_matrix(results).uses] == ["multi-hop", expected]
    pages = build_pages([results])
    assert f"instructions ({expected})" in pages[FRONT]
    told = (
        "Facts of a system prompt: at this level no directive and no attack is asked"
        in pages["task-instructions.html"]
    )
    assert told is (expected != "system prompt")
