"""Finds a value in a text: the one matcher for the evidence of an answer in its context, and for
answers.

A value is found as whole words where its script sets spaces, and else as a part of the text;
numbers as numbers, dates as dates, and a single letter where it stands for itself. A clause may end
within it, as in "Paris, France"."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import regex

from datasets_gen.texts.folding import FLAGS, composed, fold
from datasets_gen.texts.numbers import WORDS_OF_NUMBERS
from datasets_gen.texts.tokens import Token, read_tokens

Place = tuple[int, int]  # of the first character, and of the first behind

_CURRENCY = regex.compile(r"[\p{Sc}%]", FLAGS)
_LIST = regex.compile(r", |;|&|\band\b|[、，；،؛]", FLAGS | regex.IGNORECASE)
_SINGLE_LETTER = regex.compile(r"[\s(\[\"']*(?:(?:option|answer|choice|letter)\b[\s:]*)?\(?([\p{Lu}\p{Ll}])[\s).:\]\"']*", FLAGS | regex.IGNORECASE)  # fmt: skip  # noqa: E501
_DIGIT = regex.compile(r"\p{Nd}", FLAGS)
_DATE_KEY = regex.compile(r"\dm\d+d$", FLAGS)
_TIME_KEY = regex.compile(r"\d+h", FLAGS)
_YES_AND_NO = (
    "yes no true false ja nein oui non sí si sì não sim да нет tak nie evet hayır ναι όχι "
)
_YES_AND_NO += "是 否 はい いいえ 예 네 "
_YES_AND_NO += "아니요 아니오 نعم لا हाँ नहीं"
_YES_OR_NO = frozenset(map(fold, _YES_AND_NO.split()))


class TextTokens:
    """Holds the tokens of a text in one of the two views of
    :func:`~datasets_gen.texts.tokens.read_tokens`."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens

    @cached_property
    def by_key(self) -> Mapping[str, Sequence[int]]:
        places: dict[str, list[int]] = {}
        for number, token in enumerate(self.tokens):
            for key in token.keys:
                places.setdefault(key, []).append(number)
        return places


@lru_cache(maxsize=8192)
def read(text: str, by_worth: bool) -> TextTokens:
    return TextTokens(read_tokens(text, by_worth))


# Characters of a text that is read sentence by sentence, where it holds what is looked for.
LONG = 100
_SENTENCE_ENDS = regex.compile(r"(?<=[.!?])\s+(?=\S)|(?<=[。！？])|\n+", FLAGS)
_MAY_BE_NUMBER = regex.compile(rf"\p{{Nd}}|\p{{No}}|\b(?:{'|'.join(WORDS_OF_NUMBERS)})", FLAGS)
_SIGNS = "+-#*.="
_SKIPPED = str.maketrans("", "", "'’ʼ.")  # may stand within a word, and are no letters of its key


@lru_cache(maxsize=1024)
def _sentences(text: str) -> tuple[tuple[str, str], ...]:
    """Returns the sentences of a text, each with the ones beside it, and in the form in which keys
    are looked for."""
    parts = list(filter(None, _SENTENCE_ENDS.split(composed(text))))
    sentences = []
    for number, part in enumerate(parts):
        first = max(0, number - 1)
        # With its neighbours, as what ends a sentence here may stand within a value: "St. Kilda".
        with_neighbours = "\n".join(parts[first : number + 2])
        sentences.append((with_neighbours, fold(part).translate(_SKIPPED)))
    return tuple(sentences)


def readings(text: str, item: "Item") -> Iterable[TextTokens]:
    """Yields the tokens of a text, or of its sentences that may hold an item where it is long."""
    if len(text) <= LONG:
        yield read(text, item.by_worth)
        return
    # By the longest key, which is likely to be the rarest.
    needle = max(map(needle_for, item.keys), key=len, default="")
    for sentences, folded in _sentences(text):
        if _MAY_BE_NUMBER.search(folded) if item.by_worth else needle in folded:
            yield read(sentences, item.by_worth)


def needle_for(key: str) -> str:
    """Returns what a text holds that has a key: a sign may be written as a word, and Arabic writes
    "for the" with one letter less."""
    return key.lstrip("=#").strip(_SIGNS).removeprefix("ال") or key


