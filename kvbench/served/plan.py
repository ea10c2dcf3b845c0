"""Says what a run of a server would ask, and which differences it could show. Nothing is sent for
that: the speed of a server is its own."""

from dataclasses import dataclass

from kvbench.estimate.plan import contexts_rows
from kvbench.served.address import Address
from kvbench.served.job import grid_of_questions, token_count
from kvbench.store.run_file import Job, choose_tolerance

NOT_INCLUDED = "Not included: the time and the memory of the server, which nothing here knows."


@dataclass(frozen=True)
class PlannedTask:
    """Says how much is asked in a task."""

    task: str
    contexts: int
    questions: float  # about a context
    tokens: int  # of a context


def plan_rows(text: str, job: Job) -> list[tuple[str, str]]:
    """Returns the rows of a plan, each with its title and a text. ``text``: the address of the
    server. Raises :class:`KVBenchError` for options that make no sense."""
    address = Address.read(text)
    grid = grid_of_questions(job, address)
    count_tokens = token_count(address)
    planned: list[PlannedTask] = []
    for task, contexts in grid.tasks:
        example = grid.example(task, 0)
        tokens = count_tokens(example.context)
        planned.append(PlannedTask(task.name, contexts, float(len(example.questions)), tokens))
    count = sum(task.contexts * task.questions for task in planned)
    read = sum(task.contexts * task.questions * task.tokens for task in planned)
    return [
        ("questions", f"{count:,.0f}"),
        ("tokens of their contexts", f"{read:,.0f}, without what the server keeps of a prefix"),
        *contexts_rows(planned, choose_tolerance([job])),
    ]
