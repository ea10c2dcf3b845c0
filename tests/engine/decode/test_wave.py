"""What the questions of a branch share is read once; branches of like length are bundled, and share
every pass."""

from collections.abc import Sequence
from itertools import product

import pytest
import torch

import kvbench.engine.decode.together as engine
from datasets_gen import TASKS, Task
from kvbench.engine.decode.bundle import Bundle
from kvbench.engine.decode.columns import QuestionColumns, Row, make_columns, shared_start
from kvbench.engine.decode.waves import waves
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.models.load import LoadedModel
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import build_prompts
from policies import POLICIES, at_ratios
from tests.support.models.devices import work_as
from tests.support.models.toy import (
    HEAD_SIZE,
    KEY_HEADS,
    LAYERS,
    PLENTY,
    QUERY_HEADS,
    STEPS,
    answers,
    toy_prompt,
    treat,
)

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def columns_of(model: LoadedModel, task: Task, mode: Mode) -> tuple[Trace, QuestionColumns]:
    prompt = build_prompts(model.tokenizer, task, task.example(0, 0), mode)[0]
    trace = prefill(model, prompt, plan([POLICIES["recency"]], at_ratios([0.0, 0.5]), prompt, 0))
    rows = [Row(branch, branch.treatment.questions, True, 1) for branch in trace.branches]
    return trace, make_columns(trace, rows, torch.device("cpu"))


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
    ids=[
        "prefix",
        "each keeps one of its own",
        "shortest",
        "nothing but its own",
        "nothing alike",
        "alone",
    ],
)
def test_shared_start(questions: Sequence[Sequence[int]], shared: int) -> None:
    assert shared_start([questions]) == shared
    assert shared_start([questions, questions]) == shared


@every_task
def test_the_instruction_is_read_once_for_all_questions(llama: LoadedModel, task: Task) -> None:
    if task.questions_per_context == 1 or not task.instruction:
        pytest.skip("it asks one question, or says no instruction")
    trace, columns = columns_of(llama, task, "agnostic")
    shared = columns.shared_ids.tolist()
    assert task.instruction in llama.tokenizer.decode(shared[0])
    assert len(shared) == len(trace.branches)
    assert columns.shared_positions[0].tolist() == list(
        range(trace.length, trace.length + len(shared[0]))
    )
    starts = [0, *(columns.last[:-1] + 1).tolist()]
    for question, start, last in zip(
        trace.prompt.questions, starts, columns.last.tolist(), strict=True
    ):
        own = ~columns.padding[0, start : last + 1]
        read = shared[0] + columns.token_ids[0, start : last + 1][own].tolist()
        assert read == list(question.token_ids)
        positions = columns.positions[0, start : last + 1][own].tolist()
        assert positions == list(range(trace.length + len(shared[0]), trace.length + len(read)))


# --- bundles and steps


@pytest.fixture(scope="module")
def wave_trace(llama: LoadedModel) -> Trace:
    """Of policies that keep the same number in every head, others in each, or rewrite, and of one
    question a branch."""
    policies = [
        POLICIES[name] for name in ("full", "knorm", "snapkv", "adakv_snapkv", "think", "oracle")
    ]
    return treat(llama, policies, [0.2, 0.5, 0.8], toy_prompt())