@dataclass(frozen=True)
class Item:
    """Describes what has to stand in a text, one after the other."""

    keys: tuple[str, ...]
    by_worth: bool  # whether it is a number or date, and compared by its worth
    # Whether each is a number that a dash ties to the one before, as in "10-20".
    joints: tuple[bool, ...]
    currency: str = ""  # of a number, or a percent sign: it may be missing, and may be no other
    is_letter: bool = False
    is_yes_or_no: bool = False

    def places(self, text: TextTokens) -> list[tuple[int, int]]:
        """Finds the item; returns the numbers of its first and its last token."""
        if not self.keys or not all(key in text.by_key for key in self.keys):
            return []
        places = []
        for first in text.by_key[self.keys[0]]:
            last = self._end_from(text.tokens, first)
            if last is not None:
                places.append((first, last))
        return places

    def _end_from(self, tokens: Sequence[Token], first: int) -> int | None:
        """Returns the number of the last token of the item if it begins with a token."""
        # Glued to the token before: in 5-10 there is no 10, as below there is no 5.
        if tokens[first].is_glued or (self.is_letter and not tokens[first].is_option):
            return None
        if self.is_yes_or_no and not _is_clause(tokens, first):
            return None
        place = first
        for key, is_joint in zip(self.keys[1:], self.joints[1:], strict=True):
            place += 1
            while place < len(tokens) and self._is_passed_over(tokens[place]):
                place += 1
            if (
                place == len(tokens)
                or key not in tokens[place].keys
                or (is_joint and not tokens[place].is_glued)
            ):
                return None
        if place + 1 < len(tokens) and tokens[place + 1].is_glued:
            return None
        return place if self._has_currency(tokens, first) else None

    def _is_passed_over(self, token: Token) -> bool:
        return token.is_end or (bool(self.currency) and token.keys[0] == self.currency)

    def _has_currency(self, tokens: Sequence[Token], number: int) -> bool:
        if not self.currency:
            return True
        before = tokens[max(0, number - 1) : number]
        behind = tokens[number + 1 : number + 2]
        # On either side, as some write $5 and others 5 $.
        signs = set()
        for token in (*before, *behind):
            if _CURRENCY.fullmatch(token.keys[0]):
                signs.add(token.keys[0])
        return not signs or self.currency in signs


def _is_clause(tokens: Sequence[Token], place: int) -> bool:
    """Tells whether a token begins its text or is all of a clause: there, "no" answers."""
    begins = place == 0 or tokens[place - 1].is_end or tokens[place - 1].keys[0] in ("is", "answer")
    ends = place + 1 == len(tokens) or tokens[place + 1].is_end
    return begins and (ends or place == 0)


@lru_cache(maxsize=16384)
def is_quantity(value: str) -> bool:
    """Tells whether a value is nothing but a number, date or time, with or without a currency.

    >>> is_quantity("$1,234"), is_quantity("5 March 1964"), is_quantity("agent 7"), is_quantity("5 km")
    (True, True, False, False)
    """
    words = _words(value, True)
    return bool(words) and words[0].is_number and len(words) == 1


@lru_cache(maxsize=16384)
def is_measure(value: str) -> bool:
    """Tells whether a value begins with a number, as "5 km" does; "Python 3.1" does not, and "Seven
    Oaks" is a name."""
    words = _words(value, True)
    if not words or not words[0].is_number or any(word.is_number for word in words[1:]):
        return False
    is_name = (
        value.strip()[0].isalpha() and len(words) > 1 and value.strip()[words[1].start].isupper()
    )
    return not is_name


def _words(value: str, by_worth: bool) -> list[Token]:
    """Returns the tokens of a value without ends of clauses, and of a number without currencies and
    the years beside full dates."""
    words: list[Token] = []
    for token in read_tokens(value.strip(), by_worth):
        # A full date is followed by a token for its year, which begins where the date does.
        is_year = words and token.start == words[-1].start and token.is_number
        is_beside = by_worth and (is_year or _CURRENCY.fullmatch(token.keys[0]))
        if not token.is_end and not is_beside:
            words.append(token)
    return words


def single_letter(value: str) -> str:
    """Returns the letter that a value is, such as that of an option, in small letters; empty if it
    is another value.

    >>> single_letter("B."), single_letter("(b)"), single_letter("Answer: B"), single_letter("Bo")
    ('b', 'b', 'b', '')
    """
    letter = _SINGLE_LETTER.fullmatch(composed(value))
    if letter and len(fold(letter[1])) == 1:
        return fold(letter[1])
    return ""


