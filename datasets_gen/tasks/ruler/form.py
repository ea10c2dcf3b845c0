"""Makes the tasks of RULER, which have in common a context of a number of tokens, one question, and RULER's metric.

Forms, counts, haystacks and numbers of new tokens are those of RULER (arXiv 2404.06654); texts and words are our own.
"""

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict

from datasets_gen.examples.errors import DatasetError
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
    answer_end: Literal["sentence", "tokens"] = "tokens",
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


WORDS_SHA256 = "f3a6fc2b3a145b6250343cf684d61a707f0d73c106bbfc48c2d28f202baf5721"
MOST_LETTERS = 5  # of a short word


class Vocabulary(BaseModel):
    """Words by kind, in lower case; none is listed twice."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]
    verbs: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.adjectives, *self.nouns, *self.verbs)


@cache
def vocabulary() -> Vocabulary:
    """Reads the words, once; raises :class:`DatasetError` if they are not the released ones, byte for byte."""
    content = files("datasets_gen.tasks.ruler").joinpath("words.json").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != WORDS_SHA256:
        raise DatasetError(
            f"datasets_gen/tasks/ruler/words.json was changed (sha256 {digest[:12]}, released {WORDS_SHA256[:12]}): "
            "restore it, or raise the version of the tasks together with the hash in form.py"
        )
    return Vocabulary.model_validate(json.loads(content))


@cache
def short_words() -> tuple[str, ...]:
    """Lists the short words that are part of no other word: an output that holds one of them as a substring names it.

    Hundreds of them stand in a list, and few tokens of a small vocabulary have to hold it.
    """
    words = vocabulary().words
    text = " ".join(words)
    return tuple(word for word in words if len(word) <= MOST_LETTERS and text.count(word) == 1)
