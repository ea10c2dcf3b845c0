"""Asks a model the questions of some contexts of a task, for a check or a score that is stored in no run."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from datasets_gen import Question, Task
from kvbench.checks.findings import Begin, silent
from kvbench.engine.decode.generation import OverflowingModelError, fault_of_model
from kvbench.experiments.collect import collect
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel
from kvbench.prompts.mode import Mode
from kvbench.run.workers import Workers
from kvbench.store.tables import CONTEXTS
from policies import Policy

MODE: Mode = "agnostic"
TEXTS = {"context", "token_ends"}  # columns of a context that say nothing of an answer


def answers_of(
    model: LoadedModel,
    task: Task,
    policies: Sequence[Policy],
    contexts: int,
    seed: int,
    chosen: Callable[[Question], bool] = lambda question: True,
    held_out: bool = False,
    begin: Begin = silent,
    first: int = 0,
) -> pd.DataFrame:
    """Returns one row for each answer, with the columns of its context, question and record. All policies share the
    prefill of a context; ``chosen`` says which questions are asked, ``begin`` hears of each context, and ``first`` is
    the number of the first. Raises :class:`OverflowingModelError`."""
    workers, fault = Workers(model, contexts), fault_of_model(model)
    setting = Setting(policies, (), seed, MODE).shared_by(workers.count, model.device)

    def answers(replica: LoadedModel, index: int) -> list[dict[str, object]]:
        example = task.example(seed, index, held_out=held_out)
        example = replace(example, questions=tuple(filter(chosen, example.questions)))
        if not example.questions:
            return []
        collected = collect(replica, task, [example], setting)
        if any(record.reason == fault for record in collected.records):
            raise OverflowingModelError(fault)
        questions = {question.question_id: question.model_dump() for question in collected.questions}
        (context,) = (row.model_dump(exclude=TEXTS) for row in collected.tables[CONTEXTS.name])
        return [context | questions[record.question_id] | record.model_dump() for record in collected.records]

    rows: list[dict[str, object]] = []
    with workers.map(answers, range(first, first + contexts)) as results:
        for _ in range(contexts):
            begin(task.name)
            rows += next(results)
    return pd.DataFrame(rows)
