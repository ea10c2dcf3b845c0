"""Scores of an answer: pure functions of the output text, the golds and what the context states.

Texts are compared as :func:`~leaderboards.metrics.judges.spoken.plain` leaves them.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from leaderboards.metrics.judges.abstention import abstains
from leaderboards.metrics.judges.naming import names, rivals, values_said

_PUNCTUATION = str.maketrans("", "", string.punctuation + "‘’“”")

HallucinationKind = Literal["confused", "fabricated"]


@dataclass(frozen=True)
class TextScores:
    """``f1`` and ``em`` in percent. An output is empty, ``abstained`` or ``answered``; what is answered is ``right`` or
    ``hallucinated``. An abstention from an unanswerable question is right. ``hallucination_kind`` is set just where
    ``hallucinated``."""

    f1: float
    em: float
    right: bool
    abstained: bool
    answered: bool
    hallucinated: bool
    hallucination_kind: HallucinationKind | None


def marked_answer(output: str, marker: str) -> str:
    """Returns the number behind the last marker that has one, of an output that shows its steps; nothing if there is
    none.

    >>> marked_answer("8 - 1 = 7. #### 7.0 boxes", "####")
    '7'
    """
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


def score_text(
    answer: str,
    golds: Sequence[str],
    answerable: bool,
    abstentions: Sequence[str],
    stated_values: Sequence[str],
    others: Sequence[str] = (),
    question: str = "",
    every_gold: bool = False,
    output: str | None = None,
) -> TextScores:
    """Computes all scores of one answer. ``others``: what would be right for something else and stands in the context
    in no such words. ``every_gold``: the answer has to name all golds, which are then one list for F1 and EM too.
    ``output``: all that was said, where the answer is a part of it.

    An answer is right if it names a gold and no rival. An unanswerable question is right only when abstained from, in
    full, as in SQuAD 2.0 (arXiv 1806.03822): part of an abstention is not half an answer. An output that says nothing
    is wrong but no hallucination. A refusal that is the gold is an answer.
    """
    said = answer if output is None else output
    worked_out = output is not None and bool(answer)  # who ends in a number abstains from nothing
    abstained = not worked_out and abstains(said, abstentions)
    if answerable:
        if every_gold:
            f1 = token_f1(answer, " ".join(golds))
            em = 100.0 * (f1 == 100)
        else:
            f1 = max(token_f1(answer, gold) for gold in golds)
            em = exact_match(answer, golds)
        named = (names(answer, gold) for gold in golds)
        right = (all(named) if every_gold else any(named)) and not any(
            names(answer, value) for value in rivals(golds, stated_values, others, question)
        )
        abstained &= not (right and any(abstains(gold) for gold in golds))
        right &= not abstained
    else:
        f1 = em = 100.0 * abstained
        right = abstained
    answered = (bool(normalise(said)) or right) and not abstained
    hallucinated = answered and not right
    kind: HallucinationKind | None = None
    if hallucinated:
        kind = "confused" if values_said(answer, (*stated_values, *others), question) else "fabricated"
    return TextScores(f1, em, right, abstained, answered, hallucinated, kind)
