"""Scores of an answer: pure functions of the output text, the golds and what the context states.

Texts are compared as :func:`~leaderboards.metrics.judges.spoken.plain` leaves them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from datasets_gen.texts.final_number import final_number
from datasets_gen.texts.matching import is_twin
from datasets_gen.texts.unknown import says_no_answer
from leaderboards.metrics.judges.abstention import abstains
from leaderboards.metrics.judges.naming import names, names_gold, rivals, values_said
from leaderboards.metrics.judges.normalising import normalise, says_something, words_of_pair

Golds = Sequence[str]
HallucinationKind = Literal["confused", "fabricated"]


@dataclass(frozen=True)
class TextScores:
    """``f1`` and ``em`` in percent. An output is empty, ``abstained`` or ``answered``; what is
    answered is ``right`` or ``hallucinated``. An abstention from an unanswerable question is right.
    ``hallucination_kind`` is set just where ``hallucinated``."""

    f1: float
    em: float
    right: bool
    abstained: bool
    answered: bool
    hallucinated: bool
    hallucination_kind: HallucinationKind | None


def marked_answer(output: str, marker: str) -> str:
    """Returns the number behind the last marker that has one, of an output that shows its steps;
    nothing if there is none.

    >>> marked_answer("8 - 1 = 7. #### 7.0 boxes", "####")
    '7'
    >>> marked_answer("#### 18 - 5 = -$1,234.50", "####")
    '-1234.5'
    """
    numbers = (final_number(behind) for behind in reversed(output.split(marker)[1:]))
    return next(filter(None, numbers), "")


def without_words_of_directives(output: str, target: str, gold: str) -> str:
    """Returns an output without the words that its directives add to the gold, which ``target``
    shows: what is left answers.

    >>> target = "pillow Ada Falbrook cushion"
    >>> without_words_of_directives("pillow Ada Falden. cushion", target, "Ada Falbrook")
    'Ada Falden.'
    """
    # Counted, since a word of the gold may also be one that a directive adds.
    added = Counter(normalise(target).split()) - Counter(normalise(gold).split())
    left = []
    for word in output.split():
        pieces = Counter(normalise(word).split())
        if pieces and pieces <= added:
            added -= pieces
        else:
            left.append(word)
    return " ".join(left)


def exact_match(output: str, golds: Sequence[str]) -> float:
    """Returns 100 if the normalised output is a normalised gold, else 0."""
    pairs = (words_of_pair(output, gold) for gold in golds)
    return 100.0 * any(said == wanted for said, wanted in pairs)


def token_f1(output: str, gold: str) -> float:
    """Computes SQuAD's token F1 of one gold, in percent."""
    output_words, gold_words = words_of_pair(output, gold)
    common = sum((Counter(output_words) & Counter(gold_words)).values())
    # As precision and recall are common / said and common / wanted; in this form a half is 50 and
    # nothing just below.
    return 100.0 * 2 * common / (len(output_words) + len(gold_words))


def _names_golds(
    answer: str, golds: Golds, stated_values: Golds, others: Golds, question: str, every_gold: bool
) -> bool:
    as_written = _has_twin(golds, (*stated_values, *others))
    named = (names_gold(answer, gold, question, as_written) for gold in golds)
    return all(named) if every_gold else any(named)


def _names_rival(
    answer: str, golds: Golds, stated_values: Golds, others: Golds, question: str, every_gold: bool
) -> bool:
    as_written = _has_twin(golds, (*stated_values, *others))
    return any(
        names(answer, value, as_written)
        for value in rivals(golds, stated_values, others, question, every_gold)
    )


def _has_twin(golds: Golds, values: Golds) -> bool:
    """Tells whether a value is a gold that is written differently, as the version 3.10 is where the
    gold is 3.1."""
    return any(is_twin(gold, value) for gold in golds for value in values)


_gold_abstains = lru_cache(maxsize=4096)(abstains)


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
    """Computes all scores of one answer. ``others``: what would be right for something else and
    stands in the context in no such words. ``every_gold``: the answer has to name all golds, which
    are then one list for F1 and EM too. ``output``: all that was said, where the answer is a part
    of it.

    An answer is right if it names a gold and no rival. An unanswerable question is right only when
    abstained from, in full, as in SQuAD 2.0 (arXiv 1806.03822): part of an abstention is not half
    an answer. An output that says nothing is wrong but no hallucination. A refusal that is the gold
    is an answer; where all golds say that there is no answer, who abstains is right."""
    said = answer if output is None else output
    worked_out = output is not None and bool(answer)  # who ends in a number abstains from nothing
    abstained = not worked_out and abstains(said, abstentions)
    if answerable:
        if every_gold:
            f1 = token_f1(answer, " ".join(golds))
            # A list may be given in any order, which F1 does not see.
            em = 100.0 * (f1 == 100)
        else:
            f1 = max(token_f1(answer, gold) for gold in golds)
            em = exact_match(answer, golds)
        values = (golds, stated_values, others, question, every_gold)
        right = (em == 100 or _names_golds(answer, *values)) and not _names_rival(answer, *values)
        if all(map(says_no_answer, golds)):
            right = abstained = abstained or says_no_answer(answer)
        else:
            abstained &= not (right and any(map(_gold_abstains, golds)))
            right &= not abstained
    else:
        f1 = em = 100.0 * abstained
        right = abstained
    answered = (says_something(said) or right) and not abstained
    hallucinated = answered and not right
    kind: HallucinationKind | None = None
    if hallucinated:
        kind = (
            "confused" if values_said(answer, (*stated_values, *others), question) else "fabricated"
        )
    return TextScores(f1, em, right, abstained, answered, hallucinated, kind)
