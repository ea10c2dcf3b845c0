"""What the questions of a branch share is read once; branches of like length are bundled, and share every pass."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch

import kvbench.engine.decode as engine
from datasets_gen import TASKS, Task
from kvbench.engine.branch import Branch, Trace
from kvbench.engine.bundle import Bundle
from kvbench.engine.columns import Columns, make_columns, shared_start
from kvbench.engine.prefill import prefill
from kvbench.engine.reading import forward
from kvbench.engine.treatment import plan
from kvbench.engine.waves import PADDING, waves
from kvbench.models import LoadedModel
from kvbench.prompt import Mode, build_prompts
from policies import POLICIES
from toy import (
    HEAD_SIZE,
    KEY_HEADS,
    LAYERS,
    PLENTY,
    QUERY_HEADS,
    STEPS,
    answers,
    toy_model,
    toy_prompt,
    treat,
)

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return toy_model()


def columns_of(model: LoadedModel, task: Task, mode: Mode) -> tuple[Trace, Columns]:
    prompt = build_prompts(model.tokenizer, task, task.example(0, 0), mode)[0]
    trace = prefill(model, prompt, plan([POLICIES["recency"]], [0.0, 0.5], prompt, 0))
    return trace, make_columns(trace, trace.branches, torch.device("cpu"))


@pytest.mark.parametrize(
    ("questions", "shared"),
    [
        ([(1, 2, 3), (1, 2, 4)], 2),
        ([(1, 2, 3), (1, 2, 3)], 2),
        ([(1, 2), (1, 2, 3, 4)], 1),
        ([(1,), (1, 2)], 0),
        ([(1, 2, 3), (2, 2, 3)], 0),
        ([(1, 2, 3)], 0),
    ],
    ids=["prefix", "each keeps one of its own", "shortest", "nothing but its own", "nothing alike", "alone"],
)
def test_shared_start(questions: Sequence[Sequence[int]], shared: int) -> None:
    assert shared_start([questions]) == shared
    assert shared_start([questions, questions]) == shared


def test_what_one_row_begins_with_is_not_shared_by_another() -> None:
    assert shared_start([[(1, 2, 3), (1, 2, 4)], [(1, 5, 3), (1, 5, 4)]]) == 1


@every_task
def test_the_instruction_is_read_once_for_all_questions(model: LoadedModel, task: Task) -> None:
    if task.questions_per_context == 1 or not task.instruction:
        pytest.skip("it asks one question, or says no instruction")
    trace, columns = columns_of(model, task, "agnostic")
    shared = columns.shared_ids.tolist()
    assert task.instruction in model.tokenizer.decode(shared[0])
    assert len(shared) == len(trace.branches)
    assert columns.shared_positions[0].tolist() == list(range(trace.length, trace.length + len(shared[0])))
    starts = [0, *(columns.last[:-1] + 1).tolist()]
    for ask, start, last in zip(trace.prompt.asks, starts, columns.last.tolist(), strict=True):
        own = ~columns.padding[0, start : last + 1]
        read = shared[0] + columns.token_ids[0, start : last + 1][own].tolist()
        assert read == list(ask.token_ids)
        positions = columns.positions[0, start : last + 1][own].tolist()
        assert positions == list(range(trace.length + len(shared[0]), trace.length + len(read)))


def test_a_question_alone_shares_nothing(model: LoadedModel) -> None:
    _, columns = columns_of(model, TASKS["base"], "aware")
    assert columns.shared_ids.shape[1] == 0
    assert columns.count == 1


# --- bundles and steps


@pytest.fixture(scope="module")
def trace(model: LoadedModel) -> Trace:
    """Of policies that keep the same number in every head, others in each, or rewrite, and of one question a branch."""
    policies = [POLICIES[name] for name in ("full", "knorm", "snapkv", "adakv_snapkv", "think", "oracle")]
    return treat(model, policies, [0.2, 0.5, 0.8], toy_prompt())


def test_an_answer_that_has_ended_takes_no_more_work(
    model: LoadedModel, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []

    def counting(*arguments: Any, **options: Any) -> torch.Tensor:
        found = forward(*arguments, **options)
        passed.append(len(found))
        return found

    monkeypatch.setattr(engine, "forward", counting)
    lengths = [len(ids) for ids in answers(model, trace).values()]
    assert len(set(lengths)) > 1
    assert passed == [sum(length > step for length in lengths) for step in range(1, max(lengths))]


@pytest.mark.parametrize("every", [2, 3, 100])
def test_looking_less_often_for_ended_answers_changes_none(
    model: LoadedModel, trace: Trace, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """As on a GPU."""
    expected = answers(model, trace)
    monkeypatch.setitem(engine.LOOK_EVERY, "cpu", every)
    assert answers(model, trace) == expected


def test_how_much_a_bundle_is_padded_changes_no_answer(
    model: LoadedModel, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, bundles = [], []
    for padding in (0, 10**9):
        monkeypatch.setitem(PADDING, "cpu", padding)
        (wave,) = waves(trace, STEPS, PLENTY)
        bundles.append(len(wave))
        found.append(answers(model, trace))
    assert bundles[0] > bundles[1] == len({(row.questions, row.even) for rows in wave for row in rows}) > 1
    assert found[0] == found[1]


def seen_by(trace: Trace, branch: Branch, layer: int, head: int) -> list[torch.Tensor]:
    """The keys and the values of the context that a head of a branch reads, shape (kept, head_dim) each."""
    cache = branch.layers[layer]
    keys = trace.keys[layer] if cache.keys is None else cache.keys
    values = trace.values[layer] if cache.values is None else cache.values
    kept = slice(None) if cache.keep is None else cache.keep[head]
    return [keys[head][kept], values[head][kept]]


@pytest.mark.parametrize("padding", [0, 10**9])
def test_attention_of_a_bundle_by_hand(
    model: LoadedModel, trace: Trace, monkeypatch: pytest.MonkeyPatch, padding: int
) -> None:
    """A place sees what its branch keeps in that head and layer, its own question up to itself, and nothing else."""
    monkeypatch.setitem(PADDING, "cpu", padding)
    torch.manual_seed(0)
    groups, compared = QUERY_HEADS // KEY_HEADS, 0
    for rows in waves(trace, STEPS, PLENTY)[0]:
        branches = [row.of for row in rows]
        bundle = Bundle(trace, branches, STEPS)
        bundle.settle()  # as if the questions began with nothing alike
        places = bundle.portions[-1]
        column, blank = bundle.columns.column[places], bundle.columns.padding[:, places]
        bundle.begin_questions(places, slice(0, len(branches)))
        query = torch.randn(blank.numel(), QUERY_HEADS, HEAD_SIZE)
        states = key, value = [torch.randn(blank.numel(), KEY_HEADS, HEAD_SIZE) for _ in range(2)]
        for layer in range(LAYERS):
            output = torch.empty_like(query)
            bundle.attend(layer, query, key, value, HEAD_SIZE**-0.5, None, output)
            for row, place, head in product(range(len(branches)), range(len(column)), range(QUERY_HEADS)):
                if blank[row, place]:
                    continue
                first = row * len(column)
                own = [first + n for n in range(place + 1) if column[n] == column[place] and not blank[row, n]]
                context = seen_by(trace, branches[row], layer, head // groups)
                keys, values = (
                    torch.cat([kept, asked[own, head // groups]]) for kept, asked in zip(context, states, strict=True)
                )
                weights = (keys @ query[first + place, head] * HEAD_SIZE**-0.5).softmax(0)
                torch.testing.assert_close(output[first + place, head], weights @ values, rtol=1e-4, atol=1e-5)
                compared += 1
    assert compared > 1000
