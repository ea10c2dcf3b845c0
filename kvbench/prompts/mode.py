"""How a model is asked: when a policy sees the question, what of an example is compressed, and how
answers are begun.

The shipped models were taught to answer in a few words; every other one answers in sentences, and
is given their beginning."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from datasets_gen import INSTRUCTION, TASKS, Draft, Request, Task
from kvbench.handed.scope import known_name
from kvbench.models.names import ADAPTERS, REFERENCE_MODELS
from kvbench.system.errors import KVBenchError

# The cache is compressed before the question is seen, or with it.
Mode = Literal["agnostic", "aware"]
Scope = Literal["context", "system"]  # any context, or only contexts that are system prompts
AUTO_PREFIX = "auto"
# Of the option ``prefix`` of a task; any other text begins the answers itself.
PREFIX_WAYS = (AUTO_PREFIX, "on", "off")
# That an answer may have which is a sentence: 16, enough for a taught answer, cut sentences off.
SENTENCE_TOKENS = 32


def phrase_tasks(tasks: Sequence[Task], model: str, answer_prefix: str | None = None) -> list[Task]:
    """Returns the tasks as they are asked of a model of that name. ``auto``, or None, begins the
    answers of every model but the shipped ones, which were taught without; where these are
    adapters, in the tasks that they were taught. A text that is not one of :data:`PREFIX_WAYS`
    begins all answers to questions from files; :class:`KVBenchError` where there are none."""
    if answer_prefix is not None and answer_prefix not in PREFIX_WAYS:
        return _begun_with(answer_prefix, tasks, model)
    as_asked = []
    model = known_name(model)
    for task in tasks:
        is_taught = model in REFERENCE_MODELS or (model in ADAPTERS and task.name in TASKS)
        as_it_is = task.role == "text" or (answer_prefix != "on" and is_taught)
        as_asked.append(task if as_it_is else _with_beginning(task, answer_prefix != "off"))
    return as_asked


def _begun_with(prefix: str, tasks: Sequence[Task], model: str) -> list[Task]:
    """Begins the answers to questions from files with a text; other tasks are asked as by default.

    Raises :class:`KVBenchError` for an empty text, and where no task has questions from a file.
    """
    if not prefix.strip() or not any(task.with_prefix for task in tasks):
        ways = f"prefix is {', '.join(PREFIX_WAYS)}, or the text that begins each answer to your own questions"
        raise KVBenchError(
            f"{ways}: '{prefix}' is none of these, and --tasks gives it to no file of questions"
        )
    as_asked = []
    for task in tasks:
        if task.with_prefix:
            as_asked.append(_with_beginning(task.with_prefix(prefix.strip()), begins=True))
        else:
            as_asked += phrase_tasks([task], model)
    return as_asked


def _with_beginning(task: Task, begins: bool) -> Task:
    changed = replace(
        task, begins_answers=begins, max_new_tokens=max(task.max_new_tokens, SENTENCE_TOKENS)
    )
    if begins and task.answer_marker and task.instruction:
        # A begun answer states the number: to ask for the steps too, and look for a mark behind
        # them, would find none.
        make = partial(_without_steps, task.make)
        return replace(changed, instruction=INSTRUCTION, answer_marker="", make=make)
    return changed


def _without_steps(
    make: Callable[[random.Random, Request], Draft], rng: random.Random, request: Request
) -> Draft:
    """Makes the number itself the perfect output of each question."""
    draft = make(rng, request)
    return replace(
        draft, questions=tuple(replace(question, target=None) for question in draft.questions)
    )
