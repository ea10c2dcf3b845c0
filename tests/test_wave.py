"""What the questions of a branch share is read once."""

from collections.abc import Sequence

import pytest
import torch

from datasets_gen import TASKS, Task
from kvbench.engine.branch import Trace
from kvbench.engine.columns import Columns, make_columns, shared_start
from kvbench.engine.prefill import prefill
from kvbench.engine.treatment import plan
from kvbench.models import LoadedModel
from kvbench.prompt import Mode, build_prompts
from policies import POLICIES
from toy import toy_model

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
