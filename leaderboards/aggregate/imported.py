"""Results that the evaluation of another tool came to, kept apart from ours."""

from dataclasses import dataclass

# What a data set is ranked by, where it is told several scores; of all of them more is better.
HEADLINES = ("string_match", "accuracy", "score", "exact_match", "f1", "rouge-l", "rougeL", "rouge1")


@dataclass(frozen=True)
class Imported:
    """Holds the results of some evaluations of one press at one ratio, in one setting.

    ``setting``: what of the data and the model was not the default. ``arguments``: how the press was built. ``scores``:
    by name, as they were told there, the mean over ``tasks``; None where there is no number. ``f1`` and ``em``: in
    percent, computed here from ``answers`` of ``predictions`` that came with a gold answer. ``runs``: how many
    evaluations these are the means of.
    """

    dataset: str
    model: str
    setting: str
    press: str
    ratio: float
    arguments: str
    scores: tuple[tuple[str, float | None], ...]
    tasks: int
    predictions: int
    answers: int
    f1: float | None
    em: float | None
    runs: int = 1

    @property
    def headline(self) -> tuple[str, float | None]:
        told = dict(self.scores)
        found = [name for name in HEADLINES if told.get(name) is not None]
        found += [name for name, value in self.scores if value is not None]
        return (found[0], told[found[0]]) if found else ("", None)
