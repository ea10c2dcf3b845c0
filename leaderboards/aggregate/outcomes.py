"""Says what a comparison comes to: one verdict for each opponent, from the means of tasks at each level.

The area over all levels has its own row and its own test. It begins at the full cache, where all policies are equal, so
that it may tell nothing where one level tells a loss. Hence no verdict is taken from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from leaderboards.aggregate.duels import UNDECIDED, MeanDifference, Verdict
from leaderboards.aggregate.pooled import MORE, Pooled, digits_of
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import RANDOM

OverLevels = Verdict | Literal["mixed"]
LINKS: dict[Verdict, str] = {"worse": "worse than", "better": "better than", UNDECIDED: "not distinguished from"}
TOO_FEW = "too few contexts to judge against"


@dataclass(frozen=True)
class Outcome:
    """What a policy comes to against one opponent, over all levels that both have.

    The verdict is "worse" where the policy is worse at some level and better at none, "better" where it is better at
    some and worse at none, "mixed" where it is both, and else "not distinguished". All tests of the levels are
    corrected together, so that a false verdict of any kind is made in 5 of 100 comparisons at most.
    """

    rows: tuple[Pooled, ...]  # the mean of tasks at each level, ascending in what is done to the cache
    area: Pooled | None = None  # over all levels; None of a single one, which is no curve

    @property
    def policy(self) -> str:
        return self.rows[0].policy

    @property
    def other(self) -> str:
        return self.rows[0].other

    @property
    def verdict(self) -> OverLevels:
        verdicts = {row.verdict for row in self.rows} - {UNDECIDED}
        if len(verdicts) > 1:
            return "mixed"
        return verdicts.pop() if verdicts else UNDECIDED

    @property
    def deciding(self) -> Pooled:
        """Returns the row that stands for the verdict: of the levels that have it, the one with the largest difference.
        Of a mixed one it is the largest loss, and of one that tells nothing the largest difference."""
        wanted = "worse" if self.verdict == "mixed" else self.verdict
        rows = [row for row in self.rows if row.verdict == wanted]
        return max(rows, key=lambda row: abs(row.difference.mean))

    @property
    def level(self) -> Level:  # at which the deciding difference is
        return self.deciding.level

    @property
    def difference(self) -> MeanDifference:
        return self.deciding.difference

    @property
    def too_few(self) -> bool:  # contexts for any test
        return all(row.too_few for row in self.rows)

    @property
    def clause(self) -> str:
        """Writes the verdicts of all levels, such as "worse than tova at ratio 0.7 (−17 [−31, −3]), not distinguished
        at 0.3, 0.5"; and that of the area where it is another."""
        parts: list[str] = []
        for verdict, link in LINKS.items():
            rows = [row for row in self.rows if row.verdict == verdict]
            if rows:
                words = verdict if parts else f"{link} {self.other}"
                parts.append(f"{words}{_places(rows, with_kind=not parts)}{_largest(rows)}")
        if self.area and self.area.verdict not in (UNDECIDED, self.verdict):
            parts.append(f"{self.area.verdict} by the area over all of them ({self.area.difference.text})")
        return ", ".join(parts)

    @property
    def sentence(self) -> str:
        words = f"{TOO_FEW} {self.other}" if self.too_few else self.clause
        return f"{subject_of([self])}: {words}"


def areas_of(outcomes: Sequence[Outcome]) -> list[Pooled]:
    return [one.area for one in outcomes if one.area]


def subject_of(outcomes: Sequence[Outcome]) -> str:
    """Writes what some outcomes are measured by, and on which tasks."""
    row = outcomes[0].rows[0]
    return f"{row.title}, on {', '.join(row.tasks)}"


def _places(rows: Sequence[Pooled], with_kind: bool) -> str:
    if rows[0].level == UNTREATED:
        return ""
    kind = f"{rows[0].level.kind} " if with_kind else ""
    return f" at {kind}{', '.join(str(row.level) for row in rows)}"


def _largest(rows: Sequence[Pooled]) -> str:
    """Writes the largest difference of some levels with the same verdict; nothing of what is not distinguished."""
    if rows[0].verdict == UNDECIDED:
        return ""
    largest = max(rows, key=lambda row: abs(row.difference.mean))
    return f" ({largest.difference.text}{f' at {largest.level}' if len(rows) > 1 else ''})"


