"""Says what a comparison comes to: one verdict for each opponent, from the means of tasks at each level.

The area over all levels has its own row and its own test. It begins at the full cache, where all policies are equal, so
that it may tell nothing where one level tells a loss. Hence no verdict is taken from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from leaderboards.aggregate.duels import UNDECIDED, MeanDifference, Verdict
from leaderboards.aggregate.pooled import Pooled
from policies.declaration.levels import Level

OverLevels = Verdict | Literal["mixed"]


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

    def levels_with(self, verdict: Verdict) -> list[Pooled]:
        return [row for row in self.rows if row.verdict == verdict]


def outcomes_of(rows: Sequence[Pooled], areas: Sequence[Pooled]) -> list[Outcome]:
    """Joins the rows of each level and the areas by opponent, in the order of the rows."""
    by_other = {area.other: area for area in areas if len(area.levels) > 1}
    outcomes = []
    for other in dict.fromkeys(row.other for row in rows):
        of_other = tuple(row for row in rows if row.other == other)
        outcomes.append(Outcome(of_other, by_other.get(other)))
    return outcomes