def test_an_answer_that_has_ended_takes_no_more_work(
    llama: LoadedModel, wave_trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []

    step = engine.WaveSource.step

    def counting(source: engine.WaveSource, tokens: torch.Tensor) -> torch.Tensor:
        found = step(source, tokens)
        passed.append(len(found))
        return found

    monkeypatch.setattr(engine.WaveSource, "step", counting)
    lengths = [len(ids) for ids in answers(llama, wave_trace).values()]
    assert len(set(lengths)) > 1
    assert passed == [sum(length > step for length in lengths) for step in range(1, max(lengths))]


@pytest.mark.parametrize("every", [2, 3, 100])
def test_looking_less_often_for_ended_answers_changes_none(
    llama: LoadedModel, wave_trace: Trace, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """As on a GPU."""
    expected = answers(llama, wave_trace)
    work_as(monkeypatch, look_every=every)
    assert answers(llama, wave_trace) == expected


def seen_by(trace: Trace, branch: Branch, layer: int, head: int) -> list[torch.Tensor]:
    """The keys and the values of the context that a head of a branch reads, shape (kept, head_dim)
    each."""
    cache = branch.layers[layer]
    keys = trace.keys[layer] if cache.keys is None else cache.keys
    values = trace.values[layer] if cache.values is None else cache.values
    kept = slice(None) if cache.keep is None else cache.keep[head]
    return [keys[head][kept], values[head][kept]]


def by_hand(
    query: torch.Tensor, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
) -> torch.Tensor:
    weights = (torch.cat(list(keys)) @ query * HEAD_SIZE**-0.5).softmax(0)
    found: torch.Tensor = weights @ torch.cat(list(values))
    return found


@pytest.mark.parametrize("padding", [0, 10**9])
def test_attention_of_questions_by_hand(
    llama: LoadedModel, wave_trace: Trace, monkeypatch: pytest.MonkeyPatch, padding: int
) -> None:
    """A place sees what its branch keeps in that head and layer, its own question up to itself, and
    nothing else."""
    work_as(monkeypatch, padding_bytes=padding)
    torch.manual_seed(0)
    groups, skipped = QUERY_HEADS // KEY_HEADS, set()
    for of_bundle in waves([wave_trace], STEPS, PLENTY)[0]:
        branches = [row.of for row in of_bundle]
        bundle = Bundle(wave_trace, of_bundle)
        bundle.settle()  # as if the questions began with nothing alike
        for places, rows in product(
            bundle.question_slices, (slice(0, len(branches)), slice(len(branches) - 1, None))
        ):
            bundle.begin(places, rows, alone=True)
            skipped |= set(bundle.skipped)
            column, blank = bundle.columns.column[places], bundle.columns.padding[rows, places]
            query = torch.randn(*blank.shape, QUERY_HEADS, HEAD_SIZE)
            key, value = (torch.randn(*blank.shape, KEY_HEADS, HEAD_SIZE) for _ in range(2))
            for layer in range(LAYERS):
                output = torch.empty_like(query)
                flat = [states.flatten(0, 1) for states in (query, key, value, output)]
                bundle.attend(layer, flat[0], flat[1], flat[2], HEAD_SIZE**-0.5, None, flat[3])
                found, expected = [], []
                for (row, branch), read in product(enumerate(branches[rows]), range(KEY_HEADS)):
                    keys, values = seen_by(wave_trace, branch, layer, read)
                    for place in (
                        (~blank[row]).nonzero()[::4, 0].tolist()
                    ):  # a loop over heads for each
                        own = [
                            n
                            for n in range(place + 1)
                            if column[n] == column[place] and not blank[row, n]
                        ]
                        for head in range(read * groups, (read + 1) * groups):
                            mine = [keys, key[row, own, read]], [values, value[row, own, read]]
                            found.append(output[row, place, head])
                            expected.append(by_hand(query[row, place, head], *mine))
                torch.testing.assert_close(
                    torch.stack(found), torch.stack(expected), rtol=1e-4, atol=1e-5
                )
    assert (max(skipped) > 0) == (padding > 0), "padding that the rows of a pass share is left out"


def test_attention_of_steps_by_hand_while_answers_end(
    llama: LoadedModel, wave_trace: Trace
) -> None:
    """An answer sees its branch, its question and what it has said, whichever others of its row and
    bundle go on."""
    torch.manual_seed(0)
    of_bundle = max(
        waves([wave_trace], STEPS, PLENTY)[0], key=lambda rows: (len(rows[0].questions), len(rows))
    )
    branches = [row.of for row in of_bundle]
    bundle = Bundle(wave_trace, of_bundle)
    bundle.settle()
    columns = bundle.columns
    width, count, rows = columns.token_ids.shape[1], columns.count, len(branches)
    assert count > 1
    assert not columns.padding.any()
    states = [torch.randn(rows, width, KEY_HEADS, HEAD_SIZE) for _ in range(2)]
    for places in bundle.question_slices:
        bundle.begin(places, slice(0, rows), alone=True)
        key, value = (own[:, places].flatten(0, 1) for own in states)
        query = torch.randn(len(key), QUERY_HEADS, HEAD_SIZE)
        bundle.attend(0, query, key, value, None, None, torch.empty_like(query))
    bundle.grow(width)
    said: dict[tuple[int, int], list[list[torch.Tensor]]] = {
        (row, column): [[], []] for row, column in product(range(rows), range(count))
    }
    going = list(said)
    for ended in (
        {going[0]},
        {(rows - 1, column) for column in range(count)} | {going[1]},
        set(going[: count + 1]),
    ):
        bundle.begin_step()
        new = key, value = [torch.randn(len(going), KEY_HEADS, HEAD_SIZE) for _ in range(2)]
        query = torch.randn(len(going), QUERY_HEADS, HEAD_SIZE)
        output = torch.empty_like(query)
        bundle.attend(0, query, key, value, HEAD_SIZE**-0.5, None, output)
        for number, (row, column) in enumerate(going):
            for own, more in zip(said[row, column], new, strict=True):
                own.append(more[number])
            for head in range(QUERY_HEADS):
                read = head // (QUERY_HEADS // KEY_HEADS)
                context = seen_by(wave_trace, branches[row], 0, read)
                question = [own[row, columns.column == column, read] for own in states]
                answer = [torch.stack(own)[:, read] for own in said[row, column]]
                expected = by_hand(
                    query[number, head], *zip(context, question, answer, strict=True)
                )
                torch.testing.assert_close(output[number, head], expected, rtol=1e-4, atol=1e-5)
        bundle.grow(count)
        bundle.keep_answering(torch.tensor([answer not in ended for answer in going]))
        going = [answer for answer in going if answer not in ended]
        assert bundle.answering == len(going)
    assert bundle.rows < rows, "rows that have ended are gone"
