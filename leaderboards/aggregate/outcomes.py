"""Says what a comparison comes to: one verdict for each opponent, from the means of tasks at each
level.

The area over all levels has its own row and its own test. It begins at the full cache, where all
policies are equal, so that it may tell nothing where one level tells a loss. Hence no verdict is
taken from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from leaderboards.aggregate.duels import UNDECIDED, Verdict
from leaderboards.aggregate.pooled import MORE, Pooled, points_text
from leaderboards.statistics.paired_difference import MeanDifference
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
    """Says how a policy stands against one opponent, over all levels that both have.

    The verdict is "worse" where the policy is worse at some level and better at none, "better"
    where it is better at some and worse at none, "mixed" where it is both, and else "not
    distinguished". All tests of the levels are corrected together, so that a false verdict of any
    kind is made in 5 of 100 comparisons at most."""

    # The mean of tasks at each level, ascending in what is done to the cache.
    rows: tuple[Pooled, ...]
    area: Pooled | None = None  # over all levels; None of a single one, which is no curve

    @property
    def policy(self) -> str:
        """Names the policy that is compared."""
        return self.rows[0].policy

    @property
    def other(self) -> str:
        """Names its opponent."""
        return self.rows[0].other

    @property
    def verdict(self) -> OverLevels:
        """Joins the verdicts of all levels into one."""
        verdicts = {row.verdict for row in self.rows} - {UNDECIDED}
        if not verdicts:
            return UNDECIDED
        if len(verdicts) > 1:
            return "mixed"
        return verdicts.pop()

    @property
    def deciding(self) -> Pooled:
        """Returns the row that stands for the verdict: of the levels that have it, the one with the
        largest difference. Of a mixed one it is the largest loss, and of one that tells nothing the
        largest difference."""
        wanted = self.verdict
        if wanted == "mixed":
            wanted = "worse"
        return _largest([row for row in self.rows if row.verdict == wanted])

    @property
    def level(self) -> Level:
        """Returns the level of the deciding difference."""
        return self.deciding.level

    @property
    def difference(self) -> MeanDifference:
        """Returns the deciding difference, in points."""
        return self.deciding.difference

    @property
    def too_few(self) -> bool:
        """Tells whether each level has too few contexts for any test."""
        return all(row.too_few for row in self.rows)

    @property
    def clause(self) -> str:
        """Writes the verdicts of all levels, such as "worse than tova at ratio 0.7 (−17 [−31, −3]),
        not distinguished at 0.3, 0.5"; and that of the area where it is another."""
        parts: list[str] = []
        for verdict, link in LINKS.items():
            rows = [row for row in self.rows if row.verdict == verdict]
            if not rows:
                continue
            is_first = not parts
            words = f"{link} {self.other}" if is_first else verdict
            places = _places(rows, with_kind=is_first)
            parts.append(f"{words}{places}{_largest_difference(rows)}")
        # The area is named only where it says something that the levels do not.
        if self.area and self.area.verdict not in (UNDECIDED, self.verdict):
            difference = self.area.difference.text
            parts.append(f"{self.area.verdict} by the area over all of them ({difference})")
        return ", ".join(parts)

    @property
    def words(self) -> str:
        """Writes the verdicts of all levels, or that there are too few contexts for any."""
        if self.too_few:
            return f"{TOO_FEW} {self.other}"
        return self.clause

    @property
    def sentence(self) -> str:
        """Writes what is measured, and the verdicts of all levels."""
        return f"{write_subject([self])}: {self.words}"


def list_areas(outcomes: Sequence[OpponentVerdict]) -> list[Pooled]:
    """Lists the areas of some outcomes, without those of a single level."""
    return [outcome.area for outcome in outcomes if outcome.area]


def write_subject(outcomes: Sequence[OpponentVerdict]) -> str:
    """Writes what some outcomes are measured by, and on which tasks."""
    row = outcomes[0].rows[0]
    return f"{row.title}, on {', '.join(row.tasks)}"


def _places(rows: Sequence[Pooled], with_kind: bool) -> str:
    level = rows[0].level
    if level == UNTREATED:
        return ""
    levels = ", ".join(str(row.level) for row in rows)
    if with_kind:
        return f" at {level.kind} {levels}"
    return f" at {levels}"


def _largest(rows: Sequence[Pooled]) -> Pooled:
    return max(rows, key=lambda row: abs(row.difference.mean))


def _largest_difference(rows: Sequence[Pooled]) -> str:
    """Writes the largest difference of some levels with the same verdict; nothing of what is not
    distinguished."""
    if rows[0].verdict == UNDECIDED:
        return ""
    largest = _largest(rows)
    if len(rows) == 1:
        return f" ({largest.difference.text})"
    return f" ({largest.difference.text} at {largest.level})"


def write_clauses(outcomes: Sequence[OpponentVerdict]) -> list[str]:
    """Writes the verdicts, a clause for each opponent. Opponents of whom the same is said share
    one."""
    others_by_words: dict[tuple[str, str], list[str]] = {}
    for outcome in outcomes:
        # Without the name of the opponent, so that those of whom the same is said fall together.
        before, _, after = outcome.words.partition(f" {outcome.other}")
        others_by_words.setdefault((before, after), []).append(outcome.other)
    clauses = []
    for (before, after), others in others_by_words.items():
        clauses.append(f"{before} {', '.join(others)}{after}")
    return clauses


