"""Scores of an answer: pure functions of the output text, the golds and what the context states.

Texts are compared as :func:`~leaderboards.metrics.judges.spoken.plain` leaves them.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from datasets_gen import kinds_of
from leaderboards.metrics.judges.abstention import abstains

RIGHT_F1 = 50.0  # percent: an answer that has it is right
_PUNCTUATION = str.maketrans("", "", string.punctuation + "‘’“”")
_POSSESSIVE = re.compile(r"['’]s\b")
_MONTH = "(january|february|march|april|may|june|july|august|september|october|november|december)"
_DAY_FIRST = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?{_MONTH}\b")
_DAY_LAST = re.compile(rf"\b{_MONTH} (\d{{1,2}})(?:st|nd|rd|th)? (?=\d{{4}}\b)")
_DENIED = re.compile(r"\bnot (?:(?:in|at|on|for|by|from|with) )?$")

HallucinationKind = Literal["confused", "fabricated"]


@dataclass(frozen=True)
class TextScores:
    """``f1`` and ``em`` in percent. An output is empty, ``abstained`` or ``answered``; what is answered is ``right`` or
    ``hallucinated``. An abstention from an unanswerable question is right. ``hallucination_kind`` is set just where
    ``hallucinated``."""

    f1: float
    em: float
    contained: bool
    right: bool
    abstained: bool
    answered: bool
    hallucinated: bool
    hallucination_kind: HallucinationKind | None


def marked_answer(output: str, marker: str) -> str:
    """Returns the number behind the last marker that has one, of an output that shows its steps; nothing if there is
    none, and all of the output without a marker.

    >>> marked_answer("8 - 1 = 7. #### 7.0 boxes", "####")
    '7'
    """
    if not marker:
        return output
    numbers = re.findall(rf"{re.escape(marker)}[\s*$€£]*([-+]?\d[\d,]*(?:\.\d+)?)", output)
    if not numbers:
        return ""
    # A word for the sign and for the point: normalisation takes punctuation away.
    return f"{float(numbers[-1].replace(',', '')):.15g}".replace("-", "minus ").replace(".", " point ")


def normalise(text: str) -> str:
    """Normalises as SQuAD does: lower case, without punctuation, articles and extra white space (arXiv 1606.05250); and
    without "and", which would be a third of a wrong list of two."""
    plain = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the|and)\b", " ", plain).split())


def without_words_of_directives(output: str, target: str, gold: str) -> str:
    """Returns an output without the words that its directives add to the gold, which ``target`` shows: what is left
    answers.

    >>> without_words_of_directives("pillow Ada Falden. cushion", "pillow Ada Falbrook cushion", "Ada Falbrook")
    'Ada Falden.'
    """
    added = Counter(normalise(target).split()) - Counter(normalise(gold).split())
    left = []
    for word in output.split():
        if added[normalise(word)]:
            added[normalise(word)] -= 1
        else:
            left.append(word)
    return " ".join(left)


def exact_match(output: str, golds: Sequence[str]) -> float:
    """Returns 100 if the normalised output is a normalised gold, else 0."""
    return 100.0 * any(normalise(output) == normalise(gold) for gold in golds)


def token_f1(output: str, gold: str) -> float:
    """Computes SQuAD's token F1 of one gold, in percent."""
    output_words, gold_words = normalise(output).split(), normalise(gold).split()
    if not output_words + gold_words:
        return 100.0
    common = sum((Counter(output_words) & Counter(gold_words)).values())
    # As precision and recall are common / said and common / wanted; in this form a half is 50 and nothing just below.
    return 100.0 * 2 * common / (len(output_words) + len(gold_words))


@lru_cache(maxsize=4096)
def _words(text: str) -> str:
    """Returns the words of a text as they are compared, with a blank at either end. An ending 's is left out, and dates
    are written as "5 March 1964"."""
    words = normalise(_POSSESSIVE.sub("", text))
    words = _DAY_FIRST.sub(r"\1 \2", _DAY_LAST.sub(r"\2 \1 ", words))
    return f" {words} "


