"""Cuts a text into the tokens by which texts are compared: words, numbers, dates, signs, and the
ends of clauses.

A token has one or more keys, and two tokens are alike where they share one; the first key is the
most precise, and what is looked for goes by it alone. The text is in Unicode's composed form."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

import regex

from datasets_gen.texts import dates, numbers
from datasets_gen.texts.folding import (
    DASHES,
    FLAGS,
    LETTER,
    SPACELESS,
    ascii_digits,
    composed,
    fold,
)
from datasets_gen.texts.inflection import korean_stems, semitic_stems, without_apostrophes

Match: TypeAlias = regex.Match[str]
END = "|"  # the key of what ends a clause
NEAR = 32  # characters beside a single letter by which it is told from an article

_CURRENCIES = {
    **dict.fromkeys(("dollar", "dollars", "usd", "us$"), "$"),
    **dict.fromkeys(("euro", "euros", "eur"), "€"),
    **dict.fromkeys(("gbp",), "£"),
    **dict.fromkeys(("yen", "jpy", "円"), "¥"),
    **dict.fromkeys(("rupee", "rupees", "inr"), "₹"),
    **dict.fromkeys(("krw", "won", "원"), "₩"),
    **dict.fromkeys(("rub", "ruble", "rubles", "руб", "рублей"), "₽"),
    **dict.fromkeys(
        ("percent", "pct", "prozent", "процент", "процентов", "percento", "porcentaje"), "%"
    ),
}
_CLAUSE_END = r"""[.:?!](?=\s|$)|[,;()\[\]{}/|…–—―\n"“”„«»&。！？；：，、､・「」『』（）【】《》〈〉؟،؛।॥።؞]"""
_PERCENT = "%％٪﹪"
_IGNORED = r"[°=+<>|~¬±×÷·`^¨´¯¸\-−]"
_PLUS = "[+＋⁺]"
_BEHIND = r"(?=$|\s|[\p{P}])"  # where a sign ends a word
_ALTERNATIVES = rf"""
  (?P<spaceless>[{SPACELESS}][\p{{M}}ﾞﾟ]*)
| (?P<rhesus>(?<!{LETTER})(?:AB|B|O|(?<=\b(?:type|group|typ|is)\ )A|(?<!.)A(?=\ \w+\W?$))[\ -](?:Rh[\ -])?(?:D[\ -])?(?P<factor>positive|negative)(?!{LETTER}))
| (?P<sharp>(?<!{LETTER})(?P<tone>[A-G])(?P<way>[\ -][Ss]harp|\ [Pp]lus\ [Pp]lus)(?!{LETTER}))
| (?P<negative>(?<!{LETTER})(?:\p{{Lu}}\p{{L}}?|[abo]|ab)[{DASHES}]{_BEHIND})
| (?P<grade>(?<!{LETTER})\p{{Lu}}\*(?![\p{{L}}\p{{N}}*]))
| (?P<initials>(?<!{LETTER})(?:\p{{L}}\.){{2,}}(?:\p{{L}}(?!{LETTER}))?)
| (?P<hangul>\p{{Hangul}}[\p{{Hangul}}\p{{M}}]*)
| (?P<word>(?P<point>(?<!\S)\.(?=\p{{Lu}}{{2}}))?
    [{LETTER}--\p{{Hangul}}]+(?:['’ʼ]{LETTER}+)*
    (?:{_PLUS}{{1,3}}(?![\p{{L}}\p{{N}}])|[#＃♯](?![\p{{L}}\p{{N}}]))?)
| (?P<joint>(?<=[\p{{L}}\p{{M}}\p{{N}}][+#]?)(?:[-‐‑−@]|\.(?=[\p{{Ll}}\p{{N}}]))(?=[\p{{L}}\p{{N}}])|(?<=\p{{N}})[–‒:](?=\p{{N}}))
| (?P<end>{_CLAUSE_END})
| (?P<currency>\p{{Sc}}|[{_PERCENT}])
| (?P<symbol>[[\p{{So}}\p{{Sm}}\p{{Sk}}\p{{Emoji_Presentation}}]--{_IGNORED}])
"""  # noqa: E501
_NUMBERS = rf"(?P<date>{dates.DATE})|(?P<time>{dates.TIME})|(?P<of_version>{numbers.VERSION})"
_DIGITS = rf"(?P<number>{numbers.NUMBER}(?P<plus>{_PLUS}(?![\p{{L}}\p{{N}}]))?{{scale}})"
# What stands first is read first: dates before numbers, and numbers before words. Here the scale
# never matches: the worth of "2 million" is not asked for, and its words stay words.
_WRITTEN = regex.compile(
    f"{_NUMBERS}|{_DIGITS.replace('{scale}', '(?P<scale>(?!))?')}|{_ALTERNATIVES}",
    FLAGS | regex.VERBOSE,
)
_IN_WORDS = f"(?P<number_words>{numbers.IN_WORDS}{numbers.SCALE.replace('<scale>', '<times>')})"
_WORTH = regex.compile(
    f"{_NUMBERS}|{_DIGITS.replace('{scale}', numbers.SCALE)}|{_IN_WORDS}|{_ALTERNATIVES}",
    FLAGS | regex.VERBOSE,
)
_LETTER = regex.compile(r"[\p{Lu}\p{Ll}]", FLAGS)
# How the letter of an option is marked, what announces it, and what follows the capital A of no
# article.
_MARKED = regex.compile(r"""\s*(?:[).:\]!?。．、！？：」』）"”’»।؟]|$)(?!\w)""", FLAGS)
_ANNOUNCED = regex.compile(
    r"(?i)(?:\b(?:option|answer|choice|letter|grade|group|type|section|answer\sis)\s*[:(\"']?\s*|\(\s*)$",
    FLAGS,
)
_GOES_ON = regex.compile(r"\s*(?:[,;/|\-–—\n]|(?:is|was|and|or|because|since)\b)", FLAGS)
_SENTENCE_BEFORE = regex.compile(r"[.!?:;\n\"“]\s*$", FLAGS)


class Token(NamedTuple):
    """A piece of a text at the characters ``[start, end)``."""

    keys: tuple[str, ...]
    start: int
    end: int
    is_glued: bool = (
        False  # to the token before it: the two are one word, as in "Jean-Luc" or "10-20"
    )
    is_number: bool = False
    is_spaceless: bool = False  # of a script that sets no space between words
    is_option: bool = (
        False  # a single letter that stands for itself, as the letter of an option does
    )

    @property
    def is_end(self) -> bool:
        return self.keys[0] == END


@lru_cache(maxsize=8192)
def read_tokens(text: str, by_worth: bool) -> tuple[Token, ...]:
    """Returns the tokens of a text. ``by_worth``: numbers are compared by what they are worth, in
    digits or in words, and a full date tells its year too; else as they are written, as in names:
    agent 07 is not agent 7."""
    return tuple(scan(text, by_worth))


def scan(text: str, by_worth: bool) -> list[Token]:
    """Does the work of :func:`read_tokens`, for a text that is looked at once."""
    text = composed(text)
    tokens: list[Token] = []
    is_glued = False
    for match in (_WORTH if by_worth else _WRITTEN).finditer(text):
        # The group of the alternative closes behind all groups within it, and so is the last one.
        kind = match.lastgroup
        if kind == "joint":
            # "A 5-year plan": the number stands by itself; that of a range or a name ("10-20",
            # "B-52") does not.
            is_glued = not (tokens and tokens[-1].is_number and text[match.end()].isalpha())
            continue
        new = _READERS[kind or ""](match, by_worth)
        if is_glued and new:
            new[0] = new[0]._replace(is_glued=True)
        tokens += new
        is_glued = False
    return _without_articles(tokens)


def _read_date(match: Match, by_worth: bool) -> list[Token]:
    keys, year = dates.read_date(match)
    if not keys:
        # Part by part: "2 May" at the beginning of "2 may be enough" is no date.
        return _scan_part(match[0], match.start(), by_worth)
    tokens = [Token(keys, match.start(), match.end(), is_number=True)]
    if year and by_worth:
        # Who tells a date tells its year.
        tokens.append(Token((f"#{year}",), match.start(), match.end(), is_number=True))
    return tokens


def _scan_part(text: str, start: int, by_worth: bool) -> list[Token]:
    """Cuts a part of a text that looks like a date and is none: a word and a number, or numbers
    with marks between."""
    parts = regex.finditer(r"\p{Nd}+|\p{L}[\p{L}\p{M}]*", text, FLAGS)
    tokens = []
    for part in parts:
        number = part[0][0].isdecimal()
        keys = _number_keys(numbers.read_digits(part[0]), by_worth) if number else (fold(part[0]),)
        tokens.append(Token(keys, start + part.start(), start + part.end(), is_number=number))
    return tokens


def _read_time(match: Match, by_worth: bool) -> list[Token]:
    keys = dates.read_time(match)
    if not match["minute"]:  # "9 am" names 9 too
        keys += _number_keys(numbers.read_digits(match["hour"]), by_worth)
    return [Token(keys, match.start(), match.end(), is_number=True)]


def _read_version(match: Match, by_worth: bool) -> list[Token]:
    """A version is compared as it is written; who asks for the number alone finds it too."""
    number = numbers.read_digits(match["version"])
    written = f"={ascii_digits(match['version'])}"
    keys = (written, *_number_keys(number, by_worth)) if by_worth else (written,)
    return [Token(keys, match.start(), match.end(), is_number=True)]


def _read_number(match: Match, by_worth: bool) -> list[Token]:
    number = numbers.read_number(match)
    keys = _number_keys(number, by_worth)
    if match["plus"]:  # "18+" is another answer than 18
        keys = (f"{keys[0]}+",)
    return [Token(keys, match.start(), match.end(), is_number=True)]


def _read_number_words(match: Match, _: bool) -> list[Token]:
    return [
        Token(
            _number_keys(numbers.read_words(match), True),
            match.start(),
            match.end(),
            is_number=True,
        )
    ]


def _number_keys(number: numbers.Number, by_worth: bool) -> tuple[str, ...]:
    """Returns the keys of a number: what it is worth, then as it is written."""
    written = f"={number.written}"
    values = number.values or (number.written,)
    return (*(f"#{value}" for value in values), written) if by_worth else (written,)


def _read_spaceless(match: Match, _: bool) -> list[Token]:
    folded = fold(match[0])
    if folded in _CURRENCIES:
        return [Token((_CURRENCIES[folded],), match.start(), match.end())]
    return [Token((folded,), match.start(), match.end(), is_spaceless=True)]


def _read_rhesus(match: Match, _: bool) -> list[Token]:
    group = regex.match(r"[ABO]+", match[0])
    sign = "+" if match["factor"] == "positive" else "-"
    return [Token((f"{group[0].lower() if group else ''}{sign}",), match.start(), match.end())]


def _read_sharp(match: Match, _: bool) -> list[Token]:
    sign = "#" if match["way"].lower().endswith("sharp") else "++"
    return [Token((match["tone"].lower() + sign,), match.start(), match.end())]


def _read_negative(match: Match, _: bool) -> list[Token]:
    return [Token((fold(match[0][:-1]) + "-",), match.start(), match.end())]


def _read_initials(match: Match, _: bool) -> list[Token]:
    return [Token((fold(match[0].replace(".", "")),), match.start(), match.end())]


def _read_hangul(match: Match, _: bool) -> list[Token]:
    folded = fold(match[0])
    keys = (_CURRENCIES[folded],) if folded in _CURRENCIES else korean_stems(folded)
    return [Token(keys, match.start(), match.end())]


def _read_word(match: Match, by_worth: bool) -> list[Token]:
    raw = match[0].strip("_")
    folded = fold(raw)
    start, end = match.span()
    if folded in _CURRENCIES:
        return [Token((_CURRENCIES[folded],), start, end)]
    if folded.isdecimal():  # an encircled number, or one that a unit follows
        return [
            Token(_number_keys(numbers.read_digits(folded), by_worth), start, end, is_number=True)
        ]
    if "'" in raw or "’" in raw or "ʼ" in raw:
        first, *stems = without_apostrophes(raw, folded)
        *before, last = first.split()
        return [*(Token((word,), start, end) for word in before), Token((last, *stems), start, end)]
    if match["point"]:
        return [Token((folded, folded[1:]), start, end)]
    is_option = (
        len(raw) == 1 and _LETTER.match(raw) is not None and _is_option(match.string, start, end)
    )
    keys = (folded,) if folded.isascii() else semitic_stems(folded)
    return [Token(keys, start, end, is_option=is_option)]


def _read_end(match: Match, _: bool) -> list[Token]:
    return [Token((END,), match.start(), match.end())]


def _read_currency(match: Match, _: bool) -> list[Token]:
    sign = "%" if match[0] in _PERCENT else fold(match[0])
    return [Token((sign,), match.start(), match.end())]


def _read_symbol(match: Match, _: bool) -> list[Token]:
    """Reads a symbol: an emoji, or one that stands for letters, such as "㎞"."""
    folded = fold(match[0]).strip("°")
    return [Token((folded,), match.start(), match.end())] if folded else []


_READERS: Mapping[str, Callable[[Match, bool], list[Token]]] = {
    "date": _read_date,
    "time": _read_time,
    "of_version": _read_version,
    "number": _read_number,
    "number_words": _read_number_words,
    "spaceless": _read_spaceless,
    "rhesus": _read_rhesus,
    "sharp": _read_sharp,
    "negative": _read_negative,
    "grade": _read_symbol,
    "initials": _read_initials,
    "hangul": _read_hangul,
    "word": _read_word,
    "end": _read_end,
    "currency": _read_currency,
    "symbol": _read_symbol,
}


def _is_option(text: str, start: int, end: int) -> bool:
    """Tells whether a single letter stands for itself: "A" is the letter of an option, a grade or
    an initial, unless it is an article ("A man") or a pronoun ("I think")."""
    before, after = text[max(0, start - NEAR) : start], text[end : end + NEAR]
    if _MARKED.match(after) or _ANNOUNCED.search(before):
        return True
    if text[start].islower():
        return False
    if text[start] in "AI":
        # In mid-sentence a capital is no article; "I" is a pronoun anywhere.
        is_first = not before.strip() or _SENTENCE_BEFORE.search(before) is not None
        return bool(_GOES_ON.match(after)) or (text[start] == "A" and not is_first)
    return True


def _without_articles(tokens: list[Token]) -> list[Token]:
    """Leaves out the English articles. One before a single letter, or at the end, may be a letter
    itself: the initials A L, answer A."""
    kept = []
    for token, following in zip_longest(tokens, tokens[1:]):
        is_article = (
            token.keys[0] in ("a", "an", "the") and not token.is_option and following is not None
        )
        if is_article and not following.is_end and len(following.keys[0]) > 1:
            continue
        # A clause may end at these as at a comma: "red and blue" is found in "red, blue".
        if token.keys[0] in ("but", "and") and not token.is_glued:
            token = token._replace(keys=(END,))
        kept.append(token)
    return kept
