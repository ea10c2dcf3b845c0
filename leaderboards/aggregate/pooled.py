"""Compares two policies on the mean of all tasks that both have: at each level, and over all levels together by the
area under what leads each task.

A comparison begins with the means at each level. The area is the verdict of a board against a control, too, so that
one pair has one area.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pandas import DataFrame

from leaderboards.aggregate.duels import (
    COMPARED,
    DEFENDED,
    POINTS_OF_ONE,
    UNDECIDED,
    AnswerTable,
    MeanDifference,
    Verdict,
    answer_tables,
)
from leaderboards.statistics.bootstrap import DIGITS, FLAT, FloatArray
from leaderboards.statistics.intervals import Loss, context_values, interval_over_tasks
from leaderboards.statistics.significance import ALPHA, StudentTest, fewest_clusters, holm
from leaderboards.statistics.text import p_text
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL, TO_BEAT

# What judges a kind of task, of which the first tells the kind, and its short title.
LEADS = {
    ("directives_obeyed", DEFENDED): "obeyed, not leaked",
    ("right",): "right",
    ("next_token_accuracy",): "next tokens",
}
NOT_SHARED = "no level of both is complete"
OF_AREAS = (
    "An area is the mean height of a curve over the realised ratio, up to where the shorter curve ends, as on a board. "
    "Each curve begins at the full cache, where all policies are equal, and goes in a straight line to the first level "
    "that was run. Hence a fall at one level counts little in an area."
)
MORE = 4  # times as many contexts are named beside what cannot be seen: they see half of it


def mean_heights(places: FloatArray, heights: FloatArray, end: FloatArray) -> FloatArray:
    """Returns the area under each curve by the trapezoid rule, divided by its span, from its first place to ``end``,
    shape (curves,). ``places``, ``heights``: shape (curves, levels), in any order; of a curve without a span the mean
    height."""
    if (np.diff(places, axis=1) < 0).any():
        order = np.argsort(places, axis=1, kind="stable")
        places, heights = (np.take_along_axis(array, order, axis=1) for array in (places, heights))
    widths, rises = np.diff(places, axis=1), np.diff(heights, axis=1)
    taken = np.clip(end[:, None] - places[:, :-1], 0, widths)  # of the width of each piece
    shares = np.divide(taken, widths, out=np.zeros_like(widths), where=widths > 0)
    total = (taken * (heights[:, :-1] + shares * rises / 2)).sum(axis=1)
    span = end - places[:, 0]
    means: FloatArray = np.divide(total, span, out=heights.mean(axis=1), where=span > FLAT)
    return means


@dataclass(frozen=True)
class Pooled:
    """The difference of one policy from another in the mean of all tasks that both have: at one level, or of the areas
    over several."""

    policy: str
    other: str
    title: str  # of what leads the tasks
    levels: tuple[Level, ...]  # ascending in what is done to the cache
    difference: MeanDifference  # in points; its interval is that of the corrected test
    sides: tuple[float, float]  # the areas of either, in percent
    test: (
        StudentTest | None
    )  # None where a task has too few contexts, or where the two differ in too few
    alpha: float  # the level at which Holm's method tests it
    p: float | None  # corrected over the family; None without a test
    family: int  # tests that are corrected together
    tasks: tuple[str, ...]
    contexts: int  # of all tasks together
    fewest: int  # contexts of the task that has fewest
    limit: int  # contexts of the task that has most
    differing: int  # contexts in which the two differ at all
    span: str  # the asked levels, and what is taken over them
    end: float  # the place on the axis of the curves at which both areas end; 0 of the mean at one level
    run_at: tuple[
        Level, Level
    ]  # of either at one level, of which one may be the only one that it has; of an area the last
    left_out: tuple[str, ...] = ()  # tasks, each with the reason
    # The bytes that either holds at its last level, in percent of the full cache; a board does not count them.
    bytes_held: tuple[float | None, float | None] = field(default=(None, None), compare=False)
    # What the first has more and less of an area, context by context.
    by_task: tuple[Loss, ...] = field(default=(), compare=False)

    def held(self, alpha: float) -> tuple[float, float]:
        """Returns the interval of a paired loss, in points, which has width also where no context differs."""
        ends = [one.interval(alpha) for one in self.by_task]
        means = np.array([(one.lost - one.gained).mean() for one in self.by_task])
        low, high = interval_over_tasks(means, *np.array(ends).T)
        return POINTS_OF_ONE * float(low), POINTS_OF_ONE * float(high)

    @property
    def level(self) -> Level:  # of the mean at one level; of an area the last
        return self.levels[-1]

    @property
    def verdict(self) -> Verdict:
        if self.p is None or self.p >= ALPHA:
            return UNDECIDED
        return "better" if self.difference.mean > 0 else "worse"

    @property
    def smallest(
        self,
    ) -> float | None:  # true difference that is told from 0 four times in five, in points
        return self.test.smallest(self.alpha) if self.test else None

    @property
    def reason(self) -> str:
        needed = fewest_clusters()
        if self.verdict != UNDECIDED:
            return ""
        if self.too_few:
            return f"n = {self.n} is too few to tell any difference: {needed} of a task are needed"
        if not self.differing:
            return f"the same in all of n = {self.n}"
        if self.test is None:
            return f"they differ in {self.differing} of n = {self.n}, {needed} are needed"
        smallest, with_more = self.smallest, self.test.smallest(self.alpha, MORE)
        more = (
            ""
            if with_more is None
            else f"; {MORE * self.limit} contexts would show ±{digits_of(with_more)}"
        )
        if smallest is None:
            at_once = f" at Holm’s level of {self.alpha:.2g}" if self.family > 1 else ""
            return f"no difference can be seen{at_once} with n = {self.n}{more}"
        return f"differences below ±{digits_of(smallest)} cannot be seen with n = {self.n}{more}"

    @property
    def too_few(self) -> bool:  # contexts of some task for any test
        return self.fewest < fewest_clusters()

    @property
    def n(self) -> str:
        """Writes the number of contexts, and of how many tasks they are: ``--limit`` counts those of one task."""
        count = len(self.tasks)
        each = f" x {self.limit}" if count * self.limit == self.contexts else ""
        return str(self.contexts) if count == 1 else f"{self.contexts} ({count} tasks{each})"

    @property
    def headline(self) -> str:
        """Writes the verdict and what it rests on, such as "right: better, 62 against 39: +23 [+13, +32], p <0.001"."""
        p = "" if self.p is None else f", p {p_text(self.p)}"
        one, other = self.sides
        return f"{self.title}: {self.verdict}, {one:.0f} against {other:.0f}: {self.difference.text}{p}"

    @property
    def clauses(self) -> tuple[str, ...]:
        """Lists what has to be known to read the headline."""
        tested = self.p is not None and self.family > 1
        clauses = (
            f"{self.span}{f', mean of {len(self.tasks)} tasks' if len(self.tasks) > 1 else ''}",
            self.reason or f"n = {self.n}",
            f"p corrected by Holm’s method over {self.family} tests, controls apart"
            if tested
            else "",
            f"left out: {', '.join(self.left_out)}" if self.left_out else "",
        )
        return tuple(filter(None, clauses))


def digits_of(number: float) -> str:
    return f"{number:.0f}" if number >= 9.95 else f"{number:.1f}"


def shared_clauses(lines: Sequence[Pooled]) -> tuple[list[str], list[str]]:
    """Returns the clauses that most of some lines have, and of each line the others, joined."""
    counts = Counter(clause for one in lines for clause in one.clauses)
    shared = [clause for clause, count in counts.items() if count > len(lines) / 2]
    return shared, [
        "; ".join(clause for clause in one.clauses if clause not in shared) for one in lines
    ]


def pool(
    records: DataFrame,
    policy: str,
    others: Sequence[str],
    unmastered: Mapping[str, str] | None = None,
) -> list[Pooled]:
    """Compares the areas of the policy and of each of the others. None of no shared level. ``unmastered``: why the
    model cannot do a task, which is left out."""
    return pool_tables(_tables_of(records, (policy, *others)), policy, others, unmastered or {})


def pool_tables(
    tables: Sequence[AnswerTable], policy: str, others: Sequence[str], unmastered: Mapping[str, str]
) -> list[Pooled]:
    """Compares the areas of the policy and of each of the others, over the tasks of some tables. Holm's method corrects
    the tests over the others, as in :func:`_corrected`."""
    lines = []
    for other in others:
        shared = _shared(tables, (policy, other), unmastered)
        line = _area(shared) if shared else None
        lines += [line] if line else []
    return _corrected(lines)


def pool_levels(
    records: DataFrame,
    policy: str,
    others: Sequence[str],
    unmastered: Mapping[str, str] | None = None,
) -> list[Pooled]:
    """Compares the mean of tasks of the policy with that of each of the others at each level that both have. Holm's
    method corrects the tests over all levels and opponents together, as in :func:`_corrected`."""
    tables = _tables_of(records, (policy, *others))
    lines = []
    for other in others:
        shared = _shared(tables, (policy, other), unmastered or {})
        for place in range(len(shared.levels) if shared else 0):
            line = _line(shared.at(place), np.zeros((2, 1)), anchored=False) if shared else None
            lines += [line] if line else []
    return [
        line if line.test or line.too_few else _untested(line, len(lines))
        for line in _corrected(lines)
    ]


def _untested(line: Pooled, levels: int) -> Pooled:
    """Gives a line whose contexts hardly differ the interval of a paired loss, as wide as if all ``levels`` of the
    comparison were tested. It holds 0: nothing was told."""
    low, high = line.held(ALPHA / levels)
    return replace(
        line, difference=MeanDifference(line.difference.mean, min(low, 0.0), max(high, 0.0))
    )


def _tables_of(records: DataFrame, policies: Sequence[str]) -> list[AnswerTable]:
    of_policies = records[records["policy"].isin((*policies, FULL))]
    return answer_tables(of_policies, comparing=True) if len(of_policies) else []


def _corrected(lines: list[Pooled]) -> list[Pooled]:
    """Corrects the tests of one policy by Holm's method: those against both controls, and apart from them those against
    all others, on which a verdict against a control does not depend."""
    lines = list(lines)
    for of_control in (True, False):
        tests = {
            place: line.test
            for place, line in enumerate(lines)
            if line.test and (line.other in TO_BEAT) is of_control
        }
        for place, one in holm({place: test.p for place, test in tests.items()}).items():
            tested, held = tests[place].interval(one.alpha), lines[place].held(one.alpha)
            difference = MeanDifference.widened(tests[place].mean, tested, held)
            corrected = replace(
                lines[place], difference=difference, alpha=one.alpha, p=one.p, family=len(tests)
            )
            lines[place] = corrected
    return lines


def _leads(tables: Sequence[AnswerTable]) -> tuple[str, ...]:
    """Returns the measures that judge a task, as far as its answers have them."""
    known = {name for table in tables for name in table.known}
    return next(
        (tuple(one for one in lead if one in known) for lead in LEADS if lead[0] in known), ()
    )


@dataclass(frozen=True)
class _Shared:
    """Holds the tables of the tasks and levels at which two policies can be compared."""

    pair: tuple[str, str]
    levels: tuple[Level, ...]  # at which both have every task that counts
    tables: Mapping[str, Sequence[AnswerTable]]  # by task, one for each level
    leads: Mapping[str, Sequence[str]]  # by task
    every_task: tuple[str, ...]  # with those that are left out
    unmastered: Mapping[str, str]

    def at(self, place: int) -> "_Shared":
        """Returns the same at one level alone."""
        tables = {task: [of_task[place]] for task, of_task in self.tables.items()}
        return replace(self, levels=(self.levels[place],), tables=tables)


def _shared(
    tables: Sequence[AnswerTable], pair: tuple[str, str], unmastered: Mapping[str, str]
) -> _Shared | None:
    by_task: dict[str, dict[Level, AnswerTable]] = {}
    for table in tables:
        by_task.setdefault(table.task, {})[table.level] = table
    leads = {task: _leads(list(of_task.values())) for task, of_task in by_task.items()}
    shared = {
        task: {
            level: table for level, table in of_task.items() if table.is_shared(pair, leads[task])
        }
        for task, of_task in by_task.items()
    }
    shared = {
        task: of_task for task, of_task in shared.items() if of_task and task not in unmastered
    }
    levels = (
        sorted(set.intersection(*map(set, shared.values())), key=lambda level: level.amount)
        if shared
        else []
    )
    levels = [level for level in levels if level.kind == levels[-1].kind]
    if not levels:
        return None
    by_level = {task: [of_task[level] for level in levels] for task, of_task in shared.items()}
    return _Shared(pair, tuple(levels), by_level, leads, tuple(by_task), unmastered)


def _area(shared: _Shared) -> Pooled | None:
    # A curve begins at the full cache; what has one level alone, as int4, is a point and has no area.
    tables = list(shared.tables.values())
    last = tables[0][-1]
    is_point = any(
        level != last.level and name != FULL
        for name, level in zip(shared.pair, last.levels_of(shared.pair), strict=True)
    )
    if is_point and len(shared.levels) > 1:
        return None
    anchored = shared.levels != (UNTREATED,) and all(
        FULL in of_task[0].policies for of_task in tables
    )
    return _line(shared, _places(tables, shared.pair, anchored), anchored)


def _line(shared: _Shared, places: FloatArray, anchored: bool) -> Pooled | None:
    """Makes one test before it is corrected, over the levels at which both have every task that counts."""
    end = float(places.max(axis=1).min())
    differences: dict[str, _TaskDifference] = {}
    for task, tables in shared.tables.items():
        part = _task_difference(tables, shared.pair, shared.leads[task], places, end, anchored)
        if part:
            differences[task] = part
    if not differences:
        return None
    parts = list(differences.values())
    contexts = [part.contexts for part in parts]
    differing = sum(int(np.count_nonzero(part.values)) for part in parts)
    enough = min(*contexts, differing, fewest_clusters()) == fewest_clusters()
    one, other = np.mean([part.sides for part in parts], axis=0).tolist()
    reasons = {
        task: reason.partition(": ")[2] or reason for task, reason in shared.unmastered.items()
    }
    titles = {lead[0]: title for lead, title in LEADS.items()}
    first, last = shared.levels[0], shared.levels[-1]
    left_out = [task for task in shared.every_task if task not in differences]
    return Pooled(
        *shared.pair,
        title=" or ".join(dict.fromkeys(titles[shared.leads[task][0]] for task in differences)),
        levels=shared.levels,
        difference=MeanDifference(round(one - other, DIGITS), None, None),
        sides=(one, other),
        test=StudentTest.of_tasks([part.values for part in parts], differing) if enough else None,
        alpha=ALPHA,
        p=None,
        family=0,
        tasks=tuple(differences),
        contexts=sum(contexts),
        fewest=min(contexts),
        limit=max(contexts),
        differing=differing,
        span=f"at {first.where}" if places.shape[1] == 1 else f"area up to {last.where}",
        end=end,
        run_at=next(iter(shared.tables.values()))[-1].levels_of(shared.pair),
        bytes_held=_mean_held(
            [of_task[-1].held_by(shared.pair) for of_task in shared.tables.values()]
        ),
        left_out=tuple(f"{task} ({reasons.get(task, NOT_SHARED)})" for task in left_out),
        by_task=tuple(part.loss for part in parts),
    )


def _mean_held(
    by_task: Sequence[tuple[float | None, float | None]],
) -> tuple[float | None, float | None]:
    """Returns the mean over tasks of what either holds; None where a task has no count of bytes."""
    sides = [
        [percent for percent in of_side if percent is not None]
        for of_side in zip(*by_task, strict=True)
    ]
    one, other = (float(np.mean(side)) if len(side) == len(by_task) else None for side in sides)
    return one, other


def _places(
    tasks: Sequence[Sequence[AnswerTable]], pair: tuple[str, str], anchored: bool
) -> FloatArray:
    """Returns where the levels of both are on the axis of their curves, shape (2, levels): at the mean realised ratio
    over tasks; where no tokens are removed, or one of them removes none, at the level itself."""
    realised = np.mean(
        [[table.realised[table.places(*pair)] for table in levels] for levels in tasks], axis=0
    ).T
    amounts = np.array([[table.level.amount for table in tasks[0]]] * 2)
    removing = tasks[0][-1].level.declared.removes and bool((realised.max(axis=1) > FLAT).all())
    places = realised if removing else amounts
    return np.column_stack([np.zeros(2), places]) if anchored else places


@dataclass(frozen=True)
class _TaskDifference:
    values: FloatArray  # one for each context; their mean is the difference
    sides: tuple[float, float]
    contexts: int  # of the measure that has the fewest

    @property
    def loss(self) -> Loss:
        shares = self.values / POINTS_OF_ONE
        return Loss(np.maximum(shares, 0), np.maximum(-shares, 0))


def _task_difference(
    tables: Sequence[AnswerTable],
    pair: tuple[str, str],
    leads: Sequence[str],
    places: FloatArray,
    end: float,
    anchored: bool,
) -> _TaskDifference | None:
    """Computes the areas of both, context by context: of what leads the task, or of the mean of all that leads it, in
    percent of good. None where no question has a value at each level."""
    draws = np.unique(tables[0].draws, return_inverse=True)[1]
    members = (draws[:, None] == np.arange(draws.max() + 1)).astype(np.float64)
    sums, counts = [], []
    for name in leads:
        levels = [table.of(name, *pair) for table in tables]
        levels = [tables[0].of(name, FULL, FULL), *levels] if anchored else levels
        values = np.stack(
            [100 - level if COMPARED[name].better == "lower" else level for level in levels]
        )
        known = ~np.isnan(values).any(axis=(0, 1))  # the questions that have a value at each level
        if known.any():
            sums.append(values[..., known] @ members[known])
            counts.append(members[known].sum(axis=0))
    if not counts:
        return None
    there = np.any(counts, axis=0)
    by_lead = [
        context_values(of[..., there], count[there]) for of, count in zip(sums, counts, strict=True)
    ]
    heights = np.mean(by_lead, axis=0)  # shape (levels, policies, contexts)
    one, other = (
        mean_heights(
            np.tile(place, (there.sum(), 1)), heights[:, side].T, np.full(there.sum(), end)
        )
        for side, place in enumerate(places)
    )
    fewest = min(int(np.count_nonzero(count)) for count in counts)
    return _TaskDifference(
        np.round(one - other, DIGITS), (float(one.mean()), float(other.mean())), fewest
    )
