"""Reads numbers: digits of any script with the marks that languages set between them, and English
number words.

A point or comma before three digits may be a mark of thousands or a decimal mark. A comma is taken
for thousands, as in "12,000"; a point for decimals, as in "3.125", which also counts as 3,125 since
other languages write that; "12.000" is twelve thousand."""

from functools import lru_cache
from typing import NamedTuple

import regex

from datasets_gen.texts.folding import DASHES, LETTER, ascii_digits

_VULGAR = "¼½¾⅐-⅞"
_VALUE_OF_VULGAR = {
    "¼": ".25",
    "½": ".5",
    "¾": ".75",
    "⅓": ".3333333333",
    "⅔": ".6666666667",
    "⅛": ".125",
}
_VALUE_OF_VULGAR |= {
    "⅕": ".2",
    "⅖": ".4",
    "⅗": ".6",
    "⅘": ".8",
    "⅜": ".375",
    "⅝": ".625",
    "⅞": ".875",
}
DIGITS = r"""(?:
    \p{Nd}{1,3}(?:[\u00a0\u2009\u202f'’٬_]\p{Nd}{3})+(?!\p{Nd})(?:[.,٫．，]\p{Nd}+)?   # 12'000.50, 1 234,56
  | \p{Nd}{1,3}(?:\x20\p{Nd}{3}){2,}(?!\p{Nd})(?:[.,٫]\p{Nd}+)?                      # 1 234 567
  | \p{Nd}{1,3}(?:\x20000)+(?!\p{Nd})                                                # 12 000
  | \p{Nd}{1,3}\x20\p{Nd}{3},\p{Nd}{1,2}(?!\p{Nd})                                   # 1 234,56
  | \p{Nd}*[""" + _VULGAR + r"""]
  | \p{Nd}+(?:[.,٫٬．，·]\p{Nd}+)*
  | [.．]\p{Nd}+
)"""  # fmt: skip
# Letters that may stand right behind a number. No "s", "d", "th" or "k": 1980s, 3d, 20th and 5k are
# other things.
_UNITS = "km|m|cm|mm|nm|mi|ft|yd|kg|g|mg|lbs?|oz|l|ml|min|h|hrs?|am|pm|w|kw|mw|v|kv|hz|khz|mhz|ghz|kb|mb|gb|tb|c|f"
_UNITS += "|mph|kmh|kph|kwh|wh|j|kj|kcal|pa|hpa|bar|eur|usd|gbp|x|ºc|ºf|㎞|㎏|км|кг|м|г"
NUMBER = rf"""
    (?<![\p{{Nd}}][.,])(?:(?P<comparator>(?<![-=<>])(?:[<>]=?|[≤≥＜＞])\s?)|(?<![{LETTER}--\p{{Hangul}}]))
    (?P<sign>(?<![\p{{L}}\p{{M}})\]%°])(?<!\p{{N}}\s?)[{DASHES}±](?=[\p{{Sc}}\p{{Nd}}.])|\b(?i:minus|negative)\s)?
    (?:(?<=[{DASHES}±\s])\p{{Sc}}\s?)?
    (?P<digits>{DIGITS})
    (?P<rest>/\p{{Nd}}+(?![/\p{{Nd}}]))?
    (?!['’]s\b)                                                # the 1960's
    (?:(?!{LETTER})|(?=\p{{Hangul}})|(?=(?i:{_UNITS})(?!{LETTER})))
"""
# The points of "1.2.3" are neither marks of thousands nor of decimals.
VERSION = r"(?<!\p{L})(?i:v|ver|version)\.?\s?(?P<version>\p{Nd}+(?:\.\p{Nd}+)*)(?![\p{L}\p{N}])"

_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
_ONES += "seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORTH = {word: number for number, word in enumerate(_ONES.split())}
_WORTH |= {word: 10 * number for number, word in enumerate(_TENS.split(), 2)}
_BELOW_10 = "|".join(_ONES.split()[1:10])
_BELOW_100 = rf"(?:(?:{_TENS.replace(' ', '|')})(?:[\ -](?:{_BELOW_10}))?|{'|'.join(reversed(_ONES.split()))})"
_BELOW_1000 = rf"(?:(?:{_BELOW_10}|a)[\ -]hundred(?:(?:\ and)?\ {_BELOW_100})?|{_BELOW_100})"
# "One" is a number where it does not stand for somebody: "no one", "the one who".
_NOBODY = "".join(
    rf"(?<!\b{word}\ )"
    for word in ("no", "any", "every", "some", "the", "this", "that", "each", "which")
)
IN_WORDS = rf"""(?i:
    (?<!{LETTER}){_NOBODY}(?P<minus>minus\ )?
    (?P<words>(?:{_BELOW_1000}|a)\ thousand(?:(?:\ and|,)?\ {_BELOW_1000})?|{_BELOW_1000})(?![\p{{L}}\p{{N}}-])
)"""
SCALE = r"(?:\s?(?P<scale>(?i:thousand|million|billion|trillion)(?!\p{L})|[万萬만亿億억]))?"
_WORTH_OF_SCALE = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_WORTH_OF_SCALE |= dict.fromkeys("万萬만", 4) | dict.fromkeys("亿億억", 8)


