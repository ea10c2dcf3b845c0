"""Makes the tasks of RULER, which have in common a context of a number of tokens, one question, and RULER's metric.

Forms, counts, haystacks and numbers of new tokens are those of RULER (arXiv 2404.06654); texts and words are our own.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.writing.prose import length_in_tokens, place_in_prose

FAMILY = "ruler"
USUAL = 4096
CHARACTERS_OF_A_TOKEN = 4  # about, in English


def count_roughly(text: str) -> int:
    """Counts tokens without a tokenizer."""
    return len(text) // CHARACTERS_OF_A_TOKEN


@dataclass(frozen=True)
class Size:
    """How long a context is and where its needles stand."""

    tokens: int = USUAL
    count: Callable[[str], int] = count_roughly  # the tokens of a text
    depth: float | None = None  # of all needles together; None: each at a depth of its own

    def depths(self, rng: random.Random, needles: int) -> list[float]:
        """Returns the depth of each needle, ascending: uniform, or the one that is asked for."""
        drawn = sorted(rng.random() for _ in range(needles))
        return drawn if self.depth is None else [self.depth] * needles


Make = Callable[[random.Random, Request, Size], Draft]


def ruler_task(
    name: str,
    description: str,
    make: Make,
    max_new_tokens: int,
    answer_end: Literal["line", "tokens"] = "tokens",
    chance: float = 0.0,
    variant: str = "",
) -> Task:
    """Returns a task of RULER; without a length its contexts have about 4,096 tokens of four characters."""
    task = Task(
        name=name,
        version="1.0.0",
        description=description,
        make=partial(_make, make=make, size=Size()),
        top_level=0,
        chance=chance,
        contexts={"quick": 12, "paper": 500},
        questions_per_context=1,
        instruction="",  # the context itself begins with what is to be done
        max_new_tokens=max_new_tokens,
        variant=variant,
        paper="arXiv 2404.06654",
        family=FAMILY,
        answer_end=answer_end,
        usual_tokens=USUAL,
    )
    return replace(task, with_length=partial(_with_length, task, make))


def _make(rng: random.Random, request: Request, make: Make, size: Size) -> Draft:
    return make(rng, request, size)


def _with_length(
    task: Task, make: Make, tokens: int, count: Callable[[str], int], depth: float | None, counted_by: str
) -> Task:
    length, where = length_in_tokens(tokens, count, counted_by), place_in_prose(depth)
    name = f"{length.text} {where}".replace(" ", "-")
    return replace(
        task,
        description=f"{task.description}; {length.text}" + (f", {where}" if depth is not None else ""),
        make=partial(_make, make=make, size=Size(tokens, count, depth)),
        variant=f"{task.variant}+{name}" if task.variant else name,
    )
