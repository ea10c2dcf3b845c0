"""Contexts of a chosen length: any generated task set in prose, with as many tokens as are asked for."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from huggingface_hub import logging as hub_logging
from tokenizers import Tokenizer

from datasets_gen import FROM_DATA, Task, unknown_name
from datasets_gen.in_prose import in_tokens
from datasets_gen.long_context import LONG_CONTEXT, context_of_tokens
from kvbench.errors import KVBenchError, first_line
from kvbench.reference.shipped import REFERENCE_MODELS, folder_of, mistyped

Count = Callable[[str], int]


def lengthened(
    tasks: Sequence[Task], tokens: int | None, depth: float | None, count: Count, counted_by: str = ""
) -> list[Task]:
    """The tasks with contexts of so many tokens, as ``count`` counts them: what they tell stands in prose about no one,
    scattered, or together at a relative depth. ``counted_by``: the model or folder whose tokens those are."""
    if tokens is None and depth is None:
        return list(tasks)
    if tokens is None:
        raise KVBenchError("--depth needs a length: give --context-tokens too")
    name = Path(counted_by).name
    return [_lengthened(task, tokens, depth, count, name) for task in tasks]


def _lengthened(task: Task, tokens: int, depth: float | None, count: Count, counted_by: str) -> Task:
    if task.name in FROM_DATA:
        raise KVBenchError(f"--context-tokens and --depth are for generated contexts: those of {task.name} are not")
    if task is LONG_CONTEXT:  # has prose of its own already
        return context_of_tokens(tokens, count, depth, counted_by)
    return in_tokens(task, tokens, count, depth, counted_by)


def lengthened_by(tokenizer: str | None, task: Task, tokens: int | None, depth: float | None) -> Task:
    """One task, lengthened by what a tokenizer counts: that of a reference model, of a local folder, or of the hub. It
    is loaded when the first text is counted; without a name it is that of the model ``reference``."""
    if tokenizer is not None and tokens is None:
        raise KVBenchError("--tokenizer counts the tokens of --context-tokens: give that too")
    name = tokenizer or "reference"
    (lengthened_task,) = lengthened([task], tokens, depth, count_by(name), name)
    return lengthened_task


def count_by(tokenizer: str) -> Count:
    """Counts tokens as a tokenizer does."""
    loaded = cache(lambda: _load(tokenizer))
    return lambda text: len(loaded().encode(text, add_special_tokens=False).ids)


def _load(tokenizer: str) -> Tokenizer:
    if mistyped(tokenizer) and not Path(tokenizer).exists():
        raise KVBenchError(unknown_name("tokenizer", tokenizer, REFERENCE_MODELS))
    folder = folder_of(tokenizer) if tokenizer in REFERENCE_MODELS else Path(tokenizer).expanduser()
    hub_logging.set_verbosity_error()  # or an absent network fills the screen with attempts
    try:
        if folder.is_dir():
            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        return Tokenizer.from_pretrained(tokenizer)
    except Exception as error:  # the library raises bare ones
        raise KVBenchError(
            f"no tokenizer.json of '{tokenizer}' can be read ({first_line(error)}): name a reference model, or a "
            "folder or hub model with a fast tokenizer"
        ) from error
