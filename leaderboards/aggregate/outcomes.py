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
from policies.declaration.names import RANDOM, TO_BEAT

OverLevels = Verdict | Literal["mixed"]
LINKS: dict[Verdict, str] = {
    "worse": "worse than",
    "better": "better than",
    UNDECIDED: "not distinguished from",
}
TOO_FEW = "too few contexts to judge against"


@dataclass(frozen=True)
class OpponentVerdict:
    """What a policy comes to against one opponent, over all levels that both have.

    The verdict is "worse" where the policy is worse at some level and better at none, "better" where it is better at
    some and worse at none, "mixed" where it is both, and else "not distinguished". All tests of the levels are
    corrected together, so that a false verdict of any kind is made in 5 of 100 comparisons at most.
    """

    rows: tuple[
        Pooled, ...
    ]  # the mean of tasks at each level, ascending in what is done to the cache
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
            parts.append(
                f"{self.area.verdict} by the area over all of them ({self.area.difference.text})"
            )
        return ", ".join(parts)

    @property
    def sentence(self) -> str:
        words = f"{TOO_FEW} {self.other}" if self.too_few else self.clause
        return f"{subject_of([self])}: {words}"


def areas_of(outcomes: Sequence[OpponentVerdict]) -> list[Pooled]:
    return [one.area for one in outcomes if one.area]


def subject_of(outcomes: Sequence[OpponentVerdict]) -> str:
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


def clauses_of(outcomes: Sequence[OpponentVerdict]) -> list[str]:
    """Writes the verdicts, a clause for each opponent. Opponents of whom the same is said share one."""
    others_by_words: dict[tuple[str, str], list[str]] = {}
    for one in outcomes:
        words = f"{TOO_FEW} {one.other}" if one.too_few else one.clause
        before, _, after = words.partition(f" {one.other}")
        others_by_words.setdefault((before, after), []).append(one.other)
    return [
        f"{before} {', '.join(others)}{after}"
        for (before, after), others in others_by_words.items()
    ]


def does_not_beat_random(outcomes: Sequence[OpponentVerdict]) -> bool:
    return any(
        one.other == RANDOM and one.verdict != "better" and not one.too_few for one in outcomes
    )


def held_sentence(outcomes: Sequence[OpponentVerdict]) -> str:
    """Says how many bytes each policy holds at each of its levels, such as "KV bytes held, in percent of the full
    cache: snapkv 51 at ratio 0.5; int4 31". Policies that hold the same share a clause. It is empty where no bytes were
    counted."""
    by_policy: dict[str, dict[Level, float]] = {}
    for row in (row for one in outcomes for row in one.rows):
        for name, level, held in zip(
            (row.policy, row.other), row.run_at, row.bytes_held, strict=True
        ):
            if held is not None:
                by_policy.setdefault(name, {})[level] = held
    names: dict[str, list[str]] = {}
    for name, held_at in by_policy.items():
        by_level = sorted(held_at.items(), key=lambda pair: pair[0].amount)
        words = ", ".join(f"{held:.0f}{_at(level)}" for level, held in by_level)
        names.setdefault(words, []).append(name)
    clauses = "; ".join(f"{', '.join(of_words)} {words}" for words, of_words in names.items())
    return f"KV bytes held, in percent of the full cache: {clauses}" if clauses else ""


def _at(level: Level) -> str:
    return "" if level == UNTREATED else f" at {level.where}"


def conditions(outcomes: Sequence[OpponentVerdict]) -> list[str]:
    """Lists what has to be known to read the rows of the levels, each thing once."""
    rows = [row for one in outcomes for row in one.rows]
    tasks = dict.fromkeys(f"mean of {len(row.tasks)} tasks" for row in rows if len(row.tasks) > 1)
    counts = dict.fromkeys(f"n = {row.n}" for row in rows if not row.too_few)
    left_out = dict.fromkeys(f"left out: {', '.join(row.left_out)}" for row in rows if row.left_out)
    return [*tasks, *counts, *_untold(rows), *_families(rows), *left_out]


def _families(rows: Sequence[Pooled]) -> list[str]:
    """Says over how many tests each p is corrected, where it is over several."""
    tested = [row for row in rows if row.p is not None]
    of_others = max((row.family for row in tested if row.other not in TO_BEAT), default=0)
    of_controls = max((row.family for row in tested if row.other in TO_BEAT), default=0)
    parts = [f"over the {of_others} tests of all levels and opponents"] if of_others > 1 else []
    if of_controls > 1:
        controls = dict.fromkeys(row.other for row in tested if row.other in TO_BEAT)
        parts.append(
            f"{'apart from them ' if parts else ''}over the {of_controls} against {', '.join(controls)}"
        )
    return [f"p corrected by Holm’s method {', and '.join(parts)}"] if parts else []


def _untold(rows: Sequence[Pooled]) -> list[str]:
    """Says which differences the levels without a verdict cannot tell: of those with a test in one line, and of others
    the reason with the places."""
    smallest, with_more, contexts = [], [], 0
    untested: dict[str, dict[str, list[Pooled]]] = {}  # by reason and opponent
    for row in rows:
        if row.verdict != UNDECIDED:
            continue
        if row.smallest is None or row.test is None:
            untested.setdefault(row.reason, {}).setdefault(row.other, []).append(row)
            continue
        smallest.append(row.smallest)
        contexts = max(contexts, MORE * row.limit)
        with_more.append(row.test.smallest(row.alpha, MORE) or row.smallest)
    lines = []
    for reason, by_other in untested.items():
        where = [
            f"{other}{_places(of_other, with_kind=True)}" for other, of_other in by_other.items()
        ]
        is_everywhere = sum(map(len, by_other.values())) == len(rows)
        lines.append(reason if is_everywhere else f"against {', '.join(where)}: {reason}")
    if smallest:
        here, there = (f"±{digits_of(max(numbers))}" for numbers in (smallest, with_more))
        lines.insert(
            0,
            f"true differences below {here} may stay unseen; {contexts} contexts of a task would show {there}",
        )
    return lines


def outcomes_of(rows: Sequence[Pooled], areas: Sequence[Pooled]) -> list[OpponentVerdict]:
    """Joins the rows of each level and the areas by opponent, in the order of the rows."""
    by_other = {area.other: area for area in areas if len(area.levels) > 1}
    outcomes = []
    for other in dict.fromkeys(row.other for row in rows):
        of_other = tuple(row for row in rows if row.other == other)
        outcomes.append(OpponentVerdict(of_other, by_other.get(other)))
    return outcomes
