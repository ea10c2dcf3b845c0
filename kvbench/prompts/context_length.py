"""Gives generated tasks contexts of a chosen length."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from huggingface_hub import logging as hub_logging
from tokenizers import Tokenizer

from datasets_gen import FROM_DATA, NATIVE, USUAL_TOKENS, Task, is_file_of_questions, unknown_name
from datasets_gen.tasks.long_context import LONG_CONTEXT, context_of_tokens
from datasets_gen.writing.in_prose import in_tokens
from kvbench.models.shipped import REFERENCE_MODELS, folder_of, is_mistyped
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.places import user_path

Count = Callable[[str], int]


def default_tokens(suite: str | None, tasks: str | None) -> int | None:
    """Returns the tokens of a context where none are given; None where each task keeps its own length: in a suite, and
    where a task has texts that are not generated."""
    names = [name.strip() for name in (tasks or "").split(",")]
    given = any(name in FROM_DATA or is_file_of_questions(name) for name in names)
    return None if suite or given else USUAL_TOKENS


def tokens_of_run(given: str | None, suite: str | None, tasks: str | None) -> int | None:
    """Returns the tokens of every context of a run, as ``--context-tokens`` takes them; None: their own."""
    if given is None:
        return default_tokens(suite, tasks)
    if given == NATIVE:
        return None
    if not re.fullmatch(r"-?\d{1,9}", given):
        raise KVBenchError(f"--context-tokens is a number of tokens or {NATIVE}, not '{given}'")
    return int(given)


def lengthen(
    tasks: Sequence[Task], tokens: int | None, depth: float | None, count: Count, counted_by: str = ""
) -> list[Task]:
    """Returns the tasks with contexts of so many tokens: what they state stands in prose about no one, scattered, or
    together at a relative depth. ``count`` counts the tokens of a text, ``counted_by`` names the model with these
    tokens."""
    if tokens is None and depth is None:
        return list(tasks)
    check_takes_length(tasks)
    if tokens is None:
        raise KVBenchError("--depth needs a length: give --context-tokens too")
    name = Path(counted_by).name
    return [_lengthen(task, tokens, depth, count, name) for task in tasks]


def _lengthen(task: Task, tokens: int, depth: float | None, count: Count, counted_by: str) -> Task:
    if task is LONG_CONTEXT:  # has prose of its own already
        return context_of_tokens(tokens, count, depth, counted_by)
    return in_tokens(task, tokens, count, depth, counted_by)


def check_takes_length(tasks: Sequence[Task]) -> None:
    """Raises :class:`KVBenchError` for a task whose contexts are not generated."""
    for task in tasks:
        if task.name in FROM_DATA or task.most is not None:
            raise KVBenchError(f"--context-tokens and --depth are for generated contexts: those of {task.name} are not")


def lengthen_by_tokenizer(tokenizer: str | None, task: Task, tokens: int | None, depth: float | None) -> Task:
    """Lengthens one task by the tokens of a reference model (by default ``reference``), a local folder or a hub model.
    The tokenizer is loaded when it counts the first text."""
    if tokenizer is not None and tokens is None:
        raise KVBenchError("--tokenizer counts the tokens of --context-tokens: give that too")
    name = tokenizer or "reference"
    (longer,) = lengthen([task], tokens, depth, count_by(name), name)
    return longer


def count_by(tokenizer: str) -> Count:
    """Returns a function that counts tokens as a tokenizer does."""
    loaded = cache(lambda: _load(tokenizer))
    return lambda text: len(loaded().encode(text, add_special_tokens=False).ids)


def _load(tokenizer: str) -> Tokenizer:
    if is_mistyped(tokenizer) and not Path(tokenizer).exists():
        raise KVBenchError(unknown_name("tokenizer", tokenizer, REFERENCE_MODELS))
    folder = folder_of(tokenizer) if tokenizer in REFERENCE_MODELS else user_path(tokenizer)
    hub_logging.set_verbosity_error()  # without a network, attempts would fill the screen
    try:
        if folder.is_dir():
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        return Tokenizer.from_pretrained(tokenizer)
    except Exception as error:  # the library raises bare exceptions
        raise KVBenchError(
            f"no tokenizer.json of '{tokenizer}' can be read ({first_line(error)}): name a reference model, or a "
            "folder or hub model with a fast tokenizer"
        ) from error
