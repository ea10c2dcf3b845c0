"""Compares two policies over all cells that both have: the area under a measure, by one test."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from leaderboards.aggregate.comparison.duel import (
    COMPARED,
    LEAKED,
    MORE,
    NEXT_TOKENS,
    OBEYED,
    RIGHT,
    UNDECIDED,
    WRONG,
    AnswerTable,
    Compared,
    Duel,
    MeanDifference,
    Verdict,
    answer_tables,
    unseen,
)
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.statistics.bootstrap import DIGITS, FloatArray
from leaderboards.statistics.significance import ALPHA, StudentTest, correct_p, fewest_clusters, step_down_levels
from leaderboards.statistics.text import p_text
from policies.declaration.levels import Level

WORST = 3  # cells named in a line
AREA = "area over"
OF_AREAS = "An area is the mean height of the curve over the levels that are named."
NOT_SHARED = "no cell of both is complete"
NO_ANSWER = "one of the two answers nothing"


@dataclass(frozen=True)
class JudgedCell:
    """A task and level with the verdict that it has by itself."""

    task: str
    level: Level
    difference: float  # in the unit of the measure
    verdict: Verdict

    @property
    def text(self) -> str:
        return f"{self.task} at {self.level} ({self.difference:+z.0f})"


@dataclass(frozen=True)
class Pooled:
    """The difference of one policy from another over all tasks by one measure."""

    policy: str
    other: str
    measure: Compared
    difference: MeanDifference  # of the areas; its interval is that of the corrected test
    sides: tuple[float, float]  # the areas of either, in the unit of the measure
    test: StudentTest | None  # None where a task has too few contexts, or where the two differ in too few
    alpha: float  # the level at which Holm's method tests it
    p: float | None  # corrected over the family; None without a test
    family: int  # tests of the comparison: at most one for each opponent and measure
    tasks: int
    at: tuple[tuple[str, Level], ...]  # the cells that it pools
    contexts: int  # of all tasks together
    fewest: int  # contexts of the task that has fewest
    limit: int  # contexts of the task that has most
    differing: int  # contexts in which the two differ at all
    answered: tuple[float, float] | None = None  # of a share: in percent of the questions, what either answers
    judged: tuple[JudgedCell, ...] = ()  # the cells that it pools and that have a verdict
    silent: int = 0  # cells of these tasks that are not pooled: in too few contexts both answer
    span: str = ""  # the asked levels, and what it is over them: the area under the curve, or the mean
    left_out: tuple[str, ...] = ()  # tasks, each with the reason

    @property
    def verdict(self) -> Verdict:
        """Says better or worse where p is below 0.05, and so the interval leaves out 0."""
        if self.p is None or self.p >= ALPHA:
            return UNDECIDED
        return "better" if (self.difference.mean < 0) == self.measure.lower_is_better else "worse"

    @property
    def cells(self) -> int:
        return len(self.at)

    @property
    def points(self) -> MeanDifference:
        """Returns the difference in points."""
        return self.difference.times(self.measure.factor)

    @property
    def smallest(self) -> float | None:
        """Returns the smallest true difference that is told from 0 four times in five, in the unit of the measure."""
        return self._smallest_with(1)

    def _smallest_with(self, times: int) -> float | None:
        """Returns the smallest true difference with so many times the contexts."""
        smallest = self.test.smallest(self.alpha, times) if self.test else None
        return None if smallest is None else smallest * self.measure.factor

    @property
    def reason(self) -> str:
        """Says why there is no verdict."""
        if self.verdict != UNDECIDED:
            return ""
        needed = fewest_clusters()
        if self.too_few:
            return f"n = {self.n} is too few to tell any difference: {needed} of a task are needed"
        if not self.differing:
            return f"the same in all of n = {self.n}"
        if self.test is None:
            return f"they differ in {self.differing} of n = {self.n}, {needed} are needed"
        return unseen(self.n, self.smallest, self._smallest_with(MORE), self.limit, self.family)

    @property
    def too_few(self) -> bool:
        """Tells whether some task has too few contexts for any test."""
        return self.fewest < fewest_clusters()

    @property
    def few(self) -> bool:
        """Tells whether some task has fewer contexts than verdicts should be of, but enough for a test."""
        return fewest_clusters() <= self.fewest < FEW_CONTEXTS

    @property
    def n(self) -> str:
        """Writes the number of contexts, and of how many tasks they are: ``--limit`` counts those of one task."""
        if self.tasks == 1:
            return str(self.contexts)
        each = f" x {self.limit}" if self.tasks * self.limit == self.contexts else ""
        return f"{self.contexts} ({self.tasks} tasks{each})"

    @property
    def headline(self) -> str:
        """Writes the verdict and what it rests on, such as "right: better, 62 against 39: +23 [+13, +32], p <0.001"."""
        p = "" if self.p is None else f", p {p_text(self.p)}"
        one, other = self.sides
        return f"{self.measure.title}: {self.verdict}, {one:.0f} against {other:.0f}: {self.points.text()}{p}"

    @property
    def details(self) -> str:
        """Writes what has to be known to read the headline."""
        return "; ".join(self.clauses)

    @property
    def clauses(self) -> tuple[str, ...]:
        """Lists what has to be known to read the headline."""
        tasks = f", mean of {self.tasks} tasks" if self.tasks > 1 else ""
        clauses = (
            f"{self.span}{tasks}{f', {self.cells} cells' if self.cells > 1 else ''}",
            self.reason or f"n = {self.n}",
            f"few contexts: {self.fewest} of a task" if self.few and self.test else "",
            f"p by Holm over {self.family}" if self.p is not None and self.family > 1 else "",
            f"single cells: {self.cells_in_words}" if self.judged else "",
            # Of fewer answers a smaller share may be wrong, and no question gains by it.
            f"{self.policy} answers {self.answered[0]:.0f} % of these questions, {self.other} {self.answered[1]:.0f} %"
            if self.answered
            else "",
            self.silent_cells,
            f"left out: {', '.join(self.left_out)}" if self.left_out else "",
        )
        return tuple(filter(None, clauses))

    @property
    def sentence(self) -> str:
        """Writes the whole result in one line."""
        return f"{self.headline}; {self.details}"

    @property
    def quantity(self) -> str:
        """Names what is compared, such as "right, area over ratio 0.1 to 0.9"."""
        return f"{self.measure.title}, {self.span}"

    @property
    def silent_cells(self) -> str:
        """Says that cells are left out, since too little is answered there."""
        if not self.silent:
            return ""
        cells = "1 more cell is" if self.silent == 1 else f"{self.silent} more cells are"
        return f"{cells} left out, in which both answer in fewer than {fewest_clusters()} contexts"

    @property
    def cells_in_words(self) -> str:
        """Says where single cells are clear, and names the worst: a policy may be better on the whole and clearly worse
        somewhere."""
        better = sum(cell.verdict == "better" for cell in self.judged)
        worse = [cell for cell in self.judged if cell.verdict == "worse"]
        worse.sort(key=lambda cell: -abs(cell.difference))
        names = ", ".join(cell.text for cell in worse[:WORST]) + (" and others" if len(worse) > WORST else "")
        counts = f"better in {better}, worse in {len(worse)} of {len(self.judged)}"
        return f"{counts}{f': {names}' if worse else ''}"


def shared_clauses(lines: Sequence[Pooled]) -> tuple[list[str], list[str]]:
    """Returns the clauses that most of some lines have, and of each line the others, joined."""
    counts = Counter(clause for one in lines for clause in one.clauses)
    shared = [clause for clause, count in counts.items() if count > len(lines) / 2]
    return shared, ["; ".join(clause for clause in one.clauses if clause not in shared) for one in lines]


def note_on_areas(lines: Sequence[Pooled]) -> str:
    """Says what an area is; nothing where none is compared."""
    return OF_AREAS if any(one.span.startswith(AREA) for one in lines) else ""


def pool(
    records: DataFrame, policy: str, others: Sequence[str], unmastered: Mapping[str, str] | None = None
) -> list[Pooled]:
    """Compares the policy with each of the others: by what is right over the tasks that are judged by it, and by
    directives obeyed and leakage under a defence over those that have directives. All p are corrected together by
    Holm's method. None of no records. ``unmastered``: why the model cannot do a task, which is left out."""
    of_policies = records[records["policy"].isin((policy, *others))]
    tables = answer_tables(of_policies) if len(of_policies) else []
    lines = (
        _pool(tables, (policy, other), measure, unmastered or {}) for other in others for measure in COMPARED.values()
    )
    return _correct([line for line in lines if line is not None])


