"""Gives generated tasks contexts of a chosen length."""

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Literal

from huggingface_hub import logging as hub_logging
from tokenizers import Tokenizer

from datasets_gen import (
    FROM_DATA,
    NATIVE,
    RULER,
    USUAL,
    Length,
    Task,
    unknown_name,
)
from datasets_gen.tasks.prose import PROSE
from datasets_gen.tasks.ruler.form import USUAL as USUAL_OF_RULER
from datasets_gen.writing.prose import in_prose
from kvbench.handed.scope import find_handed_model
from kvbench.handed.tasks import is_of_user
from kvbench.models.gguf.header import is_gguf, read_header
from kvbench.models.gguf.tokenizer import build_tokenizer
from kvbench.models.names import MODEL_NAMES, adapter_folder, is_mistyped, model_source
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.files import user_path

Count = Callable[[str], int]
# Tokens beside a usual context and its answer: the chat template, a question, and an answer prefix.
ROOM = 256
STEP = 128  # tokens by which a usual context is shortened
# Of a context; usual: what each task has in a run; None: its own length.
Tokens = int | Literal["usual"] | None


def default_tokens(suite: str | None, tasks: str | None) -> Tokens:
    """Returns the tokens of a context where none are given: None in a suite, and for texts that are
    not generated."""
    names = [name.strip() for name in (tasks or "").split(",")]
    is_given_text = any(name in FROM_DATA or is_of_user(name) for name in names)
    return None if suite or is_given_text else USUAL


def tokens_of_run(text: str | None, suite: str | None, tasks: str | None) -> Tokens:
    """Returns the tokens of every context of a run, as ``--context-tokens`` takes them. Raises
    :class:`KVBenchError` for a text that is no number."""
    if text is None:
        return default_tokens(suite, tasks)
    if text in (NATIVE, USUAL):
        return None if text == NATIVE else USUAL
    if not re.fullmatch(r"-?\d{1,9}", text):
        raise KVBenchError(f"--context-tokens is a number of tokens or {NATIVE}, not '{text}'")
    return int(text)


def lengthen(
    tasks: Sequence[Task],
    tokens: Tokens,
    depth: float | None,
    count: Count,
    counted_by: str = "",
    places: int | None = None,
) -> list[Task]:
    """Returns the tasks with contexts of so many tokens: what they state stands in prose about no
    one, scattered, or together at a relative depth. ``count`` counts the tokens of a text,
    ``counted_by`` names the model with these tokens, and ``places`` are those that it has: a length
    that nobody gave stays within them. Raises :class:`KVBenchError` for a depth without a
    length."""
    if tokens is not None or depth is not None:
        check_takes_length(tasks)
    longer = []
    for task in tasks:
        if (of_task := count_context_tokens(task, tokens, places)) is not None:
            length = Length(of_task, count, depth, Path(counted_by).name)
            longer.append((task.with_length or partial(in_prose, task))(length))
        elif depth is not None:
            raise KVBenchError("depth needs a length: give --context-tokens too")
        else:
            longer.append(task)
    return longer


def count_context_tokens(task: Task, tokens: Tokens, places: int | None = None) -> int | None:
    """Returns the tokens of a context of a task; None where it has as many words as it makes.
    ``places``: of the model, within which a usual length stays with its question and answer."""
    if isinstance(tokens, int):
        return tokens
    # The own length of a task of RULER is a number of tokens too.
    if tokens != USUAL and task.name not in RULER:
        return None
    room = ROOM + task.max_new_tokens
    if places is None or task.usual_tokens + room <= places:
        return task.usual_tokens
    return max(STEP, (places - room) // STEP * STEP)


def notes_on_length(
    tasks: Sequence[Task], tokens: Tokens, places: int | None, model: str
) -> list[str]:
    """Says in a line which tasks have shorter contexts than usual, because the model has too few
    places."""
    shorter: dict[int, list[str]] = {}
    for task in tasks:
        length = count_context_tokens(task, tokens, places)
        if not isinstance(tokens, int) and length is not None and length < task.usual_tokens:
            shorter.setdefault(length, []).append(task.name)
    notes = []
    for length, names in shorter.items():
        notes.append(
            f"{', '.join(names)}: contexts have {length:,} tokens and not the usual "
            f"{USUAL_OF_RULER:,}, as {model} takes {places:,} with question and answer"
        )
    return notes


def check_takes_length(tasks: Sequence[Task]) -> None:
    """Raises :class:`KVBenchError` for a task whose contexts are not generated, nor cut from a
    longer text."""
    for task in tasks:
        if (task.name in FROM_DATA or task.most is not None) and task.with_length is None:
            longer = f"those of {task.name} are not{': give the text as prose(data=FILE)' if task.name == PROSE.name else ''}"
            raise KVBenchError(f"--context-tokens and depth are for generated contexts: {longer}")


def lengthen_by_tokenizer(
    tokenizer: str | None, task: Task, tokens: int | None, depth: float | None
) -> Task:
    """Lengthens one task by the tokens of a model (default ``reference``), loaded when it counts
    the first text. Raises :class:`KVBenchError` for a tokenizer without a length."""
    if tokenizer is not None and tokens is None:
        raise KVBenchError("--tokenizer counts the tokens of --context-tokens: give that too")
    if tokens is None and depth is None:
        return task
    name = tokenizer or "reference"
    (longer,) = lengthen([task], tokens, depth, count_by(name), name)
    return longer


def count_by(tokenizer: str) -> Count:
    """Returns a function that counts tokens as a tokenizer does."""
    if handed := find_handed_model(tokenizer):
        in_memory = handed.tokenizer
        return lambda text: len(in_memory.encode(text, add_special_tokens=False))
    loaded = cache(lambda: load_fast_tokenizer(tokenizer))
    return lambda text: len(loaded().encode(text, add_special_tokens=False).ids)


def load_fast_tokenizer(tokenizer: str) -> Tokenizer:
    """Loads the tokenizer of a model without transformers. Raises :class:`KVBenchError` where there
    is none that can be read so."""
    if is_mistyped(tokenizer) and not Path(tokenizer).exists():
        raise KVBenchError(unknown_name("tokenizer", tokenizer, MODEL_NAMES))
    adapter = adapter_folder(tokenizer)
    is_known = tokenizer in MODEL_NAMES or adapter is not None
    place = Path(model_source(tokenizer)) if is_known else user_path(tokenizer)
    if adapter is not None and (adapter / "tokenizer.json").is_file():
        place = adapter  # a tokenizer that comes with an adapter is used in place of its base's
    if is_gguf(place):
        return build_tokenizer(read_header(place))
    hub_logging.set_verbosity_error()  # without a network, attempts would fill the screen
    try:
        if place.is_dir():
            return Tokenizer.from_file(str(place / "tokenizer.json"))
        return Tokenizer.from_pretrained(tokenizer)
    except Exception as error:  # the library raises bare exceptions
        raise KVBenchError(
            f"no tokenizer.json of '{tokenizer}' can be read ({first_line(error)}): name a "
            f"reference model, a GGUF file, or a folder or hub model with a fast tokenizer"
        ) from error
