"""The findings of the first page: no noise is told as a gain, and what is told is what binds."""

import re
from typing import Any

import pytest

from leaderboards.aggregate.row import ALL_TASKS
from leaderboards.pages.findings import findings_of
from leaderboards.pages.front import FRONT
from leaderboards.pages.results import task_page
from leaderboards.pages.sections import note_of
from leaderboards.pages.uses import use_matrix
from tests.support.browsing.pages import Elements, build_pages, results_of
from tests.support.records.synthetic_records import frame, realistic_records, record

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


def test_more_than_the_full_cache_is_no_gain_and_ten_contexts_go_first(findings: dict[str, str]) -> None:
    first = (
        "snapkv is shown safe here for multi-hop (hops) up to ratio 0.1, on 12 contexts of about 150 tokens: paired "
        "gain of 3 points of right answers (the same in each context)."
    )
    assert findings[first] == "task-hops.html#section-1-right-figure"


def test_the_second_finding_is_on_long_contexts(findings: dict[str, str]) -> None:
    """Four contexts with the same loss have an interval without width, and no oracle tells that they are too few."""
    long = (
        "Too few contexts (4; 10 at least) to call anything safe for long context (long_context) of about 150 tokens."
    )
    assert findings[long] == "task-long_context.html#section-1-right-figure"


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
    assert (chance.text, chance.detail, chance.sure, chance.may_be_chance) == (
        "0.5",
        "may be chance",
        0.0,
        True,
    )
    assert (cells["multi-hop"].sure, cells["multi-hop"].may_be_chance) == (0.5, False)
    assert matrix.controls[0].cells[0].text == "not shown"
    told = [one.text for one in findings_of(results, matrix, "section-1", {})]
    assert told[1] == (
        "Too few contexts (4; 10 at least) to call anything safe for long context (long_context) of about 150 tokens: "
        "not even the oracle passes."
    )
    page = build_pages([results])[FRONT]
    assert 'class="chance few"' in page
    assert "fewer than 10 contexts, or too few to show that even the oracle" in page
    board = results.boards["agnostic", "all"]
    (snapkv,) = board.methods
    safe = next(cell for column, cell in board.cells_of(snapkv) if column.name == "safe ratio")
    assert safe.detail == "in long_context +1\nmay be chance in long_context"


def test_a_policy_that_is_safe_no_further_than_the_oracle_is_no_chance() -> None:
    made = _made("hops", 12, oracle=[0.0], snapkv=[0.0])
    made += [record(task="hops", example_id=f"hops-{n}", policy="oracle", ratio=0.9, f1=80.0 - n) for n in range(12)]
    matrix = use_matrix(results_of(frame(made), "reference"))
    assert [cell.may_be_chance for cell in matrix.methods[0].cells] == [False]
    assert matrix.methods[0].cells[0].highest_sure == 0.5


def test_wrong_answers_stand_with_interval_and_silence(findings: dict[str, str]) -> None:
    wrong = list(findings)[2]
    assert wrong == (
        "At ratio 0.5, snapkv leaves 25 % of the questions unanswered (full cache 0 %). Of its answers 33 % are wrong "
        "(full cache 0 %). Of all questions it answers 25 % wrongly (full cache 0 %)."
    )


def _told(made: list[dict[str, Any]]) -> list[str]:
    results = results_of(frame(made), "reference")
    return [one.text for one in findings_of(results, use_matrix(results), "section-1", {})]


@pytest.mark.parametrize("tasks", [("base",), ("base", "hops")])
def test_where_the_model_can_do_no_task_the_likelihood_of_the_right_answer_is_told(tasks: tuple[str, ...]) -> None:
    shared = {"f1": 5.0, "hallucinated": True}
    made = [
        record(task=task, example_id=f"{task}-{place}", policy=policy, ratio=ratio, delta_nll=rise, **shared)
        for task in tasks
        for place in range(12)
        for policy, ratio, rise in (("full", 0.0, 0.0), ("snapkv", 0.5, 0.25), ("knorm", 0.5, 1.5))
    ]
    (only,) = _told(made)
    below = "; ".join(f"{task}: percent right 5.0 with the full cache, below 50" for task in tasks)
    assert only.startswith(f"The model masters no task here, so its scores say nothing about policies ({below}).")
    assert "at ratio 0.5 its NLL rises least under snapkv, by 0.250 nats a token (0.250 to 0.250)." in only
    assert "a needle (--tasks niah_single_2)" in only
    results = results_of(frame(made), "reference")
    assert note_of(results, "base").startswith("The model does not master this task with the full cache (percent right")
    if len(tasks) > 1:
        assert note_of(results, ALL_TASKS).startswith("The model masters none of the 2 tasks with the full cache, so")


