"""What it means to put a question to a server: which request is sent, and what is read from the
answer. There are two ways: messages (``chat``), and token numbers (``raw``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from datasets_gen import Example, Question, Task
from kvbench.served.answer import ServedAnswer
from kvbench.store.tables import StoredContext, StoredQuestion

LINE_END = "\n"


@dataclass(frozen=True)
class ServedRequest:
    """One question as it is sent."""

    path: str  # behind the address
    body: Mapping[str, Any]
    stored: StoredQuestion


@dataclass(frozen=True)
class ReadAnswer:
    """What counts of an answer: where it ends, and its tokens if a tokenizer is there."""

    text: str
    ended: bool
    token_ids: list[int] | None = None


class Questioner(Protocol):
    """Puts questions to a server."""

    @property
    def sentence(self) -> str:
        """Says how questions are put, as it is stored and shown."""

    @property
    def begins_answers(self) -> bool:
        """Tells whether an answer goes on from a beginning that is sent with its question."""

    def context(self, task: Task, example: Example) -> StoredContext:
        """Describes the context of an example."""

    def requests(self, task: Task, example: Example) -> Sequence[ServedRequest]:
        """Makes a request of each question of an example."""

    def read(self, task: Task, question: Question, answer: ServedAnswer) -> ReadAnswer:
        """Reads what counts of an answer."""

    def shown(self, task: Task, example: Example) -> str:
        """Writes the first question of an example as it is sent, with its context shortened."""


def shared_body(model: str, task: Task, seed: int) -> dict[str, Any]:
    """Returns the fields of every request: the answer is greedy, and not longer than its task
    has."""
    return {
        "model": model,
        "max_tokens": task.max_new_tokens,
        "temperature": 0,
        "seed": seed,
        "stream": False,
    }