def is_yes_or_no(value: str) -> bool:
    return fold(value.strip(" .!。")) in _YES_OR_NO


@lru_cache(maxsize=16384)
def value_form(value: str) -> str:
    """Returns the form of a value that shows it to be no mere name; empty for a name.

    >>> value_form("5 March 1964"), value_form("3"), value_form("No."), value_form("5 km"), value_form("Breveth")
    ('date', 'number', 'yes or no', 'text with digits', '')
    """
    if is_yes_or_no(value):
        return "yes or no"
    if single_letter(value):
        return "letter"
    if is_quantity(value):
        key = read_item(value).keys[0]
        if _DATE_KEY.search(key):
            return "date"
        return "time" if _TIME_KEY.match(key) else "number"
    if is_measure(value) or _DIGIT.search(value):
        return "text with digits"
    return ""


@lru_cache(maxsize=16384)
def read_item(value: str, as_written: bool = False) -> Item:
    """Reads a value as one item. ``as_written``: a number is compared as it is written: 3.10 is not
    3.1."""
    if letter := single_letter(value):
        return Item((letter,), False, (False,), is_letter=True)
    by_worth = is_measure(value)
    tokens = read_tokens(value.strip(), by_worth)
    words = _words(value, by_worth)
    if not words:  # a currency alone
        words = [token for token in tokens if not token.is_end]
    currency = ""
    if by_worth:
        currency = next((one.keys[0] for one in tokens if _CURRENCY.fullmatch(one.keys[0])), "")
    keys, joints = [], []
    for word in words:
        is_written_number = as_written and word.is_number
        keys.append(_written_key(word) if is_written_number else word.keys[0])
        joints.append(word.is_number and word.is_glued)
    is_answer = is_yes_or_no(value)
    return Item(tuple(keys), by_worth, tuple(joints), currency, is_yes_or_no=is_answer)


def _written_key(word: Token) -> str:
    return next((key for key in word.keys if key.startswith("=")), word.keys[0])


@lru_cache(maxsize=16384)
def read_items(value: str, as_written: bool = False) -> tuple[Item, ...]:
    """Reads a value as a list, each item of which has to stand in a text, in any order."""
    parts = [value] if is_measure(value) else _LIST.split(value)
    items = []
    for part in parts:
        item = read_item(part, as_written)
        if item.keys:
            items.append(item)
    return tuple(items)


@lru_cache(maxsize=16384)
def is_twin(value: str, other: str) -> bool:
    """Tells whether two values are worth the same and are written differently, as the versions 3.1
    and 3.10 are. Where both are stated, each is compared as it is written.

    >>> is_twin("3.1", "3.10"), is_twin("3", "3.0"), is_twin("1,000", "1000")
    (True, False, False)
    """
    if not (is_quantity(value) and is_quantity(other)) or read_item(value) != read_item(other):
        return False
    written, other_written = (
        read_item(value, as_written=True).keys[0],
        read_item(other, as_written=True).keys[0],
    )
    return (
        written != other_written
        # 3 and 3.0 are no versions: behind a point there must be more than zeros.
        and written.rstrip("0")[-1:] != "." != other_written.rstrip("0")[-1:]
    )


@lru_cache(maxsize=16384)
def words_of_value(value: str) -> frozenset[str]:
    """Returns all that has to stand in a text that names a value; adjacent characters of a script
    without spaces are one word."""
    words = set()
    for item in read_items(value):
        text = read(value, item.by_worth)
        is_spaceless = any(token.is_spaceless for token in text.tokens)
        words |= {"".join(item.keys)} if is_spaceless else set(item.keys)
    return frozenset(words)


@lru_cache(maxsize=16384)
def is_part(value: str, whole: str) -> bool:
    """Tells whether a value says nothing beside another one: it is the same in another form, or a
    part of it."""
    words, of_whole = words_of_value(value), words_of_value(whole)
    return words <= of_whole or (bool(words) and all(_is_inside(word, of_whole) for word in words))


def _is_inside(word: str, words: Iterable[str]) -> bool:
    """Tells whether a word of a script without spaces stands in one of several."""
    return any(token.is_spaceless for token in read_tokens(word, False)) and any(
        word in whole for whole in words
    )
