"""The words that keys and lists are drawn from: ``words.json``, our own, beside this file."""

import hashlib
import json
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict

from datasets_gen.examples.errors import DatasetError

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
            "restore it, or raise the version of the tasks together with the hash in vocabulary.py"
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