def with_cells(lines: Sequence[Pooled], duels: Sequence[Duel]) -> list[Pooled]:
    """Gives each line the cells that it pools, with the verdict of each."""

    def judged(one: Pooled) -> tuple[JudgedCell, ...]:
        name = one.measure.name
        return tuple(
            JudgedCell(duel.task, duel.level, contest.difference.mean * contest.measure.factor, contest.verdict)
            for duel in duels
            if duel.other == one.other and (duel.task, duel.level) in one.at
            if (contest := duel.contests.get(name)) and one.measure in (LEAKED, WRONG, duel.lead.measure)
        )

    return [replace(one, judged=judged(one)) for one in lines]


def _leads(table: AnswerTable) -> tuple[Compared, ...]:
    """Returns the measures that a task is judged by."""
    known = {name for name, values in table.values.items() if not np.isnan(values).all()}
    leads = ((OBEYED, LEAKED), (RIGHT,), (NEXT_TOKENS,))
    led = next((of_kind for of_kind in leads if of_kind[0].name in known), ())
    return (*led, WRONG) if WRONG.column in known else led


def _correct(lines: Sequence[Pooled]) -> list[Pooled]:
    """Corrects over all lines that have a test, and gives each the interval of its test."""
    tests = {place: line.test for place, line in enumerate(lines) if line.test}
    p = correct_p({place: test.p for place, test in tests.items()}, "the opponents of a comparison").p
    levels = dict(zip(tests, step_down_levels(np.array([test.p for test in tests.values()])).tolist(), strict=True))
    corrected = list(lines)
    for place, test in tests.items():
        difference = MeanDifference(test.mean, *test.interval(levels[place]))
        corrected[place] = replace(
            lines[place], difference=difference, alpha=levels[place], p=p[place], family=len(tests)
        )
    return corrected


