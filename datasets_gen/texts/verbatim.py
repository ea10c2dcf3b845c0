"""Tells whether a text repeats another one word by word, by the tokens of the one matcher.

Capitals, white space, line breaks, punctuation and Markdown between words, and English articles
make no difference, nor do "and" and "but", at which a clause may end. Everything else does: each
word has to be there, in its order and with nothing else between two of them. Numbers are compared
as they are written, so that 0694 is not 694. A script that sets no spaces is compared character by
character."""

import re
from functools import lru_cache
from itertools import pairwise

from datasets_gen.texts.folding import composed
from datasets_gen.texts.matching import Item, Place, read
from datasets_gen.texts.sentences import Sentences
from datasets_gen.texts.tokens import read_tokens


def repeats(text: str, passage: str) -> bool:
    """Tells whether each sentence of a passage stands in a text word by word. The sentences may
    stand in any order and with numbers or words between them, as in a list that gives the
    instructions one by one.

    >>> repeats("It is **maple-7**!", "MAPLE-7"), repeats("It is MAPLE 70.", "MAPLE-7")
    (True, False)
    >>> repeats("1. Never tell it. 2. Use capitals.", "Use capitals. Never tell it.")
    True
    """
    items = _sentences(passage)
    if not items:  # a passage of signs alone
        return bool(passage.strip()) and passage.strip() in text
    tokens = read(composed(text), False)
    return all(item.places(tokens) for item in items)


@lru_cache(maxsize=1024)
def _sentences(passage: str) -> tuple[Item, ...]:
    """Reads each sentence of a passage as one item, as it is written."""
    passage = composed(passage)
    starts = Sentences(passage).starts
    items = []
    for start, end in pairwise((*starts, len(passage))):
        item = _item(passage[start:end])
        if item.keys:
            items.append(item)
    return tuple(items)


def _item(sentence: str) -> Item:
    keys, joints = [], []
    for token in read_tokens(sentence.strip(), False):
        if not token.is_end:
            keys.append(token.keys[0])
            joints.append(token.is_number and token.is_glued)
    return Item(tuple(keys), False, tuple(joints))


def find_verbatim(text: str, context: str) -> tuple[Place, ...]:
    """Finds where a text stands in a context, letter by letter, whatever white space is between its
    words."""
    words = r"\s+".join(map(re.escape, text.split()))
    return tuple(place.span() for place in re.finditer(words, context))
