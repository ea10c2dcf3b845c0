"""Rows are put back and taken away: a circuit that is planted in known weights is found, and
nothing else."""

from functools import cache
from typing import Any

from kvbench.engine.decode.answers import decode
from kvbench.engine.studies.interventions import QuestionRows, intervene
from kvbench.engine.treat.branch import Trace, keep_mask, with_mask
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.prompts.prompt import Prompt, build_prompts
from kvbench.store.tables import RECORDS, Record, StoredTable
from kvbench.studies.routing.interventions import INTERVENTIONS
from policies import FULL, POLICIES, at_ratios
from tests.support.models.circuit import KEY_HEAD, LAYER, TASK, circuit
from tests.support.models.toy import PLENTY, model_of, toy_prompt, treat

CONTEXTS = 6
POLICIES_TRIED = ("full", "knorm", "random", "think")


@cache
def collected() -> dict[str, list[Any]]:
    """Rows of the planted circuit by table."""
    chosen = [POLICIES[name] for name in POLICIES_TRIED]
    grid = Grid([(TASK, CONTEXTS)], chosen, at_ratios([0.3, 0.8]), tables=(INTERVENTIONS.name,))
    return collect(circuit(), TASK, list(TASK.generate(0, CONTEXTS)), grid).tables


def rows_where(table: StoredTable, **wanted: Any) -> list[Any]:
    rows = collected()[table.name]
    return [
        row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())
    ]


def cell_key(row: Any) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in RECORDS.key)


def records_by_cell() -> dict[tuple[Any, ...], Record]:
    return {cell_key(record): record for record in collected()["records"]}


def circuit_trace() -> tuple[Prompt, Trace]:
    prompt = build_prompts(circuit().tokenizer, TASK, TASK.example(0, 0), "agnostic")[0]
    return prompt, prefill(circuit(), prompt, plan([POLICIES[FULL]], at_ratios([0.0]), prompt, 0))


# --- the planted circuit


def test_evicting_just_its_slot_kills_the_answer() -> None:
    prompt, trace = circuit_trace()
    full = trace.branches[0]
    (answer,) = prompt.questions[0].answer_tokens
    alone, others = keep_mask(full), keep_mask(full)
    alone[LAYER, KEY_HEAD, answer] = False
    others[:, :, answer] = False
    others[LAYER, KEY_HEAD, answer] = True
    branches = [with_mask(full, keep, (0,)) for keep in (alone, others)]
    killed, spared = decode(
        circuit(), Trace(prompt, trace.keys, trace.values, 0.0, branches), 3, PLENTY
    )
    gold = prompt.questions[0].gold_ids
    assert {id(killed.branch), id(spared.branch)} == {*map(id, branches)}
    by_branch = {id(one.branch): one.token_ids[:1] for one in (killed, spared)}
    assert by_branch[id(branches[0])] != gold
    assert by_branch[id(branches[1])] == gold


def test_the_answers_rows_are_found_to_cause_it() -> None:
    removed, restored = (
        rows_where(INTERVENTIONS, action=of, target="answer", draw=0)
        for of in ("remove", "restore")
    )
    assert removed
    assert restored
    assert all(row.gold_nll > 1 and not row.right for row in removed)
    assert all(row.right for row in restored)


def test_as_many_random_rows_do_nothing() -> None:
    random = [row for row in collected()[INTERVENTIONS.name] if row.draw]
    assert {row.action for row in random} == {"restore", "remove"}
    assert all(row.rows for row in random)
    assert all(row.right == (row.action == "remove") for row in random)


# --- what is asked


def test_what_is_put_back_are_the_lost_answers_of_policies_with_a_mask() -> None:
    full = {key[1] for key, record in records_by_cell().items() if key[2] == FULL and record.right}
    expected = {
        key
        for key, record in records_by_cell().items()
        if key[2] in ("knorm", "random") and not record.right and key[1] in full
    }
    restored = rows_where(INTERVENTIONS, action="restore")
    assert expected
    assert {cell_key(row) for row in restored} == expected
    removed = rows_where(INTERVENTIONS, action="remove")
    assert {row.policy for row in removed} == {FULL}
    assert {row.question_id for row in removed} == full


# --- rows


def test_rows_of_the_evidence_alone_change() -> None:
    model, prompt = model_of("llama"), toy_prompt()
    trace = treat(model, [POLICIES["recency"]], (0.9,), prompt)
    (branch,) = trace.branches
    (case,) = intervene("restore", branch, prompt, 1, [QuestionRows("evidence")])
    changed = keep_mask(case.branch) ^ keep_mask(branch)
    assert int(changed.sum()) == case.changed > 0
    assert case.branch.treatment.questions == (1,)
    others = [
        token for token in range(trace.length) if token not in prompt.questions[1].evidence_tokens
    ]
    assert not changed[:, :, others].any()