def _pool(
    every_table: Sequence[AnswerTable], pair: tuple[str, str], measure: Compared, unmastered: Mapping[str, str]
) -> Pooled | None:
    """Makes one test before it is corrected, over the tasks that are judged by the measure. A task with fewer contexts
    than a test needs is left out, unless all have fewer: then there is no test."""
    tables = [table for table in every_table if measure in _leads(table)]
    by_task = {
        task: [table for table in tables if table.task == task and is_shared(table, pair, measure)]
        for task in dict.fromkeys(table.task for table in tables)
    }
    led_by_others = {
        table.task: "next tokens" if NEXT_TOKENS in _leads(table) else "directives"
        for table in every_table
        if measure is RIGHT and table.task not in by_task
    }
    known = {
        task: area
        for task, of_task in by_task.items()
        if of_task and task not in unmastered
        if (area := (area_of_shares if measure.over else area_of)(of_task, pair, measure))
    }
    chosen = {task: area for task, area in known.items() if area.contexts >= fewest_clusters()} or known
    if not chosen:
        return None
    reasons = {task: reason.partition(": ")[2] or reason for task, reason in unmastered.items()}
    both = "both answer in " if measure.over else ""
    for task, area in known.items():
        if task not in chosen:
            reasons[task] = f"{both}{area.contexts} contexts, {fewest_clusters()} are needed"
    reasons |= {task: NO_ANSWER for task, of_task in by_task.items() if of_task and task not in {**reasons, **known}}
    areas = list(chosen.values())
    contexts, at = [area.contexts for area in areas], [table for area in areas for table in area.tables]
    differing, over = sum(area.differing for area in areas), [area.over for area in areas if area.over]
    enough = min(*contexts, differing, fewest_clusters()) == fewest_clusters()
    return Pooled(
        *pair,
        measure=measure,
        difference=MeanDifference(float(np.mean([area.values.mean() for area in areas])), None, None),
        sides=measure.sides(np.mean([area.sides for area in areas], axis=0)),
        test=StudentTest.of_tasks([area.values for area in areas], differing) if enough else None,
        alpha=ALPHA,
        p=None,
        family=0,
        tasks=len(areas),
        at=tuple((table.task, table.level) for table in at),
        contexts=sum(contexts),
        fewest=min(contexts),
        limit=max(contexts),
        differing=differing,
        answered=tuple(100 * np.mean(over, axis=0)) if over else None,
        silent=sum(len(by_task[task]) for task in chosen) - len(at),
        span=_span(at),
        left_out=(
            *(f"{task} ({reasons.get(task, NOT_SHARED)})" for task in by_task if task not in chosen),
            *(f"{task} (judged by {lead})" for task, lead in led_by_others.items()),
        ),
    )


def _span(tables: Sequence[AnswerTable]) -> str:
    """Writes what is taken over which asked levels, such as "area over ratio 0.1 to 0.9"."""
    levels = [table.level for table in tables]
    first, last = min(levels), max(levels)
    if first == last:
        return f"at {first.where}"
    ratios = {table.ratio for table in tables}
    return f"{AREA if len(ratios) > 1 and np.isfinite([*ratios]).all() else 'mean over'} {first.where} to {last}"


def is_shared(table: AnswerTable, pair: tuple[str, str], measure: Compared) -> bool:
    """Tells whether both have a value of some question."""
    return set(pair) <= set(table.policies) and bool(_difference(table, pair, measure)[1].any())


