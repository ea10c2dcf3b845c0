"""Checks a scorer: its range, its direction, and that it says the same again."""

from collections.abc import Sequence
from typing import NamedTuple

from datasets_gen import DatasetError, Scorer

# Outputs of a model that was hurt: whatever a scorer says of them, it must say something.
ODD_OUTPUTS = ("", " ", "I don't know", "{", "ÿ\u0000\ud7ff", "word " * 200)


class Asked(NamedTuple):
    """A question with its gold, by which a scorer is tried."""

    question: str
    gold: str


def check_scorer(scorer: Scorer, pairs: Sequence[tuple[str, str]]) -> None:
    """Checks a scorer on some questions.

    Args:
        scorer: What ``kvbench.scorer`` makes.
        pairs: Questions, each with its gold.

    Raises:
        AssertionError: It has faults, which the message lists.
    """
    faults = find_scorer_faults(scorer, [Asked(*pair) for pair in pairs])
    if faults:
        raise AssertionError("; ".join(faults))


def find_scorer_faults(scorer: Scorer, pairs: Sequence[Asked]) -> list[str]:
    """Returns the faults of a scorer, a sentence each; none of a sound one."""
    faults: list[str] = []
    for question, gold in pairs:
        try:
            best = scorer.score(gold, [gold], question)
            odd = [scorer.score(output, [gold], question) for output in ODD_OUTPUTS]
            again = scorer.score(gold, [gold], question)
        except DatasetError as error:
            faults.append(str(error))
            break
        if best != scorer.best:
            faults.append(
                f"the scorer {scorer.name} gives {best:g} to the gold itself, '{gold:.60}', and its "
                f"best score is {scorer.best:g}"
            )
        if again != best:
            faults.append(f"the scorer {scorer.name} gives {best:g} and {again:g} to one output")
        if all(score == best for score in odd):
            faults.append(
                f"the scorer {scorer.name} gives the same to the gold and to an empty output"
            )
        if faults:
            break
    return faults