def does_not_beat_random(outcomes: Sequence[OpponentVerdict]) -> bool:
    """Tells whether enough contexts compare a policy with random eviction, and it is not better."""
    against_random = [outcome for outcome in outcomes if outcome.other == RANDOM]
    return any(outcome.verdict != "better" and not outcome.too_few for outcome in against_random)


def held_sentence(outcomes: Sequence[OpponentVerdict]) -> str:
    """Says how many bytes each policy holds at each of its levels, such as "KV bytes held, in
    percent of the full cache: snapkv 51 at ratio 0.5; int4 31". Policies that hold the same share a
    clause. It is empty where no bytes were counted."""
    names: dict[str, list[str]] = {}
    for name, held_at in _held_by_policy(outcomes).items():
        parts = []
        for level in sorted(held_at, key=lambda level: level.amount):
            where = "" if level == UNTREATED else f" at {level.where}"
            parts.append(f"{held_at[level]:.0f}{where}")
        names.setdefault(", ".join(parts), []).append(name)
    if not names:
        return ""
    clauses = [f"{', '.join(alike)} {words}" for words, alike in names.items()]
    return f"KV bytes held, in percent of the full cache: {'; '.join(clauses)}"


def _held_by_policy(outcomes: Sequence[OpponentVerdict]) -> dict[str, dict[Level, float]]:
    """Reads the bytes that each policy holds at each of its levels, in percent of the full
    cache."""
    by_policy: dict[str, dict[Level, float]] = {}
    for row in _rows(outcomes):
        sides = zip((row.policy, row.other), row.run_at, row.bytes_held, strict=True)
        for name, level, held in sides:
            if held is not None:
                by_policy.setdefault(name, {})[level] = held
    return by_policy


def _rows(outcomes: Sequence[OpponentVerdict]) -> list[Pooled]:
    rows: list[Pooled] = []
    for outcome in outcomes:
        rows += outcome.rows
    return rows


def conditions(outcomes: Sequence[OpponentVerdict]) -> list[str]:
    """Lists what has to be known to read the rows of the levels, each thing once."""
    rows = _rows(outcomes)
    tasks, counts, left_out = [], [], []
    for row in rows:
        if len(row.tasks) > 1:
            tasks.append(f"mean of {len(row.tasks)} tasks")
        if not row.too_few:
            counts.append(f"n = {row.n}")
        if row.left_out:
            left_out.append(f"left out: {', '.join(row.left_out)}")
    return [
        *dict.fromkeys(tasks),
        *dict.fromkeys(counts),
        *_untold(rows),
        *_families(rows),
        *dict.fromkeys(left_out),
    ]


def _families(rows: Sequence[Pooled]) -> list[str]:
    """Says over how many tests each p is corrected, where it is over several."""
    # The two families are corrected apart: see :func:`~leaderboards.aggregate.pooled._corrected`.
    of_others = of_controls = 0
    controls: dict[str, None] = {}
    for row in rows:
        if row.p is None:
            continue
        if row.other in TO_BEAT:
            of_controls = max(of_controls, row.family)
            controls[row.other] = None
        else:
            of_others = max(of_others, row.family)
    parts = []
    if of_others > 1:
        parts.append(f"over the {of_others} tests of all levels and opponents")
    if of_controls > 1:
        apart = "apart from them " if parts else ""
        parts.append(f"{apart}over the {of_controls} against {', '.join(controls)}")
    if not parts:
        return []
    return [f"p corrected by Holm’s method {', and '.join(parts)}"]


def _untold(rows: Sequence[Pooled]) -> list[str]:
    """Says which differences the levels without a verdict cannot tell: of those with a test in one
    line, and of others the reason with the places."""
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
    if smallest:
        unseen = f"true differences below ±{points_text(max(smallest))} may stay unseen"
        shown = f"±{points_text(max(with_more))}"
        lines.append(f"{unseen}; {contexts} contexts of a task would show {shown}")
    for reason, by_other in untested.items():
        where = []
        count = 0
        for other, of_other in by_other.items():
            where.append(f"{other}{_places(of_other, with_kind=True)}")
            count += len(of_other)
        is_everywhere = count == len(rows)
        lines.append(reason if is_everywhere else f"against {', '.join(where)}: {reason}")
    return lines


def join_outcomes(rows: Sequence[Pooled], areas: Sequence[Pooled]) -> list[OpponentVerdict]:
    """Joins the rows of each level and the areas by opponent, in the order of the rows."""
    area_by_other = {}
    for area in areas:
        # The area over one level is that level again.
        if len(area.levels) > 1:
            area_by_other[area.other] = area
    rows_by_other: dict[str, list[Pooled]] = {}
    for row in rows:
        rows_by_other.setdefault(row.other, []).append(row)
    outcomes = []
    for other, of_other in rows_by_other.items():
        outcomes.append(OpponentVerdict(tuple(of_other), area_by_other.get(other)))
    return outcomes
