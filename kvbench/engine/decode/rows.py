"""A row of a batch stands for a branch and the questions that are decoded from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic, TypeVar

from kvbench.engine.treat.branch import Branch
from kvbench.engine.treat.plan import Treatment
from kvbench.prompts.prompt import Prompt

Of = TypeVar("Of", Branch, Treatment)


@dataclass(frozen=True)
class Row(Generic[Of]):
    """Describes one row of a batch.

    All questions of a branch share one row, which holds the kept keys once. A branch whose cache is treated between
    steps has a row for each question, since what is done to the context for one question must not reach another; so has
    one whose numbers may be infinite or NaN.
    """

    of: Of
    questions: tuple[int, ...]  # their numbers in the prompt
    even: bool  # every head reads as many tokens in every layer
    # Bytes of its keys and values, and of those of its copy: every head that its press compresses taken to read as many
    # as the longest, with room for questions and answers
    size: int
    steps: int = 1  # the places that each answer may take
    # A copy of it passes the right answer of its question token by token, from where the question has been read.
    paired: bool = False

    def question_ids(self, prompt: Prompt) -> list[tuple[int, ...]]:
        return [prompt.questions[number].token_ids for number in self.questions]

    def gold_ids(self, prompt: Prompt) -> list[tuple[int, ...]]:
        return [prompt.questions[number].gold_ids for number in self.questions]


def shared_start(questions: Sequence[Sequence[Sequence[int]]]) -> int:
    """Counts the tokens that all questions of all rows begin with; each has at least one more. A row of one question
    shares nothing."""
    if len(questions[0]) == 1:
        return 0
    beginnings = [question[:-1] for of_row in questions for question in of_row]
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*beginnings, strict=False)))
