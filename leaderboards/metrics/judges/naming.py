"""Tells which values a text names: found by the matcher of :mod:`datasets_gen.texts`, and not
behind a "not".

Names are looked up in the view of a text that leaves numbers as they are written: agent 07 is not
agent 7."""

import re
from collections.abc import Sequence
from functools import lru_cache

from datasets_gen import value_kinds
from datasets_gen.texts.choices import options_in, other_options, same_option
from datasets_gen.texts.folding import fold
from datasets_gen.texts.matching import (
    LONG,
    Item,
    TextTokens,
    is_part,
    is_twin,
    read_items,
    readings,
    single_letter,
    value_form,
)
from datasets_gen.texts.tokens import read_tokens

# What denies the rest of its clause, and what denies the value before it: in English, and the
# commonest of others.
_ONLY = r"(?! (?:only|just|merely)\b)"
_NOT = (
    r"not|never|nor|neither|no longer|instead of|unlike|(?<! other )than"
    r"|nicht|kein|keine|nie|pas|jamais|nunca|jamás|non è|não|не|нет|niet|geen|inte|ikke|δεν|οχι|ليس|ليست|لا|לא"
)
_DENIES = re.compile(rf" (?:{_NOT}){_ONLY} ")
_DENIED = re.compile(
    rf" (?:is|was|are|were|do|does|did|has|had|can|could|will|would) not{_ONLY} | (?:değil|नहीं|아니\w*|아닙\w*) "
)
# Of scripts without spaces: the last word of these before a value, or the first behind it, decides.
_DENIES_SPACELESS = re.compile(r"不是|不在|不叫|并非|並非|而非|没有|沒有|不会是|不")
_AFFIRMS_SPACELESS = re.compile(r"而是|而在|就是|ではなく|じゃなく|でなく|không phải")
_DENIED_SPACELESS = re.compile(r"(?:では|じゃ|で)な|ではあ|じゃあ|ไม่ใช่")


def _stands(item: Item, text: str) -> bool:
    return any(item.places(tokens) for tokens in readings(text, item))


def _is_named(item: Item, text: str) -> bool:
    """Tells whether an item stands in a text and is not denied there."""
    return any(
        not _is_denied(tokens, first, last)
        for tokens in readings(text, item)
        for first, last in item.places(tokens)
    )


def _is_denied(text: TextTokens, first: int, last: int) -> bool:
    """Tells whether what stands between the ends of a clause before or behind a value denies it."""
    tokens = text.tokens
    begin, end = first, last + 1
    while begin > 0 and not tokens[begin - 1].is_end:
        begin -= 1
    while end < len(tokens) and not tokens[end].is_end:
        end += 1
    before = [token.keys[0] for token in tokens[begin:first]]
    after = [token.keys[0] for token in tokens[last + 1 : end]]
    if (before and _DENIES.search(f" {' '.join(before)} ")) or (
        after and _DENIED.match(f" {' '.join(after)} ")
    ):
        return True
    if not tokens[first].is_spaceless:
        return False
    # Only what stands behind the last word that affirms denies the value: 不是甲，而是乙 names 乙.
    denies = _DENIES_SPACELESS.search(_AFFIRMS_SPACELESS.split("".join(before))[-1])
    return denies is not None or _DENIED_SPACELESS.match("".join(after)) is not None


def names(text: str, value: str, as_written: bool = False) -> bool:
    """Tells whether a text names a value, of a list each item, in any order. ``as_written``: a
    number is compared as it is written.

    >>> names("It is not Breveth, but Ambrova.", "Breveth"), names("Locker 0694", "694")
    (False, True)
    >>> names("a flute, a harp", "harp and flute"), names("a flute", "harp and flute")
    (True, False)
    >>> names("O+", "O-"), names("서울에", "서울"), names("3.10", "3.1", as_written=True)
    (False, True, False)
    """
    items = read_items(value, as_written)
    if not items:  # a value of punctuation
        return value.strip() == text.strip() != ""
    return bool(items) and all(_is_named(item, text) for item in items)


def mentions(text: str, value: str) -> bool:
    """Tells whether a value stands in a text, be it named or denied."""
    items = read_items(value)
    return bool(items) and all(_stands(item, text) for item in items)


def names_gold(text: str, gold: str, question: str, as_written: bool = False) -> bool:
    """Tells whether a text names a gold; where the question lists options, by its letter or by its
    text."""
    if names(text, gold, as_written):
        return True
    other_name = same_option(gold, single_letter(gold), options_in(question))
    return bool(other_name) and names(text, other_name)


def rivals(
    golds: Sequence[str],
    stated_values: Sequence[str],
    others: Sequence[str],
    question: str,
    every_gold: bool = False,
) -> list[str]:
    """Returns what would be another answer to the question: ``others``, the stated values of the
    golds' kind or form, and the other options of a question that lists some.

    Values of no kind are words of somebody's own text, and nothing tells what they answer: where
    the question is known, the ``others`` are all of them that answer the like. But where all golds
    are asked for, any other is one too many. A value that the question names is none: "The mentor
    of Klaus is Ada" repeats it. But where it asks to choose among what it names, these are. Nor is
    a part of a gold, or the same in another form."""
    listed = options_in(question)
    other_names = [
        name for gold in golds for name in other_options(gold, single_letter(gold), listed)
    ]
    kinds = [_kinds(gold) for gold in golds]
    asks_to_choose = any(mentions(question, gold) for gold in golds)
    takes_any = every_gold or not question
    alike = [
        value
        for value in stated_values
        if any(
            _is_alike(value, gold, kind, takes_any) for gold, kind in zip(golds, kinds, strict=True)
        )
    ]
    return [
        value
        for value in dict.fromkeys((*others, *alike, *other_names))
        if (asks_to_choose or value in other_names or not mentions(question, value))
        and not any(is_part(value, gold) and not is_twin(value, gold) for gold in golds)
    ]


def _is_alike(value: str, gold: str, kinds: frozenset[str], takes_any: bool) -> bool:
    """Tells whether a value is of a kind with a gold; with ``takes_any`` also if neither has a
    kind, and they look alike."""
    of_value = _kinds(value)
    if (of_value or kinds) and of_value | kinds != {"letter"}:
        return bool(of_value & kinds)
    return takes_any and _looks(value) == _looks(gold)


def values_said(wrong: str, values: Sequence[str], question: str) -> list[str]:
    """Returns the values that a wrong answer is, or that it names and the question does not."""
    return [
        value
        for value in values
        if _is_same(wrong, value) or (names(wrong, value) and not mentions(question, value))
    ]


def _is_same(text: str, value: str) -> bool:
    if len(text) > 4 * len(value) + LONG:  # it says more
        return False
    said, stated = (
        [token.keys[0] for token in read_tokens(each, True) if not token.is_end]
        for each in (text, value)
    )
    return said == stated


@lru_cache(maxsize=16384)
def _kinds(value: str) -> frozenset[str]:
    """Returns the kinds of a value of the lexicon; of another one its form, where it has one: a
    firm is no other answer to what "2.4 million euros" answers."""
    if kinds := value_kinds(value):
        return kinds
    form = value_form(value)
    return frozenset({form}) if form else frozenset()


def _looks(value: str) -> tuple[int, bool, bool]:
    """Returns what a name looks like: how many words, whether of a script without spaces, whether
    with a capital."""
    tokens = read_tokens(value, False)
    is_spaceless = any(token.is_spaceless for token in tokens)
    return (0 if is_spaceless else len(tokens), is_spaceless, value != fold(value))