def sentence_of(outcomes: Sequence[Outcome]) -> str:
    """Writes the verdicts against all opponents as one sentence. Opponents of whom the same is said share a clause."""
    clauses: dict[str, list[str]] = {}
    for one in outcomes:
        words = f"{TOO_FEW} {one.other}" if one.too_few else one.clause
        before, name, after = words.partition(f" {one.other}")
        clauses.setdefault(f"{before}{name and ' {}'}{after}", []).append(one.other)
    written = [words.replace("{}", ", ".join(others), 1) for words, others in clauses.items()]
    return f"{subject_of(outcomes)}: {'; '.join(written)}"


def does_not_beat_random(outcomes: Sequence[Outcome]) -> bool:
    return any(one.other == RANDOM and one.verdict != "better" and not one.too_few for one in outcomes)


def held_sentence(outcomes: Sequence[Outcome]) -> str:
    """Says how many bytes each policy holds at each of its levels, such as "KV bytes held, of 100 of the full cache:
    snapkv 51 at ratio 0.5; int4 31"; policies that hold the same share a clause. Empty where no bytes were counted."""
    by_policy: dict[str, dict[Level, float]] = {}
    for row in (row for one in outcomes for row in one.rows):
        for name, level, held in zip((row.policy, row.other), row.run_at, row.bytes_held, strict=True):
            if held is not None:
                by_policy.setdefault(name, {})[level] = held
    names: dict[str, list[str]] = {}
    for name, held_at in by_policy.items():
        by_level = sorted(held_at.items(), key=lambda pair: pair[0].amount)
        words = ", ".join(f"{held:.0f}{_at(level)}" for level, held in by_level)
        names.setdefault(words, []).append(name)
    clauses = "; ".join(f"{', '.join(of_words)} {words}" for words, of_words in names.items())
    return f"KV bytes held, of 100 of the full cache: {clauses}" if clauses else ""


def _at(level: Level) -> str:
    return "" if level == UNTREATED else f" at {level.where}"


def conditions(outcomes: Sequence[Outcome]) -> list[str]:
    """Lists what has to be known to read the rows of the levels, each thing once."""
    rows = [row for one in outcomes for row in one.rows]
    tasks = dict.fromkeys(f"mean of {len(row.tasks)} tasks" for row in rows if len(row.tasks) > 1)
    counts = dict.fromkeys(f"n = {row.n}" for row in rows if not row.too_few)
    families = {row.family for row in rows if row.p is not None}
    corrected = (
        "p corrected by Holm’s method over {} tests, which are those of all levels and opponents; controls apart"
    )
    left_out = dict.fromkeys(f"left out: {', '.join(row.left_out)}" for row in rows if row.left_out)
    many = [corrected.format(" or ".join(map(str, sorted(families))))] if max(families, default=1) > 1 else []
    return [*tasks, *counts, *_untold(rows), *many, *left_out]


def _untold(rows: Sequence[Pooled]) -> list[str]:
    """Says which differences the levels without a verdict cannot tell: of those with a test in one line, and of others
    the reason with the places."""
    smallest, with_more, contexts = [], [], 0
    places: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict != UNDECIDED:
            continue
        if row.smallest is None or row.test is None:
            places.setdefault(row.reason, []).append(f"{row.other}{_places([row], with_kind=True)}")
            continue
        smallest.append(row.smallest)
        contexts = max(contexts, MORE * row.limit)
        with_more.append(row.test.smallest(row.alpha, MORE) or row.smallest)
    lines = [
        reason if len(where) == len(rows) else f"against {', '.join(where)}: {reason}"
        for reason, where in places.items()
    ]
    if smallest:
        here, there = (f"±{digits_of(max(numbers))}" for numbers in (smallest, with_more))
        lines.insert(
            0, f"true differences below {here} may stay unseen; {contexts} contexts of a task would show {there}"
        )
    return lines


def outcomes_of(rows: Sequence[Pooled], areas: Sequence[Pooled]) -> list[Outcome]:
    """Joins the rows of each level and the areas by opponent, in the order of the rows."""
    by_other = {area.other: area for area in areas if len(area.levels) > 1}
    outcomes = []
    for other in dict.fromkeys(row.other for row in rows):
        of_other = tuple(row for row in rows if row.other == other)
        outcomes.append(Outcome(of_other, by_other.get(other)))
    return outcomes
