"""Tells which values a text names: as whole words, numbers as numbers and dates as dates, and not behind a "not".

A text is read in one of two forms, both of words with a bar where a clause ends. Names are looked up in the one that
leaves numbers as they are written: agent 07 is not agent 7.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from datasets_gen import kinds_of
from leaderboards.metrics.judges.abstention import without_contractions

# English only. A day stands before its month where both are numbers, but for a month that there is none of.

_MONTHS = ["january", "february", "march", "april", "may", "june"]
_MONTHS += ["july", "august", "september", "october", "november", "december"]
_MONTH = r"(?P<{}>[a-z]{{3,9}})\.?"
_DAY = r"(?P<{}>\d{{1,2}})(?:st|nd|rd|th)?"
_YEAR = r"(?:, ?| of | in | )(?P<{}>\d{{4}})"
_DATE = re.compile(
    r"(?<![\w.-])(?:"
    + "|".join(
        (
            _DAY.format("day1") + "(?: of)? " + _MONTH.format("month1") + _YEAR.format("year1"),
            _MONTH.format("month2") + " (?:the )?" + _DAY.format("day2") + _YEAR.format("year2"),
            r"(?P<year3>\d{4})-(?P<month3>\d{1,2})-(?P<day3>\d{1,2})",
            r"(?P<day4>\d{1,2})(?P<mark>[./-])(?P<month4>\d{1,2})(?P=mark)(?P<year4>\d{4})",
        )
    )
    + r")(?![\w-])"
)
_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
_UNITS += "seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORTH = {word: number for number, word in enumerate(_UNITS.split())}
_WORTH |= {word: 10 * number for number, word in enumerate(_TENS.split(), 2)}
_BELOW_10 = "|".join(_UNITS.split()[1:10])
_BELOW_100 = rf"(?:(?:{_TENS.replace(' ', '|')})(?:[ -](?:{_BELOW_10}))?|{'|'.join(reversed(_UNITS.split()))})"
_BELOW_1000 = rf"(?:(?:{_BELOW_10}|a)[ -]hundred(?:(?: and)? {_BELOW_100})?|{_BELOW_100})"
# "One" is a number where it does not stand for somebody: "no one", "the one who".
_NOBODY = "".join(rf"(?<!\b{word} )" for word in ("no", "any", "every", "some", "the", "this", "that", "each", "which"))
_IN_WORDS = re.compile(
    rf"\b{_NOBODY}(?:(?:{_BELOW_1000}|a) thousand(?:(?: and|,)? {_BELOW_1000})?|{_BELOW_1000})\b(?!-)"
)
# A hyphen before a digit is a sign at the beginning of a word, and a part of a name elsewhere ("B-52").
_IN_DIGITS = re.compile(
    r"(?<![\w.])(?<!\w-)(?P<sign>-|minus )?(?P<whole>\d{1,3}(?:,\d{3})+|\d+)(?:(?:\.| point )(?P<part>\d+))?(?![\w])"
)


def with_dates(text: str, with_years: bool = False) -> str:
    """Writes each full date of a text in small letters as one word; ``with_years``: and its year behind it, since who
    tells a date tells its year.

    >>> with_dates("march 5, 1964 is 1964-03-05, the 5th of march 1964 and 5.3.1964")
    '1964y3m5d is 1964y3m5d, the 1964y3m5d and 1964y3m5d'
    """

    def word(date: re.Match[str]) -> str:
        day, told, year = (
            next(filter(None, (date[f"{part}{way}"] for way in range(1, 5)))) for part in ("day", "month", "year")
        )
        by_name = (number for number, month in enumerate(_MONTHS, 1) if month.startswith(told))
        numbers = [int(day), int(told) if told.isdecimal() else next(by_name, 0)]
        if numbers[1] > len(_MONTHS):
            numbers.reverse()
        if not 1 <= numbers[1] <= len(_MONTHS):
            return date[0]
        return f"{year}y{numbers[1]}m{numbers[0]}d" + f" {year}" * with_years

    return _DATE.sub(word, text)


def with_numbers(text: str) -> str:
    """Writes each number of a text in small letters in digits, without marks, leading zeros and signs that punctuation
    is taken for.

    >>> with_numbers("1,234 and 07, minus 3.50, twenty-six, no one, b-52")
    '1234 and 7, minus3point5, 26, no one, b-52'
    """

    def plain(number: re.Match[str]) -> str:
        part = (number["part"] or "").rstrip("0")
        whole = number["whole"].replace(",", "").lstrip("0") or "0"
        return "minus" * bool(number["sign"]) + whole + f"point{part}" * bool(part)

    return _IN_DIGITS.sub(plain, _IN_WORDS.sub(lambda words: str(_value(words[0])), text))


def is_quantity(text: str) -> bool:
    """Tells whether a text in small letters is nothing but a number or a date."""
    text = text.strip(" #$€£.")
    return any(pattern.fullmatch(text) for pattern in (_DATE, _IN_DIGITS, _IN_WORDS))


def _value(words: str) -> int:
    """Returns the value of a number in words below a million."""
    total = below_1000 = 0
    for word in re.split(r"[ ,-]+", words):
        if word == "thousand":
            total, below_1000 = max(1, below_1000) * 1000, 0
        elif word == "hundred":
            below_1000 = max(1, below_1000) * 100
        else:
            below_1000 += _WORTH.get(word, 0)
    return total + below_1000


_POSSESSIVE = re.compile(r"(?<=[^\W\d_])'s\b")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_CLAUSE_ENDS = re.compile(r"[.:?!](?=\s|$)|[,;()\[\]{}/|…–—&\n\"“”]|\b(?:but|and)\b")
# An article before a single letter, or at the end, may be a letter itself: the initials A L, answer A.
_ARTICLE = re.compile(r"\b(?:a|an|the) +(?=\w\w)")
_LIST = re.compile(r", |;|&|\band\b", re.IGNORECASE)
# What denies the rest of its clause, and what denies the value before it.
_ONLY = r"(?! (?:only|just|merely)\b)"
_DENIES = re.compile(rf" (?:not|never|nor|neither|no longer|instead of|unlike|(?<! other )than){_ONLY} ")
_DENIED = re.compile(rf" (?:is|was|are|were|do|does|did|has|had|can|could|will|would) not{_ONLY} ")


@dataclass(frozen=True)
class _Item:
    """Describes what has to stand in a text: words, one after the other, or a number or date, which is one word."""

    words: tuple[str, ...]
    is_quantity: bool

    def places(self, text: str) -> list[tuple[int, int]]:
        """Finds the item in a text; a clause may end within it, as in "Paris, France"."""
        form = _form(text, self.is_quantity)
        if not self.words or any(word not in form for word in self.words):
            return []
        pattern = r"(?:(?: \|)* |-)".join(map(re.escape, self.words))
        return [(place.start(), place.end()) for place in re.finditer(rf"(?<= ){pattern}(?= )", form)]

    def is_named(self, text: str) -> bool:
        """Tells whether the item stands in a text and is not denied there."""
        form = _form(text, self.is_quantity)
        for start, end in self.places(text):
            before, after = form[:start].rpartition("|")[2], form[end:].partition("|")[0]
            if not _DENIES.search(f" {before}") and not _DENIED.match(after):
                return True
        return False


def names(text: str, value: str) -> bool:
    """Tells whether a text names a value, of a list each item, in any order.

    >>> names("It is not Breveth, but Ambrova.", "Breveth"), names("Locker 0694", "694")
    (False, True)
    >>> names("a flute, a harp", "harp and flute"), names("a flute", "harp and flute")
    (True, False)
    """
    items = _items(value)
    return bool(items) and all(item.is_named(text) for item in items)


def mentions(text: str, value: str) -> bool:
    """Tells whether a value stands in a text, be it named or denied."""
    items = _items(value)
    return bool(items) and all(item.places(text) for item in items)


def rivals(golds: Sequence[str], stated_values: Sequence[str], others: Sequence[str], question: str) -> list[str]:
    """Returns what would be another answer to the question: ``others``, and the stated values of the golds' kind.

    A value that the question names is none: "The mentor of Klaus is Ada" repeats it. But where it asks to choose among
    what it names, these are. Nor is a part of a gold, or the same in another form.
    """
    kinds = [_kinds(gold) for gold in golds]
    words = [_words(gold) for gold in golds]
    asks_to_choose = any(mentions(question, gold) for gold in golds)
    alike = [
        value for value in stated_values if any(_kinds(value) & kind or not (_kinds(value) or kind) for kind in kinds)
    ]
    return [
        value
        for value in dict.fromkeys((*others, *alike))
        if (asks_to_choose or not mentions(question, value)) and not any(_words(value) <= of_gold for of_gold in words)
    ]


def values_said(wrong: str, values: Sequence[str], question: str) -> list[str]:
    """Returns the values that a wrong answer is, or that it names and the question does not."""
    return [
        value
        for value in values
        if _form(wrong, True) == _form(value, True) or (names(wrong, value) and not mentions(question, value))
    ]


@lru_cache(maxsize=16384)
def _items(value: str) -> tuple[_Item, ...]:
    parts = [value] if is_quantity(_small(value)) else _LIST.split(value)
    items = ((_form(part, is_quantity(_small(part))).replace("|", " "), is_quantity(_small(part))) for part in parts)
    return tuple(_Item(tuple(re.split(r"[\s-]+", form.strip())), quantity) for form, quantity in items if form.strip())


@lru_cache(maxsize=16384)
def _kinds(value: str) -> frozenset[str]:
    """Returns the kinds of a value of the lexicon; of another one, whether it is a number or date, or at least has a
    digit: a firm is no other answer to what "2.4 million euros" answers."""
    if known := kinds_of(value):
        return known
    if is_quantity(_small(value)):
        return frozenset({"number", "date"})
    return frozenset({"text with digits"}) if re.search(r"\d", value) else frozenset()


def _words(value: str) -> frozenset[str]:
    return frozenset(word for item in _items(value) for word in item.words)


def _small(text: str) -> str:
    return without_contractions(text.lower())


@lru_cache(maxsize=16384)
def _form(text: str, with_quantities: bool) -> str:
    """Returns the words of a text as they are compared, with a blank at either end."""
    text = with_dates(_POSSESSIVE.sub("", _small(text)), with_quantities)
    text = with_numbers(text) if with_quantities else _POINT.sub("point", _THOUSANDS.sub("", text))
    text = re.sub(r"[^\w\s|-]|(?<!\w)-+|-+(?!\w)", "", _CLAUSE_ENDS.sub(" | ", text))
    return f" {' '.join(_ARTICLE.sub('', ' '.join(text.split())).split())} "
