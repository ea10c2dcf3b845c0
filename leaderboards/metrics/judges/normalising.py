"""Normalises texts for exact match and F1, as SQuAD does (arXiv 1606.05250) where that tells
answers apart.

What differs: the words of scripts without spaces, and of Korean, are their characters, as in MLQA
(arXiv 1910.07475) and KorQuAD (arXiv 1909.07005); Unicode decides which texts are the same; signs
that belong to a word or number stay (O+, C#, -5, 3.5); and articles go only where something is left
of both texts, or the letter A would be no answer."""

import re
import string
from functools import lru_cache

import regex

from datasets_gen.texts.folding import DASHES, FLAGS, LETTER, SPACELESS, composed, fold
from datasets_gen.texts.numbers import DIGITS, read_digits

ARTICLES = frozenset({"a", "an", "the", "and"})  # "and" would be a third of a wrong list of two
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_PLUS = "[+＋⁺]"
_BEHIND = r"(?=$|\s|[\p{P}])"
# A text that has none of these is normalised by deleting its punctuation.
_NEEDS_CARE = re.compile(r"[^\x00-\x7f]|[+#*<>$%]|[0-9](?:[.,:/'_-][0-9]| [0-9]{3})|[-.][0-9]|\b[A-Za-z]{1,2}-(?![A-Za-z0-9])|(?:^|\s)\.[A-Z]{2}")  # fmt: skip  # noqa: E501
_PIECES = regex.compile(
    rf"""
      (?P<number>(?P<comparator>(?<![-=<>])(?:[<>]=?|[≤≥＜＞])\s?)?
        (?P<sign>(?<![\p{{L}}\p{{M}})\]%°])(?<!\p{{N}}\s?)[{DASHES}](?=[\p{{Sc}}\p{{Nd}}.]))?
        (?P<before>\p{{Sc}}\s?)?(?P<digits>{DIGITS}))
    | (?P<kept>(?<!{LETTER})(?:\p{{Lu}}\p{{L}}?|[abo]|ab)[{DASHES}]{_BEHIND}     # O-, A-
      | (?<=[\p{{L}}\p{{N}}]){_PLUS}+(?![\p{{L}}\p{{N}}])                          # O+, C++, 18+
      | (?<=[\p{{L}}\p{{N}}])[#＃♯](?![\p{{L}}\p{{N}}])                            # C#
      | (?<=(?<!{LETTER})\p{{Lu}})\*(?![\p{{L}}\p{{N}}*])                          # A*
      | (?<!\S)\.(?=\p{{Lu}}{{2}})                                                 # .NET
      | (?<=\p{{Nd}})[-–‑−/:](?=\p{{Nd}}))                                          # 10-20, 1/2, 10:30
    | (?P<single>[{SPACELESS}][\p{{M}}ﾞﾟ]*|\p{{Hangul}}\p{{M}}*)
    | (?P<sign_of_worth>\p{{Sc}}|[%％٪])
    | (?P<dropped>[\p{{P}}+=<>|~^`´¨¯¸])
    """,
    FLAGS | regex.VERBOSE,
)


def normalise(text: str) -> str:
    """Normalises a text: small letters, without punctuation and extra white space, and without
    articles where anything else is left.

    >>> normalise("The Amber Bank."), normalise("A."), normalise("O+"), normalise("1,234.50 €"), normalise("東京。")
    ('amber bank', 'a', 'o+', '1234.50', '東 京')
    """
    words = _words(text)
    return " ".join([word for word in words if word not in ARTICLES] or words)


def says_something(text: str) -> bool:
    """Tells whether a text says anything but articles and punctuation; a single letter may be an
    answer."""
    words = _words(text)
    return any(word not in ARTICLES for word in words) or words == ["a"]


def words_of_pair(output: str, gold: str) -> tuple[list[str], list[str]]:
    """Returns the words by which an output is compared with a gold.

    Articles stay in both where the gold has nothing else, or is the initials of a name, as A L;
    currencies and percent signs where the two have different ones: 5 is taken for $5, and €5 is
    not. A gold of punctuation alone is compared as it is."""
    of_gold = _words(gold)
    if not of_gold:
        return [output.strip()], [gold.strip()]
    of_output = _words(output)
    signs, gold_signs = _signs_in(output), _signs_in(gold)
    if signs and gold_signs and signs != gold_signs:
        of_output, of_gold = [*of_output, *sorted(signs)], [*of_gold, *sorted(gold_signs)]
    are_initials = "a" in of_gold and all(len(word) == 1 and word.isalpha() for word in of_gold)
    if are_initials or all(word in ARTICLES for word in of_gold):
        return of_output, of_gold
    return [word for word in of_output if word not in ARTICLES], [
        word for word in of_gold if word not in ARTICLES
    ]


def _signs_in(text: str) -> frozenset[str]:
    return frozenset(
        match[0].replace("％", "%").replace("٪", "%") for match in _SIGNS.finditer(text)
    )


_SIGNS = regex.compile(r"\p{Sc}|[%％٪]", FLAGS)


@lru_cache(maxsize=16384)
def _words_at_once(text: str) -> tuple[str, ...]:
    if _NEEDS_CARE.search(text) is None:
        return tuple(text.lower().translate(_PUNCTUATION).split())
    return tuple(fold(_PIECES.sub(_piece, composed(text))).split())


def _words(text: str) -> list[str]:
    return list(_words_at_once(text))


def _piece(match: "regex.Match[str]") -> str:
    """Writes a piece of a text as it is compared; what is dropped leaves no space, as in SQuAD."""
    kind = match.lastgroup
    if kind == "number":
        written = read_digits(match["digits"]).written
        whole, _, part = written.partition(".")
        # Behind a letter it is a version: v3.0 keeps its zero.
        is_version = match["digits"] == match[0] and match.string[: match.start()][-1:].isalpha()
        # 3.0 is 3, 3.10 is not 3.1.
        written = written if "." in part or part.strip("0") or is_version else whole
        comparator = (match["comparator"] or "").strip().replace("<=", "≤").replace(">=", "≥")
        return fold(comparator) + "-" * bool(match["sign"]) + written
    if kind == "kept":
        sign = fold(match[0])
        return sign[:-1] + "-" if sign[-1] in DASHES else sign.replace("♯", "#")
    if kind == "single":
        return f" {match[0]} "
    return ""