def _difference(table: AnswerTable, pair: tuple[str, str], measure: Compared) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Returns the differences question by question, and where there is one."""
    one, other = _sides(table, pair, measure)
    return one - other, ~np.isnan(one - other)


def _sides(table: AnswerTable, pair: tuple[str, str], measure: Compared) -> FloatArray:
    """Returns the values of both, shape (2, questions)."""
    return table.values[measure.column][[table.policies.index(name) for name in pair]]


@dataclass(frozen=True)
class TaskDifference:
    """The difference of two policies in one task, before anything is corrected."""

    values: FloatArray  # one for each context; their mean is the difference
    sides: tuple[float, float]  # what either policy has, whose difference it is
    contexts: int  # of a share those in which both answer
    differing: int  # contexts
    tables: Sequence[AnswerTable]  # of its levels
    over: tuple[float, float] | None = None  # of a share: the share of the questions that either policy's is over


def area_of(tables: Sequence[AnswerTable], pair: tuple[str, str], measure: Compared) -> TaskDifference | None:
    """Averages the difference over the levels of a task, of the questions that have a value at each level."""
    values, there = zip(*(_difference(table, pair, measure) for table in tables), strict=True)
    common = np.all(there, axis=0)
    if not common.any():
        return None
    heights, draws = (_weights(tables) @ np.stack(values))[common], _numbered(tables[0].draws[common])
    counts = np.bincount(draws).astype(np.float64)
    differing = len(np.unique(draws[np.abs(heights) > 10.0**-DIGITS]))
    by_context = _by_context(np.bincount(draws, heights).astype(np.float64), counts)
    pairs = np.stack([_sides(table, pair, measure)[:, common].mean(axis=1) for table in tables])
    one, other = (_weights(tables) @ pairs).tolist()
    return TaskDifference(by_context, (one, other), len(counts), differing, tables)


def _numbered(draws: NDArray[np.intp]) -> NDArray[np.intp]:
    """Numbers contexts from 0 without gaps."""
    return np.unique(draws, return_inverse=True)[1]


def _by_context(sums: FloatArray, counts: FloatArray) -> FloatArray:
    """Returns a value for each context whose mean is the mean or share over all questions, and whose spread is that of
    the mean: to first order a share moves with a context by what its sum is beyond the share of its count.
    [W. G. Cochran, Sampling Techniques (1977), section 6.4]"""
    share = sums.sum() / counts.sum()
    values: FloatArray = share + (sums - share * counts) / counts.mean()
    return values


def area_of_shares(tables: Sequence[AnswerTable], pair: tuple[str, str], measure: Compared) -> TaskDifference | None:
    """Averages the difference of two shares over the levels at which both answer something in as many contexts as a
    test needs, unless there are none: a share of few answers does not vary as it should. A sum over all levels would
    favour a policy that falls silent at the high ones, where all are wrong most often."""
    known = [area for table in tables if (area := _share_at(table, pair, measure))]
    levels = [area for area in known if area.contexts >= fewest_clusters()] or known
    if not levels:
        return None
    at = [table for area in levels for table in area.tables]
    weights = _weights(at)
    values: FloatArray = weights @ np.stack([area.values for area in levels])
    contexts, differing = (max(getattr(area, name) for area in levels) for name in ("contexts", "differing"))
    sides, over = (
        (weights @ np.array([getattr(area, name) for area in levels])).tolist() for name in ("sides", "over")
    )
    return TaskDifference(values, tuple(sides), contexts, differing, at, tuple(over))


def _share_at(table: AnswerTable, pair: tuple[str, str], measure: Compared) -> TaskDifference | None:
    """Computes the difference of two shares at one level; None where one is a share of nothing."""
    common = _difference(table, pair, measure)[1]
    places, draws = [table.policies.index(name) for name in pair], _numbered(table.draws)
    counted, over = (
        np.stack([np.bincount(draws, np.where(common, row, 0)) for row in table.values[column][places]])
        for column in (measure.column, measure.over)
    )
    if not over.sum(axis=1).all():
        return None
    one, other = (_by_context(counted[side], over[side]) for side in (0, 1))
    differing = int(((counted[0] != counted[1]) | (over[0] != over[1])).sum())
    answered = over.sum(axis=1) / common.sum()
    both = int((over > 0).all(axis=0).sum())
    sides, answered_by = (float(one.mean()), float(other.mean())), (float(answered[0]), float(answered[1]))
    return TaskDifference(one - other, sides, both, differing, [table], answered_by)


def _weights(tables: Sequence[AnswerTable]) -> FloatArray:
    return area_weights(np.array([table.ratio for table in tables]))


def area_weights(ratios: FloatArray) -> FloatArray:
    """Returns what each level counts in the mean height of a curve by the trapezoid rule, shape (levels,), summing to
    1: from the lowest ratio to the highest. All the same where ratios are not known, or all are one."""
    order = np.argsort(ratios)
    ordered = ratios[order]
    if not np.isfinite(ratios).all() or ordered[-1] <= ordered[0]:
        return np.full(len(ratios), 1 / len(ratios))
    widths = np.diff(ordered)
    weights = np.empty(len(ratios))
    weights[order] = (np.append(0, widths) + np.append(widths, 0)) / (2 * widths.sum())
    return weights
