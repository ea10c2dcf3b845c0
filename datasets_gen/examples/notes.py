"""Says what of the answers in somebody's file may surprise whoever wrote it."""

from collections.abc import Sequence
from itertools import combinations

from datasets_gen.examples.example import Question
from datasets_gen.texts.matching import is_twin, read_items
from datasets_gen.texts.unknown import I_DO_NOT_KNOW, says_no_answer

MOST_NAMED = 3


def notes_on(questions: Sequence[Question], golds: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Returns a line for each surprise. ``golds``: of each question as they are written in the
    file."""
    answered = [question for question in questions if question.answerable and question.golds]
    notes = (_without_evidence(answered), _unanswerable(golds), _equal(answered))
    return tuple(filter(None, notes))


def _without_evidence(answered: Sequence[Question]) -> str:
    lost = sum(not question.spans for question in answered)
    if not lost:
        return ""
    stand, them = "do not stand in their context", "them"
    if lost == 1:
        stand, them = "does not stand in its context", "it"
    return f"{lost:,} of {len(answered):,} answers {stand}: no evidence is measured for {them}"


def _unanswerable(golds: Sequence[Sequence[str]]) -> str:
    """Names the phrases that are taken to say that there is no answer, but for the one that is
    documented."""
    number = 0
    phrases: dict[str, None] = {}
    for of_one in golds:
        unusual = [gold for gold in of_one if not I_DO_NOT_KNOW.fullmatch(gold)]
        # As a line is read: one gold that is an answer makes the question answerable.
        if unusual and all(map(says_no_answer, of_one)):
            number += 1
            phrases |= dict.fromkeys(unusual)
    if not number:
        return ""
    named = ", ".join(f"'{phrase}'" for phrase in [*phrases][:MOST_NAMED])
    count = "1 question counts" if number == 1 else f"{number:,} questions count"
    return f"{count} as unanswerable, since the answer that is given says so: {named}"


def _equal(answered: Sequence[Question]) -> str:
    """Names golds of different questions that are written differently and compared as equal."""
    written: dict[object, dict[str, None]] = {}
    for question in answered:
        for gold in question.golds:
            # By what is compared: two golds with one key cannot be told apart in an answer.
            written.setdefault(read_items(gold), {}).setdefault(gold)
    # Golds of one question are forms of one answer, and equal on purpose.
    of_one_question: set[frozenset[str]] = set()
    for question in answered:
        of_one_question.update(map(frozenset, combinations(question.golds, 2)))
    equal = []
    for golds in written.values():
        for pair in combinations(golds, 2):
            if frozenset(pair) not in of_one_question and not is_twin(*pair):
                equal.append(pair)
    if not equal:
        return ""
    named = "; ".join(f"'{gold}' and '{other}'" for gold, other in equal[:MOST_NAMED])
    if len(equal) > MOST_NAMED:
        more = f", and {len(equal) - MOST_NAMED:,} more"
    else:
        more = ""
    return f"golds that are compared as equal: {named}{more}"
