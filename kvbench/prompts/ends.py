"""Tells which tokens end an answer beside the model's own end tokens: those that end a sentence or a line.

An answer that goes on from a begun sentence ends with it: what a model writes behind it is about something else, and
may name what is right for others. A model without a chat template writes no end token, and ends with its line.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Self

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from datasets_gen import Task

_SENTENCE = re.compile(r"[.!?]+[\"'”’)\]]*")
_INITIAL = re.compile(r"[A-Z]")


@dataclass(frozen=True)
class AnswerEnds:
    """Holds tokens by what they do to an answer."""

    tokens: tuple[int, ...] = ()  # end it
    sentence: tuple[int, ...] = ()  # end it, unless an initial stands before them, as in "A. F."
    initials: tuple[int, ...] = ()

    def with_tokens(self, tokens: Sequence[int]) -> Self:
        """Adds tokens that end an answer, such as the model's own."""
        return replace(self, tokens=(*self.tokens, *tokens))

    @cached_property
    def _sets(self) -> tuple[frozenset[int], ...]:
        """Holds the tokens to look one up: made once for all answers, as a vocabulary has thousands of ends."""
        return frozenset(self.tokens), frozenset(self.sentence), frozenset(self.initials)

    def until_end(self, token_ids: Sequence[int]) -> tuple[list[int], bool]:
        """Cuts an answer behind the first token that ends it; tells too whether there is one."""
        tokens, sentence, initials = self._sets
        for place, token in enumerate(token_ids):
            behind_initial = place > 0 and token_ids[place - 1] in initials
            if token in tokens or (token in sentence and not behind_initial):
                return list(token_ids[: place + 1]), True
        return list(token_ids), False


NO_ENDS = AnswerEnds()


def answer_ends(tokenizer: PreTrainedTokenizerBase, task: Task) -> AnswerEnds:
    """Returns what ends the answers of a task; nothing for a chat model that begins its answers itself, or for a task
    whose answers take all of their tokens."""
    base = tokenizer.chat_template is None
    if task.role == "text" or task.answer_end == "tokens" or not (task.begins_answers or base):
        return NO_ENDS
    ends = _ends_of(tokenizer.backend_tokenizer)
    is_sentence = task.begins_answers and task.answer_end == "sentence"
    return ends if is_sentence else AnswerEnds(ends.tokens)


@lru_cache(maxsize=8)  # a vocabulary has up to 262,144 tokens
def _ends_of(tokenizer: Tokenizer) -> AnswerEnds:
    texts: Sequence[str] = tokenizer.decode_batch([[token] for token in range(tokenizer.get_vocab_size())])
    numbered = list(enumerate(texts))
    return AnswerEnds(
        tuple(token for token, text in numbered if "\n" in text),
        tuple(token for token, text in numbered if _SENTENCE.fullmatch(text.strip())),
        tuple(token for token, text in numbered if _INITIAL.fullmatch(text.strip())),
    )