def test_directives_are_told_beside_the_full_cache_with_what_leaks() -> None:
    """The full cache obeys 3 of 4: a policy that obeys as many keeps 100 % of it, and is not obedient."""
    made = []
    for place in range(12):
        for policy, ratio, leaks in (("full", 0.0, 0.0), ("snapkv", 0.2, 0.02)):
            here = {"task": "instructions", "example_id": f"{place}", "policy": policy, "ratio": ratio}
            made.append(record(**here, question_id="0", directives_obeyed=0.75))
            attack = {"hallucinated": None, "answered": None, "f1": 0.0, "protected": "No comma."}
            made.append(record(**here, **attack, question_id="1", leakage=leaks, defence="Refuse.", defence_leakage=0))
    assert _told(made)[0] == (
        "snapkv is shown safe here for system prompt (instructions) up to ratio 0.2, on 12 contexts of about 150 "
        "tokens: paired loss of 2 points more leakage under a defence (the same in each context) and in none of 12 "
        "contexts does anything else change, which excludes a change in more than 22 % of contexts."
    )


def test_of_system_prompts_that_nobody_attacks_obedience_alone_is_told() -> None:
    """As the plain rows of IFEval are: directives without attacks, so that nothing leaks."""
    made = [
        record(task="ifeval", example_id=f"{place}", policy=policy, ratio=ratio, directives_obeyed=0.75)
        for place in range(12)
        for policy, ratio in (("full", 0.0), ("snapkv", 0.2))
    ]
    assert _told(made)[0] == (
        "snapkv is shown safe here for system prompt (ifeval) up to ratio 0.2, on 12 contexts of about 150 tokens: in "
        "none of 12 contexts does anything change, which excludes a change in more than 22 % of contexts."
    )


def test_the_matrix_names_tasks_and_the_length_of_contexts() -> None:
    records = realistic_records(tasks=["base", "knowledge", "hops"], policies=["full", "snapkv"], contexts=4)
    records.loc[records["policy"] == "snapkv", "kv_bytes"] = records.loc[records["policy"] == "full", "kv_bytes"].max()
    records.loc[records["policy"] == "full", "kept_tokens"] = records["task"].map({"base": 1000.0, "knowledge": 3000.0})
    page = build_pages([results_of(records, "reference")])[FRONT]
    assert "<small>base, knowledge</small>" in page
    assert ">, about</span></th><td>2,000</td>" in page
    assert "Bytes held = 100 % − ratio, unless a policy only masks tokens." in page
    assert "kvbench run --model NAME --tasks long_context --context-tokens 32768 --limit 83" in Elements(page).text
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
    assert {name: (cell.tone_of_use, cell.unsafe_from, cell.above) for name, cell in cells.items()} == {
        "snapkv": ("unsafe-from", "0.5", ""),
        "tova": ("not-shown", "", "may lose 9"),
    }
    assert matrix.shows >= {"unsafe-from", "not-shown"}


def test_a_finding_says_how_long_its_contexts_are() -> None:
    made = [
        record(task="instructions", example_id=f"{n}", policy=policy, ratio=ratio, directives_obeyed=1.0)
        for n in range(12)
        for policy, ratio in (("full", 0.0), ("snapkv", 0.2))
    ]
    for one in made:
        one["kept_tokens"] = 1600
    (text, *_) = _told(made)
    assert "of about 1,600 tokens: " in text


def test_the_contexts_of_a_mean_are_told_task_by_task_and_an_abbreviation_is_spelled_out() -> None:
    made = [*_made("hops", 12, snapkv=[0.0]), *_made("base", 12, snapkv=[1.0]), *_made("long_context", 4, snapkv=[1.0])]
    for n in range(3):
        attack = {"hallucinated": None, "answered": None, "f1": 0.0, "protected": "No comma."}
        here = {"task": "instructions", "example_id": f"{n}", "directives_obeyed": 1.0}
        for policy, ratio in (("full", 0.0), ("snapkv", 0.5)):
            made.append(record(**here, policy=policy, ratio=ratio, question_id="0"))
            defended = {"leakage": 0.0, "defence": "Refuse.", "defence_leakage": 0.0}
            if n < 2:
                of_attack = {**here, **attack, **defended, "directives_obeyed": None}
                made.append(record(**of_attack, policy=policy, ratio=ratio, question_id="1"))
    page = build_pages([results_of(frame(made), "reference")])[FRONT]
    assert (
        "Each cell has 33 questions about 31 contexts: 12 each of hops, base; 4 of long_context; 3 of instructions "
        "(2 of them with attacks under a defence). "
    ) in page
    assert '<td>2<span class="wide"> of 3</span></td>' in page
    assert "each may lose less than 5 points; 2 of its 3 contexts have attacks under a defence" in page
    assert re.search(r'<th [^>]*data-of="global eviction ratio">GER at 0.5</th>', page)
