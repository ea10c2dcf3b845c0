"""The matrix of the first page: what few contexts leave open, and what is said of policies that free nothing."""

import re
from typing import Any

import pytest

from leaderboards.aggregate.row import ALL_TASKS
from leaderboards.pages.front import FRONT, nothing_mastered
from leaderboards.pages.sections import note_of
from leaderboards.pages.uses import use_matrix
from tests.support.browsing.pages import Elements, build_pages, results_of
from tests.support.records.synthetic_records import frame, realistic_records, record


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
    assert (chance.text, chance.detail, chance.may_be_chance) == ("0.5", "may be chance", True)
    assert not cells["multi-hop"].may_be_chance
    assert matrix.controls[0].cells[0].text == "not shown"
    page = build_pages([results])[FRONT]
    assert 'class="chance few"' in page
    board = results.boards["agnostic", "all"]
    (snapkv,) = board.methods
    safe = next(cell for column, cell in board.cells_of(snapkv) if column.name == "safe ratio")
    assert safe.detail == "in long_context +1\nmay be chance"


def test_a_policy_that_is_safe_no_further_than_the_oracle_is_no_chance() -> None:
    made = _made("hops", 12, oracle=[0.0], snapkv=[0.0])
    made += [record(task="hops", example_id=f"hops-{n}", policy="oracle", ratio=0.9, f1=80.0 - n) for n in range(12)]
    matrix = use_matrix(results_of(frame(made), "reference"))
    assert [cell.may_be_chance for cell in matrix.methods[0].cells] == [False]
    assert matrix.methods[0].cells[0].highest_sure == 0.5


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
    assert all(f"{task}: percent right 5.0 with the full cache" in only for task in tasks)
    assert "--tasks niah_single_2" in only
    assert only.split("(")[0] in build_pages([results])[FRONT]
    assert "does not master this task" in note_of(results, "base")
    assert len(tasks) == 1 or "does not master any task" in note_of(results, ALL_TASKS)


def test_the_matrix_names_tasks_and_the_length_of_contexts() -> None:
    records = realistic_records(tasks=["base", "knowledge", "hops"], policies=["full", "snapkv"], contexts=4)
    records.loc[records["policy"] == "snapkv", "kv_bytes"] = records.loc[records["policy"] == "full", "kv_bytes"].max()
    records.loc[records["policy"] == "full", "kept_tokens"] = records["task"].map({"base": 1000.0, "knowledge": 3000.0})
    page = build_pages([results_of(records, "reference")])[FRONT]
    assert "<small>base, knowledge</small>" in page
    assert ">, about</span></th><td>2,000</td>" in page
    assert "Bytes held = 100 % − ratio, unless a policy only masks tokens." in page
    assert "The cache is compressed before the question is seen (mode agnostic)." in page
    assert "masks, 0 bytes" not in page, "nothing is safe, and no number promises anything"


def test_a_policy_that_masks_says_beside_its_name_that_it_frees_nothing() -> None:
    made = []
    for policy, ratio, held in (("full", 0.0, 800), ("snapkv", 0.5, 400), ("adakv_snapkv", 0.5, 800)):
        made += [record(example_id=f"{n}", policy=policy, ratio=ratio, kv_bytes=held) for n in range(12)]
    text = Elements(build_pages([results_of(frame(made), "reference")])[FRONT]).text
    assert re.search(r"adakv_\u200bsnapkv 0 bytes", text)
    assert not re.search(r"(?<!\u200b)snapkv 0 bytes", text)


def test_what_is_shown_to_be_unsafe_further_on_is_told_from_what_few_contexts_do_not_show() -> None:
    """At 0.1 both lose 12 points in one context of four; at 0.5 one of them loses 30 in each."""
    made = [record(example_id=f"{n}", f1=80.0) for n in range(4)]
    for policy, last in (("snapkv", 30.0), ("tova", 12.0)):
        for n in range(4):
            for ratio, loss in ((0.1, 12.0 * (n == 3)), (0.5, last if policy == "snapkv" else last * (n == 3))):
                made.append(record(example_id=f"{n}", policy=policy, ratio=ratio, f1=80.0 - loss))
    matrix = use_matrix(results_of(frame(made), "reference"))
    cells = {line.name: line.cells[0] for line in matrix.methods}
    assert {name: (cell.tone_of_use, cell.unsafe_from) for name, cell in cells.items()} == {
        "snapkv": ("unsafe-from", "0.5"),
        "tova": ("not-shown", ""),
    }


def test_the_contexts_of_a_mean_are_told_task_by_task() -> None:
    made = [*_made("hops", 12, snapkv=[0.0]), *_made("base", 12, snapkv=[1.0]), *_made("long_context", 4, snapkv=[1.0])]
    note = note_of(results_of(frame(made), "reference"), ALL_TASKS)
    assert "Each cell has 28 questions about 28 contexts: 12 each of hops, base; 4 of long_context." in note
