"""Lists what a reference model has to master with the full cache, and what may cost it answers: one that fails a task
cannot show what breaks there, and one that reads in a single layer cannot show what budgets of layers do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets_gen import TASKS
from kvbench.checks.read_profile import PARTS, SLOTS, UPPER_HALF, ReadProfile, part_name


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


@dataclass(frozen=True)
class CostTarget:
    """What ``lost`` costs questions of a task, in points, is at most ``bound``, or at least."""

    task: str
    questions: str  # a kind of question, or a part of the read profile
    lost: str  # a name of :data:`LOST`
    bound: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"

    def is_met(self, points: float) -> bool:
        return points >= self.bound if self.at_least else points <= self.bound

    def measured_cost(self, content: Mapping[str, Any], length: str) -> float:
        """Returns the measured cost; ``content`` as ``kvbench.reference.evaluate`` writes it, ``length`` of contexts
        (where rows are destroyed, they have their own)."""
        if self.lost == SEEN:
            score = SCORES_OF.get(self.task, "f1")
            rows = content["scores"][length]
            seen, unseen = (Target(self.task, kind, score, 0).measured_score(rows) for kind in ("all", UNSEEN))
            return seen - unseen
        (profile,) = (ReadProfile(**one) for one in content["read_profiles"] if one["part"] == self.questions)
        cost: float = getattr(profile, self.lost)
        return cost


UNSEEN = "all, in phrasings never seen"
SEEN = "seen phrasings"
LOST: Mapping[str, str] = {
    SEEN: "the phrasings of training",
    "worst_layer": "the layer that costs most",
    "slots": SLOTS,
    "upper_half": UPPER_HALF,
}
SCORES_OF: Mapping[str, str] = {"arithmetic": "em", "instructions": "directives_obeyed"}  # of other tasks: F1
COST_TARGETS = (
    *(CostTarget(name, UNSEEN, SEEN, 15) for name in TASKS),
    *(
        CostTarget(task, part_name(task, hops), lost, bound, at_least)
        for task, hops in PARTS
        for lost, bound, at_least in (("worst_layer", 25, False), ("slots", 5, False), ("upper_half", 10, True))
    ),
)
