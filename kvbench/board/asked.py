"""Chooses what a press is asked that is to stand on the board: what its stored methods were."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from datasets_gen import NATIVE
from kvbench.board.pieces import Piece, sort_pieces
from kvbench.prompts.context_length import Tokens
from kvbench.store.run_file import Job, TaskOptions
from kvbench.system.errors import KVBenchError

# What a place needs at least, in minutes; a model that has none of them on the board is asked all.
QUICK_TASKS = ("niah_single_2", "base")
RATIOS = "0.5,0.75"
# Options of a job that are the same for all tasks of a run.
OF_ALL_TASKS = ("context_tokens", "max_new_tokens", "phrasings")


def choose_pieces(
    pieces: Sequence[Piece], model: str | None, mode: str, tasks: Collection[str] | None
) -> list[Piece]:
    """Chooses the pieces of a model, by default the first of the board, in a mode, of some tasks.
    Those of another length than the first, that look closer, or are stale, are left out. Raises
    :class:`KVBenchError` where the board has none."""
    usual = sort_pieces(pieces).usual
    of_mode = [piece for piece in usual if piece.store.identity.mode == mode]
    if model is None and of_mode:
        model = of_mode[0].store.identity.model
    of_model = [piece for piece in of_mode if piece.store.identity.model == model]
    wanted = tasks or QUICK_TASKS
    chosen = [piece for piece in of_model if _asks_any(piece, wanted)]
    if not chosen and tasks is None:
        chosen = of_model
    fresh = [piece for piece in chosen if piece.fresh_policies]
    if not fresh:
        there = ", ".join(f"{model} ({', '.join(names)})" for model, names in _has(pieces).items())
        raise KVBenchError(
            f"the board has no fresh answers of {model} in mode {mode} to {', '.join(wanted)}: it "
            f"has {there}"
        )
    leading = _shared_options(fresh[0])
    return [piece for piece in fresh if _shared_options(piece) == leading]


def choose_length(pieces: Sequence[Piece], tokens: Tokens) -> list[Piece]:
    """Keeps the pieces whose contexts were asked to have so many tokens. Raises
    :class:`KVBenchError` where the board has none."""
    lengths = {_job(piece).context_tokens: piece for piece in pieces}
    if tokens not in lengths:
        there = ", ".join(dict.fromkeys(piece.board[-1] for piece in lengths.values()))
        raise KVBenchError(f"--context-tokens {tokens or NATIVE}: the board has {there}")
    return [piece for piece in pieces if _job(piece).context_tokens == tokens]


def _asks_any(piece: Piece, tasks: Collection[str]) -> bool:
    return any(task.name in tasks for task in piece.store.identity.tasks)


def _has(pieces: Sequence[Piece]) -> dict[str, list[str]]:
    """Lists the tasks of each model of the board."""
    tasks: dict[str, dict[str, None]] = {}
    for piece in pieces:
        identity = piece.store.identity
        names = dict.fromkeys(task.name for task in identity.tasks)
        tasks.setdefault(identity.model, {}).update(names)
    return {model: list(names) for model, names in tasks.items()}


def _job(piece: Piece) -> Job:
    """Returns the job that made a piece. Raises :class:`KVBenchError` where none is stored."""
    job = piece.store.run.job
    if job is None:
        raise KVBenchError(f"{piece.store.folder} does not say how it was asked")
    return job


def _shared_options(piece: Piece) -> tuple[Any, ...]:
    job, identity = _job(piece), piece.store.identity
    return (identity.answer_setting, *(getattr(job, name) for name in OF_ALL_TASKS))


def board_options(pieces: Sequence[Piece]) -> Mapping[str, Any]:
    """Returns the options of a job that asks all tasks of some pieces as they were asked, in the
    numbers that the records have."""
    identity = pieces[0].store.identity
    levels: dict[str, str] = {}
    contexts: dict[str, int] = {}
    task_options: dict[str, TaskOptions] = {}
    for piece in pieces:
        job = _job(piece)
        task_options |= job.task_options
        for task in piece.store.identity.tasks:
            contexts[task.name] = task.contexts
            if job.difficulty is not None:
                levels[task.name] = _level_text(job.difficulty, task.name)
    return {
        "tasks": ",".join(contexts),
        "limit": min(contexts.values()),
        "task_options": task_options,
        "difficulty": ",".join(filter(None, levels.values())) or None,
        "dtype": identity.dtype,
        "date": identity.date or None,
        "seed": identity.seed,
    }


def _level_text(difficulty: str, task: str) -> str:
    """Returns what ``--difficulty`` says of a task; nothing where it does not name it."""
    if "=" not in difficulty:
        return f"{task}={difficulty}"
    for part in difficulty.split(","):
        if part.partition("=")[0].strip() == task:
            return part.strip()
    return ""
