"""Lists what a reference model has to master with the full cache: one that fails a task cannot show what breaks
there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """``score`` of the part ``questions`` of a task, from 0 to 100, is at least ``bound``, or at most."""

    task: str
    questions: str
    score: str
    bound: float
    at_most: bool = False

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}"

    def is_met(self, percent: float) -> bool:
        return percent <= self.bound if self.at_most else percent >= self.bound

    def measured_score(self, rows: Sequence[Mapping[str, object]]) -> float:
        """Returns the measured score in percent; ``rows`` as ``kvbench.reference.evaluate`` writes them."""
        (value,) = (row[self.score] for row in rows if (row["task"], row["questions"]) == (self.task, self.questions))
        assert isinstance(value, float)
        return value if self.score in ("f1", "em") else 100 * value


TARGETED = ("reference", "reference-qwen")  # the models that have to reach them
TARGETS = (
    Target("base", "all", "f1", 95),
    Target("knowledge", "standard", "f1", 97),
    Target("knowledge", "manipulated", "f1", 90),
    Target("knowledge", "part", "f1", 80),
    Target("multi_presence", "all", "f1", 80),
    Target("multi_entity", "all", "f1", 88),
    Target("coreference", "all", "f1", 85),
    Target("hops", "1 facts", "f1", 93),
    Target("hops", "2 facts", "f1", 80),
    Target("hops", "3 facts", "f1", 65),
    Target("long_context", "all", "f1", 90),
    Target("arithmetic", "all", "em", 60),
    Target("instructions", "under directives", "directives_obeyed", 93),
    Target("instructions", "attack, with a defence", "leakage", 5, at_most=True),
    Target("instructions", "attack, without", "leakage", 90),
)
UNSEEN = "all, in phrasings never seen"  # as the scores of held-out phrasings are called
