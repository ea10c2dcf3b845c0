"""Guesses at answers by who does not see the context, and what the best of them are worth."""

import re
from collections import Counter, defaultdict
from functools import cache

from datasets_gen import Question, Task
from datasets_gen.examples.lexicon import lexicon
from leaderboards.metrics.judges.abstention import abstains
from leaderboards.metrics.judges.naming import names
from tests.support.tasks.solvers.text import NAME

COMMON = 12  # answers and words of answers that are tried for each form of question
STEM = 3  # letters by which a family name is taken for another


@cache
def kinds() -> dict[str, str]:
    """The list of the lexicon that a word is from."""
    lists = lexicon().model_dump().items()
    return {
        word: kind
        for kind, words in lists
        if isinstance(words[0], str) and kind != "version"
        for word in words
    }


def form(text: str) -> str:
    """A text with a blank for each name, value and number."""
    return re.sub(
        r"\w+", lambda word: "#" if word[0].isdigit() else kinds().get(word[0], word[0]), text
    )


@cache
def named(question: str) -> list[str]:
    """What the question itself offers for an answer: its names, and all family names that are like
    the first."""
    names = re.findall(NAME, question)
    alike = [
        f for name in names[:1] for f in lexicon().family if f[:STEM] == name.split()[1][:STEM]
    ]
    others = [family for family in alike if family not in names[0].split()] if names else []
    return [*[*names, "", ""][:2], " ".join(others)]


@cache
def worth(
    guess: str, golds: tuple[str, ...], answerable: bool, abstentions: tuple[str, ...]
) -> float:
    """100 for what ``score_text`` calls right, without the verdicts, which take ten times as long.
    A guess is one value, so that it has no rival."""
    if answerable:
        return 100.0 * any(names(guess, gold) for gold in golds)
    return 100.0 * abstains(guess, abstentions)


def right(task: Task, guess: str, question: Question) -> float:
    """100 if a guess is right, in which {0} and {1} stand for the names in the question and {2} for
    those like the first."""
    said = guess.format(*named(question.text)) if "{" in guess else guess
    # One entry of the cache for all that nobody can answer.
    golds = question.golds if question.answerable else ()
    return worth(said, golds, question.answerable, task.abstentions)


def guesses(golds: list[str]) -> list[str]:
    words = Counter(word for gold in golds for word in gold.split())
    common = [
        text for counted in (Counter(golds), words) for text, _ in counted.most_common(COMMON)
    ]
    return [*(text for text in common if "{" not in text), "{0}", "{1}", "{2}"]


def blind_right(task: Task, count: int = 6000) -> float:
    """Percent right of who makes, for each form of question, the guess that is right most often on
    the train split."""
    contexts = range(count // task.questions_per_context)
    seen: dict[str, list[Question]] = defaultdict(list)
    for index in contexts:
        for question in task.example(5, index, "train").questions:
            seen[form(question.text)].append(question)
    best: dict[str, str] = {}
    for name, questions in seen.items():
        totals = {
            guess: sum(right(task, guess, q) for q in questions)
            for guess in guesses([q.golds[0] for q in questions])
        }
        best[name] = max(totals, key=lambda guess: totals[guess])
    tested = [question for index in contexts for question in task.example(5, index).questions]
    return sum(right(task, best.get(form(q.text), task.abstentions[0]), q) for q in tested) / len(
        tested
    )
