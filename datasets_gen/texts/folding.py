"""Folds a text to the form in which it is compared: what Unicode calls the same text, in small
letters.

Letters and marks of every script stay: "resume" is not "résumé". What goes is what tells no two
texts apart: case, the composition of marks, the width of digits and letters, ligatures, and
characters that nobody sees."""

import unicodedata
from functools import lru_cache

import regex

# Scripts that put no space between words, so that a word is looked for as a part of the text.
SPACELESS = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}ー々〆〇ｰﾞﾟ"
)
# What a word of the other scripts is made of.
LETTER = rf"[\p{{L}}\p{{M}}\p{{N}}_--[{SPACELESS}]]"
DASHES = "-−–‒‐‑﹣－⁻"  # what people write for a hyphen or a minus sign
CLOSERS = "\"'”’»」』）】》)\\]"  # what may stand behind the mark that ends a sentence
STOPS = ".!?。！？｡．؟۔।॥։።…"  # marks that end a sentence, in any script

FLAGS = regex.VERSION1
# And the stroke that widens Arabic words.
_UNSEEN = regex.compile(r"[\p{Default_Ignorable_Code_Point}\u0640]", FLAGS)
_SUPERSCRIPT = regex.compile(r"(?<=\p{Nd})[⁰¹²³⁴-⁹]+", FLAGS)
_GREEK_ACCENT = regex.compile(r"(?<=\p{Greek}\p{M}*)[\u0300\u0301\u0342]", FLAGS)


def composed(text: str) -> str:
    """Returns a text in Unicode's composed form (NFC), which has one code point for a letter and
    its mark.

    >>> composed("Jose\\u0301") == "José"
    True
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", text)


@lru_cache(maxsize=65536)
def fold(text: str) -> str:
    """Returns a text as it is compared with another one.

    >>> fold("ＳＴＲＡẞＥ"), fold("İstanbul"), fold("ﬁn"), fold("10²")
    ('strasse', 'istanbul', 'fin', '10^2')
    """
    if text.isascii():
        return text.lower()
    text = _UNSEEN.sub("", text)
    # Or ten squared would be a hundred and two.
    text = _SUPERSCRIPT.sub(lambda digits: f"^{digits[0]}", text)
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # Turkish writes I for ı and İ for i: which of the two a capital stands for cannot be seen.
    text = text.replace("i\u0307", "i").replace("ı", "i")
    if _GREEK_ACCENT.search(accented := unicodedata.normalize("NFD", text)):
        # Greek capitals are written without the accent that their small letters have.
        text = unicodedata.normalize("NFC", _GREEK_ACCENT.sub("", accented))
    return text.replace("\u2212", "-")


def ascii_digits(text: str) -> str:
    """Writes the decimal digits of any script as ASCII digits.

    >>> ascii_digits("٣٫١٤"), ascii_digits("１２")
    ('3٫14', '12')
    """
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(one, one)) for one in text)
