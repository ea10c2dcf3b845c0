"""Reads the number in which a worked answer ends: "18 - 5 = 13", "3/4", "1e3" and the forms of
LaTeX too."""

from decimal import Decimal
from fractions import Fraction

import regex

from datasets_gen.texts.folding import DASHES, FLAGS
from datasets_gen.texts.numbers import DIGITS, read_digits

_FRACTION_OF_LATEX = regex.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", FLAGS)
_COMMANDS_OF_LATEX = regex.compile(r"\\(?:boxed|text|mathbf|left|right|[(\[\])!,;])|[{}\\]", FLAGS)
# What stands behind these words or marks explains the number, and may be an equation of its own.
_REASON = regex.compile(
    r"[(;]\s*\p{L}|\b(?:because|since|as|where|when|if)\b", FLAGS | regex.IGNORECASE
)
_NUMBER = regex.compile(
    rf"""
    (?P<sign>[{DASHES}+])?[\s*]*\p{{Sc}}?[\s*]*(?P<inner>[{DASHES}+])?
    (?:(?P<whole>\p{{Nd}}+)\s+(?P<over>\p{{Nd}}+)\s?/\s?(?P<under>\p{{Nd}}+)   # 3 1/2
      | (?:(?P<before>\p{{Nd}}+)\s(?=\p{{No}}))?(?P<digits>{DIGITS})                          # also 3 ½
        (?:[eE](?P<power>[-+−]?\p{{Nd}}{{1,2}})(?![\p{{L}}\p{{N}}])|\s?/\s?(?P<rest>\p{{Nd}}+))?)
    (?![/\p{{Nd}}])
    """,
    FLAGS | regex.VERBOSE,
)
_MOST_PLACES = 10  # behind the point, of a fraction that has no end


def final_number(text: str) -> str:
    """Returns the number that a text states as its result, in plain digits; nothing if it begins
    with no number. Of an equation it is the side that is one number, the last of those.

    >>> [final_number(text) for text in ("18 - 5 = 13", "13 = 18 - 5", "3/4", "3 1/2", "1e3", ".5", "7 boxes of 3")]
    ['13', '13', '0.75', '3.5', '1000', '0.5', '7']
    """
    text = _FRACTION_OF_LATEX.sub(r"\1/\2", text.strip().partition("\n")[0])
    text = _COMMANDS_OF_LATEX.sub("", text)
    reason = _REASON.search(text)
    sides = (text[: reason.start()] if reason else text).split("=")
    numbers = [list(_NUMBER.finditer(side)) for side in sides]
    for of_side in reversed(numbers):
        if len(of_side) == 1:
            if len(sides) > 1 or _begins_with(sides[0], of_side[0]):
                return _read_value(of_side[0])
            return ""
    stated = []
    for side, of_side in zip(sides, numbers, strict=True):
        if of_side:
            stated.append((side, of_side[0]))
    if not stated or (len(sides) == 1 and not _begins_with(*stated[0])):
        return ""
    return _read_value(stated[-1][1])


def _begins_with(side: str, number: "regex.Match[str]") -> bool:
    return not regex.search(r"\p{L}", side[: number.start()], FLAGS)


def _read_value(number: "regex.Match[str]") -> str:
    if number["whole"]:
        value = _read(number["whole"]) + _ratio(_read(number["over"]), number["under"])
    else:
        value = _read(number["digits"])
        if number["before"]:
            value += _read(number["before"])
        if number["power"]:
            value *= Fraction(10) ** int(number["power"].replace("−", "-"))
        if number["rest"]:
            value = _ratio(value, number["rest"])
    for sign in (number["sign"], number["inner"]):
        if sign and sign != "+":
            return _plain(-value)
    return _plain(value)


def _read(digits: str) -> Fraction:
    written, *_ = read_digits(digits).values or ("0",)
    return Fraction(written)


def _ratio(value: Fraction, under: str) -> Fraction:
    divisor = _read(under)
    # Over 0 there is no number: the upper one is as near as it gets.
    return value / divisor if divisor else value


def _plain(value: Fraction) -> str:
    """Writes a number without an exponent and without zeros that are worth nothing."""
    rounded = round(value, _MOST_PLACES)
    text = f"{Decimal(rounded.numerator) / Decimal(rounded.denominator):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
