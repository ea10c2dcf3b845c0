"""Reads numbers and dates, so that two ways to write one are the same word.

English only. A day stands before its month where both are numbers, but for a month that there is none of.
"""

import re

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
        numbers = [int(day), int(told) if told.isdecimal() else _month(told)]
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


def _month(name: str) -> int:
    """Returns the number of a month by its name or three letters or more of its beginning; 0 if there is none."""
    return next((number for number, month in enumerate(_MONTHS, 1) if month.startswith(name)), 0)


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
