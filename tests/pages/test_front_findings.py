"""The findings of the first page: no noise is told as a gain, and what is told is what binds."""

import re
from typing import Any

import pytest

from leaderboards.aggregate.row import ALL_TASKS
from leaderboards.pages.front import FRONT, findings_of
from leaderboards.pages.results import task_page
from leaderboards.pages.sections import note_of
from leaderboards.pages.uses import use_matrix
from tests.support.browsing.pages import build_pages, results_of
from tests.support.records.synthetic_records import frame, record

RATIOS = (0.1, 0.5)
# Of each task: its contexts, and what is right, of 80 % with the full cache, that snapkv loses at each ratio.
TASKS = {
    "long_context": (4, (-9.0, -9.0)),
    "hops": (12, (-3.0, 20.0)),
    "base": (12, (1.0, 20.0)),
    "knowledge": (12, (20.0, 20.0)),
}


@pytest.fixture(scope="module")
def findings() -> dict[str, str]:
    made = []
    for task, (contexts, losses) in TASKS.items():
        for place in range(contexts):
            of_task = {"task": task, "example_id": f"{task}-{place}"}
            made.append(record(**of_task, f1=80.0))
            for ratio, loss in zip(RATIOS, losses, strict=True):
                silent = {"abstained": True} if ratio == 0.5 and place % 4 == 0 else {}
                wrong = {"hallucinated": True} if place % 4 == 1 else {}
                made.append(record(**of_task, **silent, **wrong, policy="snapkv", ratio=ratio, f1=80.0 - loss))
    results = results_of(frame(made), "reference")
    pages = {task: task_page(task) for task in TASKS}
    return {one.text: one.link for one in findings_of(results, use_matrix(results), "section-1", pages)}


def test_the_most_that_is_safe_is_told_with_its_contexts_and_loss(findings: dict[str, str]) -> None:
    """Ten contexts go first: of four long ones with the same gain nothing is certain."""
    first, wrong = findings
    assert first.startswith(
        "snapkv is shown safe here for multi-hop (hops) up to ratio 0.1, on 12 contexts of about 150"
    )
    assert first.endswith("it loses −3 points (−3 to −3).")
    assert findings[first] == "task-hops.html#section-1-right-figure"
    assert re.findall(r"(\d+) %", wrong) == ["25", "0", "33", "0", "25", "0"], (
        "unanswered, wrong of answered, wrong of all"
    )


def _made(task: str, contexts: int, **losses: list[float]) -> list[dict[str, Any]]:
    """Records of one task: what each policy loses of 80 % right at ratio 0.5, by context in turn."""
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
    """Of four contexts the oracle loses 12 points in one, so that 5 points cannot be excluded; snapkv loses none."""
    long = _made("long_context", 4, oracle=[0.0, 0.0, 0.0, 12.0], snapkv=[0.0])
    results = results_of(frame([*long, *_made("hops", 12, oracle=[0.0], snapkv=[0.0])]), "reference")
    matrix = use_matrix(results)
    cells = {use.name: cell for use, cell in zip(matrix.uses, matrix.methods[0].cells, strict=True)}
    chance = cells["long context"]
    assert (chance.text, chance.detail, chance.sure, chance.may_be_chance) == ("0.5", "may be chance", 0.0, True)
    assert (cells["multi-hop"].sure, cells["multi-hop"].may_be_chance) == (0.5, False)
    assert matrix.controls[0].cells[0].text == "not shown"
    page = build_pages([results])[FRONT]
    assert 'class="chance few"' in page
    board = results.boards["agnostic", "all"]
    (snapkv,) = board.methods
    safe = next(cell for column, cell in board.cells_of(snapkv) if column.name == "safe ratio")
    assert safe.detail == "in long_context +1\nmay be chance"


def _told(made: list[dict[str, Any]]) -> list[str]:
    results = results_of(frame(made), "reference")
    return [one.text for one in findings_of(results, use_matrix(results), "section-1", {})]


@pytest.mark.parametrize("tasks", [("base",), ("base", "hops")])
def test_where_the_model_can_do_no_task_that_alone_is_told(tasks: tuple[str, ...]) -> None:
    shared = {"f1": 5.0, "hallucinated": True, "delta_nll": 0.1}
    made = [
        record(task=task, example_id=f"{task}-{place}", policy=policy, ratio=ratio, **shared)
        for task in tasks
        for place in range(12)
        for policy, ratio in (("full", 0.0), ("snapkv", 0.5))
    ]
    (only,) = _told(made)
    assert all(f"{task}: percent right 5.0 with the full cache" in only for task in tasks)
    assert "--tasks niah_single_2" in only
    results = results_of(frame(made), "reference")
    assert "does not master this task" in note_of(results, "base")
    assert len(tasks) == 1 or "does not master any task" in note_of(results, ALL_TASKS)


def test_of_directives_what_decides_is_told() -> None:
    """Obedience does not change, and 2 points more leak under a defence; without attacks obedience alone is told."""
    made = []
    for place in range(12):
        for policy, ratio, leaks in (("full", 0.0, 0.0), ("snapkv", 0.2, 0.02)):
            here = {"task": "instructions", "example_id": f"{place}", "policy": policy, "ratio": ratio}
            made.append(record(**here, question_id="0", directives_obeyed=0.75, kept_tokens=1600))
            attack = {"hallucinated": None, "answered": None, "f1": 0.0, "protected": "No comma.", "kept_tokens": 1600}
            made.append(record(**here, **attack, question_id="1", leakage=leaks, defence="Refuse.", defence_leakage=0))
    told = _told(made)[0]
    assert told.startswith("snapkv is shown safe here for system prompt (instructions) up to ratio 0.2, on 12 contexts")
    assert told.endswith("of about 1,600 tokens: it loses 2 points (2 to 2).")
    assert _told([one for one in made if one["question_id"] == "0"])[0].endswith("it loses 0 points (0 to 0).")
