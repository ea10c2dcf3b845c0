"""Makes the grid of questions that a server is asked: the full cache, and tasks that need no look
into it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kvbench.experiments.build_grid import build_grid
from kvbench.experiments.grid import Grid
from kvbench.prompts.context_length import Count, count_by
from kvbench.served.address import Address
from kvbench.store.run_file import EVERY_TASK, Job, TaskOptions
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from policies import FULL

COUNTED_BY = "characters"  # what contexts are counted by where no tokenizer is given
CHARACTERS = 4  # of a token, then
# Options of a run that mean something for a server.
OPTIONS = (
    *("model", "suite", "tasks", "policies", "profile", "limit", "context_tokens"),
    *("max_new_tokens", "difficulty", "seed", "out", "name", "site", "tolerance", "every_task"),
    *("machine",),  # of plan, which its figures for a server do not need
)
NOT_SEEN = "a server shows answers and no cache"


def check_options(changed: Sequence[str], policies: str | None, difficulty: str | None) -> None:
    """Raises :class:`KVBenchError` for an option that needs the model in this process. ``changed``:
    names of parameters that have another value than their default."""
    for name in changed:
        if name not in OPTIONS:
            option = name.replace("_", "-")
            raise KVBenchError(f"--{option}: {NOT_SEEN}: leave it out")
    if policies is not None and policies.strip() != FULL:
        raise KVBenchError(
            f"--policies {policies}: {NOT_SEEN}, so that its one policy is {FULL}: start the server "
            "with another cache, and run again with another --name"
        )
    if difficulty == "auto":
        raise KVBenchError(
            f"--difficulty auto finds levels for a model in this process: {NOT_SEEN}"
        )


def token_count(address: Address) -> Count:
    """Returns what counts the tokens of a text: the tokenizer that is given, or its characters."""
    tokenizer = address.options.tokenizer
    if tokenizer is not None:
        return count_by(tokenizer)
    return lambda text: -(-len(text) // CHARACTERS)


def grid_of_questions(job: Job, address: Address, begins_answers: bool = True) -> Grid:
    """Returns the grid of a job. ``begins_answers``: whether a question can be sent with the
    beginning of its answer. Raises :class:`KVBenchError` where it has to be and cannot."""
    counted_by = address.options.tokenizer or COUNTED_BY
    grid_job = job.model_copy(update={"model": counted_by, "policies": FULL, "controls": False})
    if not begins_answers:
        grid_job = grid_job.model_copy(
            update={"task_options": _without_beginnings(job.task_options)}
        )
    grid = build_grid(grid_job, token_count(address))
    left = [(task, contexts) for task, contexts in grid.tasks if task.role != "text"]
    texts = [task.name for task, _ in grid.tasks if task.role == "text"]
    if texts:
        reason = f"{', '.join(texts)} asks for the likelihoods of a text, and {NOT_SEEN}"
        if job.tasks is not None:
            raise KVBenchError(f"{reason}: leave it out of --tasks")
        console.print(f"left out: {reason}", soft_wrap=True)
    return replace(grid, tasks=left, tables=())


def _without_beginnings(task_options: Mapping[str, TaskOptions]) -> dict[str, TaskOptions]:
    """Returns the options of tasks with answers that are not begun."""
    changed = {EVERY_TASK: TaskOptions(prefix="off")}
    for word, options in task_options.items():
        if options.prefix not in (None, "auto", "off"):
            raise KVBenchError(
                f"{word}(prefix={options.prefix}): the server does not go on from the beginning of "
                "an answer: leave prefix out, or give the tokenizer as ADDRESS(tokenizer=NAME)"
            )
        changed[word] = options.model_copy(update={"prefix": "off"})
    return changed
