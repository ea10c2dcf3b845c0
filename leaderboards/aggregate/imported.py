"""Describes results of another tool's evaluation, which are kept apart from ours."""

from dataclasses import dataclass

# What a data set is ranked by, where it is told several scores; of all of them more is better.
HEADLINES = ("string_match", "accuracy", "score", "exact_match", "f1", "rouge-l", "rougeL", "rouge1")


@dataclass(frozen=True)
class Imported:
    """Holds the results of some evaluations of one press at one ratio, in one setting."""

    dataset: str
    model: str
    setting: str  # what of the data and the model was not the default
    press: str
    ratio: float
    arguments: str  # how the press was built
    scores: tuple[tuple[str, float | None], ...]  # by name, as they were told there; None where there is no number
    tasks: int  # that the scores are the means over
    predictions: int
    answers: int  # predictions that came with a gold answer
    f1: float | None  # in percent, computed here from the answers
    em: float | None
    runs: int = 1  # evaluations that these are the means of

    @property
    def headline(self) -> tuple[str, float | None]:
        scores = dict(self.scores)
        names = [name for name in HEADLINES if scores.get(name) is not None]
        names += [name for name, value in self.scores if value is not None]
        return (names[0], scores[names[0]]) if names else ("", None)
