"""A scorer judges an output by a gold in a way that a task, or a package, brings itself."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from datasets_gen.examples.errors import DatasetError


@dataclass(frozen=True)
class Scorer:
    """A function of output, gold and question, with what its numbers mean."""

    name: str
    judge: Callable[[str, str, str], float]
    low: float = 0.0  # the lowest score that there is
    high: float = 1.0  # the highest
    better: Literal["higher", "lower"] = "higher"
    description: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise DatasetError(
                f"the scorer {self.name} has the range {self.low:g} to {self.high:g}: give a lowest "
                "score, and a highest one above it"
            )

    @property
    def best(self) -> float:
        """Returns the score of a perfect output."""
        return self.high if self.better == "higher" else self.low

    def score(self, output: str, golds: Sequence[str], question: str) -> float:
        """Returns the score of an output beside the gold that suits it best. Raises
        :class:`DatasetError` for a score that is outside of the range, or no number."""
        scores = [self._score(output, gold, question) for gold in golds]
        return max(scores) if self.better == "higher" else min(scores)

    def _score(self, output: str, gold: str, question: str) -> float:
        try:
            score = float(self.judge(output, gold, question))
        except Exception as error:  # of a function of the user
            reason = f"{type(error).__name__}: {error}"
            raise DatasetError(
                f"the scorer {self.name} failed on '{output:.60}': {reason}"
            ) from error
        if not self.low <= score <= self.high:  # NaN is in no range
            raise DatasetError(
                f"the scorer {self.name} gave {score:g} to '{output:.60}', and its range is "
                f"{self.low:g} to {self.high:g}"
            )
        return score