# Words that a number in words may begin with.
WORDS_OF_NUMBERS = (*_WORTH, "a hundred", "a thousand", "minus")


class Number(NamedTuple):
    """A number as it is written, in ASCII digits without marks of thousands, and what it may be
    worth."""

    written: str
    values: tuple[str, ...]


# By a mark between digits, the one that is worth the same in ASCII.
_PLAIN_MARKS = {"．": ".", "，": ",", "·": ".", "٫": "decimal"}


@lru_cache(maxsize=16384)
def read_digits(digits: str) -> Number:
    """Reads digits with marks between them.

    >>> read_digits("1.234,56").values, read_digits("12'000").values, read_digits("07"), read_digits("3.10")
    (('1234.56',), ('12000',), Number(written='07', values=('7',)), Number(written='3.10', values=('3.1',)))
    >>> read_digits("1.2.3")
    Number(written='1.2.3', values=())
    """
    if digits[-1] in _VALUE_OF_VULGAR:
        written = ascii_digits(digits[:-1] or "0") + _VALUE_OF_VULGAR[digits[-1]]
        return Number(written, (_plain(written),))
    groups = regex.split(r"\P{Nd}", ascii_digits(digits))
    marks = []
    for mark in digits:
        if not mark.isdecimal():
            marks.append(_PLAIN_MARKS.get(mark, mark))
    if not marks:
        return Number(groups[0], (_plain(groups[0]),))
    # A last mark that differs from those before is the decimal one, as in 1.234,56.
    if marks[-1] != marks[0] or marks == ["decimal"]:
        whole = groups[:-1]
    else:
        whole = groups
    if len(whole) > 1 or whole is groups:
        return _of_groups(groups, whole, marks)
    return _with_part(groups[0], groups[1])


def _of_groups(groups: list[str], whole: list[str], marks: list[str]) -> Number:
    """Reads digits of which all marks but perhaps the last are alike."""
    sizes = list(map(len, whole))
    in_threes = 1 <= sizes[0] <= 3 and set(sizes[1:]) <= {3}
    # 12,34,567.
    in_twos = len(sizes) > 2 and sizes[-1] == 3 and set(sizes[1:-1]) <= {2}
    if whole is not groups and (in_threes or in_twos):
        return _with_part("".join(whole), groups[-1])
    is_point = marks[0] == "."
    if whole is not groups or len(groups) > 2:
        if in_threes or (in_twos and not is_point):
            return Number("".join(groups), (_plain("".join(groups)),))
        return Number(".".join(groups), ())
    first, last = groups
    # 0.125 has no thousands, and 1.25 neither.
    if not in_threes or first.startswith("0"):
        return _with_part(first, last)
    if not is_point or last == "000":
        return Number(first + last, (_plain(first + last),))
    return Number(f"{first}.{last}", (_plain(f"{first}.{last}"), _plain(first + last)))


def _with_part(whole: str, part: str) -> Number:
    written = f"{whole or '0'}.{part}"
    return Number(written, (_plain(written),))


def _plain(number: str) -> str:
    """Writes a number without zeros that are worth nothing."""
    whole, point, part = number.partition(".")
    part = part.rstrip("0")
    return (whole.lstrip("0") or "0") + (point + part if part else "")


def read_number(match: "regex.Match[str]") -> Number:
    """Reads what :data:`NUMBER` and :data:`SCALE` matched: its sign, its digits, and what it is so
    many times of."""
    number = read_digits(match["digits"])
    if match["rest"]:
        number = Number(f"{number.written}/{ascii_digits(match['rest'][1:])}", ())
    sign = match["sign"] or ""
    before = "±" if sign == "±" else "-" * bool(sign)
    if comparator := (match["comparator"] or "").strip():
        before = {"<=": "≤", ">=": "≥", "＜": "<", "＞": ">"}.get(comparator, comparator) + before
    values = []
    for value in number.values or (number.written,):
        if scale := match["scale"]:
            value = _scaled(value, scale)
        is_minus_zero = value == "0" and before == "-"
        values.append(value if is_minus_zero else before + value)
    return Number(before + number.written, tuple(values))


def read_words(match: "regex.Match[str]") -> Number:
    """Reads what :data:`IN_WORDS` and :data:`SCALE` matched."""
    value = str(_value_in_words(match["words"].lower()))
    value = _scaled(value, match["times"]) if match["times"] else value
    value = "-" * bool(match["minus"]) + value
    return Number(value, (value,))


def _scaled(value: str, scale: str) -> str:
    whole, _, part = value.partition(".")
    zeros = _WORTH_OF_SCALE[scale.lower()]
    if not (whole + part).isdecimal():
        return value
    part = part.ljust(zeros, "0")
    return _plain(f"{whole}{part[:zeros]}.{part[zeros:]}")


def _value_in_words(words: str) -> int:
    """Returns the value of a number in words below a million."""
    total = below_1000 = 0
    for word in regex.split(r"[ ,-]+", words):
        if word == "thousand":
            total, below_1000 = max(1, below_1000) * 1000, 0
        elif word == "hundred":
            below_1000 = max(1, below_1000) * 100
        else:
            below_1000 += _WORTH.get(word, 0)
    return total + below_1000