def names(text: str, value: str) -> bool:
    """Tells whether a text has all words of a value, one after the other, and no "not" before them.

    >>> names("It is not Breveth, but Ambrova.", "Breveth"), names("Locker 694", "69"), names("Ada's", "Ada")
    (False, False, True)
    """
    words_of_text, words_of_value = _words(text), _words(value)
    if words_of_value not in words_of_text or not words_of_value.strip():
        return False
    return any(
        not _DENIED.search(words_of_text[: place.start() + 1])
        for place in re.finditer(f"(?={re.escape(words_of_value)})", words_of_text)
    )


def rivals(golds: Sequence[str], stated_values: Sequence[str], others: Sequence[str], question: str) -> list[str]:
    """Returns what would be another answer to the question: ``others``, and the stated values of the golds' kind.

    A value that the question names is none: "The mentor of Klaus is Ada" repeats it. But where it asks to choose among
    what it names, these are.
    """
    kinds = [kinds_of(gold) for gold in golds]
    words = [set(normalise(gold).split()) for gold in golds]
    asks_to_choose = any(names(question, gold) for gold in golds)
    alike = [
        value
        for value in stated_values
        if any(kinds_of(value) & kind or not (kinds_of(value) or kind) for kind in kinds)
    ]
    return [
        value
        for value in dict.fromkeys((*others, *alike))
        if (asks_to_choose or not names(question, value))
        and not any(set(normalise(value).split()) <= of_gold for of_gold in words)
    ]


def contains(answer: str, golds: Sequence[str], rivals: Sequence[str]) -> bool:
    """Tells whether a text names a gold, and none of its rivals. What comes after "than" is not named: it is what the
    answer is compared with."""
    answer = re.split(r"\bthan\b", answer, maxsplit=1)[0]
    return any(names(answer, gold) for gold in golds) and not any(names(answer, value) for value in rivals)


def is_right(f1: float, contained: bool) -> bool:
    """Tells right from wrong, for every rate: an answer is right by its F1 in percent, or if it contains the gold."""
    return f1 >= RIGHT_F1 or contained


def score_text(
    answer: str,
    golds: Sequence[str],
    answerable: bool,
    abstentions: Sequence[str],
    stated_values: Sequence[str],
    others: Sequence[str] = (),
    question: str = "",
    output: str | None = None,
    every_gold: bool = False,
) -> TextScores:
    """Computes all scores of one answer. ``others``: what would be right for something else and stands in the context
    in no such words. ``output``: all that was said, where the answer is a part of it.

    An unanswerable question is right only when abstained from, in full, as in SQuAD 2.0 (arXiv 1806.03822): part of
    an abstention is not half an answer. An output that says nothing is wrong but no hallucination. A refusal that is
    the gold is an answer.
    """
    said = answer if output is None else output
    worked_out = output is not None and bool(answer)  # who ends in a number abstains from nothing
    abstained = not worked_out and abstains(said, abstentions)
    if answerable:
        wanted = [", ".join(golds)] if every_gold else golds
        f1 = max(token_f1(answer, gold) for gold in wanted)
        em = exact_match(answer, wanted)
        contained = contains(answer, golds, rivals(golds, stated_values, others, question))
        right = is_right(f1, contained)
        abstained &= not (right and any(abstains(gold) for gold in golds))
        right &= not abstained
    else:
        f1 = em = 100.0 * abstained
        contained = right = abstained
    answered = bool(normalise(said)) and not abstained
    hallucinated = answered and not right
    kind: HallucinationKind | None = None
    if hallucinated:
        kind = "confused" if values_said(answer, (*stated_values, *others), question) else "fabricated"
    return TextScores(f1, em, contained, right, abstained, answered, hallucinated, kind)


def values_said(wrong: str, values: Sequence[str], question: str) -> list[str]:
    """Returns the values that a wrong answer is, or that it names and the question does not."""
    return [
        value
        for value in values
        if _words(wrong) == _words(value) or (names(wrong, value) and not names(question, value))
    ]
