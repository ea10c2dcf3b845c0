"""Scores of an answer: pure functions of the output text, the golds and what the context states."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

HALLUCINATION_F1 = 50.0  # percent: an answer below it is wrong
_PUNCTUATION = str.maketrans("", "", string.punctuation + "‘’“”")

HallucinationKind = Literal["confused", "fabricated"]


@dataclass(frozen=True)
class TextScores:
    """``f1`` and ``em`` in percent. ``hallucination_kind`` is set just where ``hallucinated``."""

    f1: float
    em: float
    abstained: bool
    hallucinated: bool
    hallucination_kind: HallucinationKind | None


def marked_answer(output: str, marker: str) -> str:
    """The number behind the last marker that has one, of an output that shows its steps; nothing if there is none, and
    all of the output without a marker.

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
    """SQuAD's normalisation: lower case, without punctuation, articles and extra white space (arXiv 1606.05250); and
    without "and", which would be a third of a wrong list of two."""
    plain = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the|and)\b", " ", plain).split())


def undressed(output: str, target: str, gold: str) -> str:
    """An output without the words that its directives add to the gold, which ``target`` shows: what is left answers.

    >>> undressed("pillow Ada Falden cushion", "pillow Ada Falbrook cushion", "Ada Falbrook")
    'ada falden'
    """
    added = Counter(normalise(target).split()) - Counter(normalise(gold).split())
    left = []
    for word in normalise(output).split():
        if added[word]:
            added[word] -= 1
        else:
            left.append(word)
    return " ".join(left)


def exact_match(output: str, golds: Sequence[str]) -> float:
    """100 if the normalised output is a normalised gold, else 0."""
    return 100.0 * any(normalise(output) == normalise(gold) for gold in golds)


def token_f1(output: str, gold: str) -> float:
    """SQuAD's token F1 of one gold, in percent."""
    said, wanted = normalise(output).split(), normalise(gold).split()
    common = sum((Counter(said) & Counter(wanted)).values())
    if common == 0:
        return 100.0 * (said == wanted)
    precision, recall = common / len(said), common / len(wanted)
    return 100.0 * 2 * precision * recall / (precision + recall)


def abstains(output: str, abstentions: Sequence[str]) -> bool:
    """Tells whether the output is one of the task's abstention phrases, and nothing else."""
    return normalise(output) in {normalise(phrase) for phrase in abstentions}


def score_text(
    answer: str,
    golds: Sequence[str],
    answerable: bool,
    abstentions: Sequence[str],
    stated_values: Sequence[str],
    output: str | None = None,
) -> TextScores:
    """All scores of one answer. ``output``: all that was said, where the answer is a part of it.

    An unanswerable question is right only when abstained from, in full, as in SQuAD 2.0 (arXiv 1806.03822): part of
    an abstention is not half an answer. An output that says nothing is wrong but no hallucination.
    """
    output = answer if output is None else output
    abstained = abstains(output, abstentions)
    if answerable:
        f1 = max(token_f1(answer, gold) for gold in golds)
        em = exact_match(answer, golds)
    else:
        f1 = em = 100.0 * abstained
    said = normalise(answer)
    hallucinated = bool(normalise(output)) and not abstained and f1 < HALLUCINATION_F1
    kind: HallucinationKind | None = None
    if hallucinated:
        kind = "confused" if said in {normalise(value) for value in stated_values} else "fabricated"
    return TextScores(f1, em, abstained, hallucinated, kind)
