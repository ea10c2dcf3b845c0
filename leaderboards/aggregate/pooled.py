"""Compares two policies on the mean of all tasks that both have: at each level, and over all levels
together by the area under what leads each task.

A comparison begins with the means at each level. The area is the verdict of a board against a
control, too, so that one pair has one area."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pandas import DataFrame

from leaderboards.aggregate.duels import (
    COMPARED,
    DEFENDED,
    POINTS_OF_ONE,
    UNDECIDED,
    AnswerTable,
    Verdict,
    answer_tables,
)
from leaderboards.statistics.area import mean_heights
from leaderboards.statistics.bootstrap import DIGITS, FLAT, FloatArray
from leaderboards.statistics.context_sums import context_values
from leaderboards.statistics.corrections import holm
from leaderboards.statistics.intervals import ALPHA
from leaderboards.statistics.paired_difference import (
    MeanDifference,
    PairedDifference,
    StudentTest,
    fewest_clusters,
    mean_difference_interval,
)
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
    "An area is the mean height of a curve over the realised ratio, up to where the shorter curve "
    "ends, as on a board. Each curve begins at the full cache, where all policies are equal, and "
    "goes in a straight line to the first level that was run. Hence a fall at one level counts "
    "little in an area."
)
MORE = 4  # times as many contexts are named beside what cannot be seen: they see half of it


@dataclass(frozen=True)
class Pooled:
    """The difference of one policy from another in the mean of all tasks that both have: at one
    level, or of the areas over several."""

    policy: str
    other: str
    title: str  # of what leads the tasks
    levels: tuple[Level, ...]  # ascending in what is done to the cache
    difference: MeanDifference  # in points; its interval is that of the corrected test
    sides: tuple[float, float]  # the areas of either, in percent
    # None where a task has too few contexts, or where the two differ in too few.
    test: StudentTest | None
    alpha: float  # the level at which Holm's method tests it
    p: float | None  # corrected over the family; None without a test
    family: int  # tests that are corrected together
    tasks: tuple[str, ...]
    contexts: int  # of all tasks together
    fewest: int  # contexts of the task that has fewest
    limit: int  # contexts of the task that has most
    differing: int  # contexts in which the two differ at all
    span: str  # the asked levels, and what is taken over them
    # The place on the axis of the curves at which both areas end; 0 of the mean at one level.
    end: float
    # The level of either, which may be the only level that it has; of an area the last.
    run_at: tuple[Level, Level]
    left_out: tuple[str, ...] = ()  # tasks, each with the reason
    # The bytes that either holds at its last level, in percent of the full cache; a board does not
    # count them.
    bytes_held: tuple[float | None, float | None] = field(default=(None, None), compare=False)
    # What the first has more and less of an area, context by context.
    by_task: tuple[PairedDifference, ...] = field(default=(), compare=False)

    def held(self, alpha: float) -> tuple[float, float]:
        """Returns the interval of a paired loss, in points, which has width also where no context
        differs."""
        lowest, highest = mean_difference_interval(self.by_task, alpha)
        return POINTS_OF_ONE * lowest, POINTS_OF_ONE * highest

    @property
    def level(self) -> Level:
        """Returns the level of the mean; of an area the last."""
        return self.levels[-1]

    @property
    def verdict(self) -> Verdict:
        """Tells who is better; nobody without a test, or where its corrected p is too high."""
        if self.p is None or self.p >= ALPHA:
            return UNDECIDED
        return "better" if self.difference.mean > 0 else "worse"

    @property
    def smallest(self) -> float | None:
        """Returns the true difference that is told from 0 four times in five, in points; None where
        no difference can be told."""
        if self.test is None:
            return None
        return self.test.smallest(self.alpha)

    @property
    def reason(self) -> str:
        """Says why there is no verdict, and what more contexts would show; empty where there is
        one."""
        needed = fewest_clusters()
        if self.verdict != UNDECIDED:
            return ""
        if self.too_few:
            return f"n = {self.n} is too few to tell any difference: {needed} of a task are needed"
        if not self.differing:
            return f"the same in all of n = {self.n}"
        if self.test is None:
            return f"they differ in {self.differing} of n = {self.n}, {needed} are needed"
        return self._unseen(self.test)

    def _unseen(self, test: StudentTest) -> str:
        """Says which true differences a test is likely to miss with so many contexts, and with
        more."""
        smallest = test.smallest(self.alpha)
        with_more = test.smallest(self.alpha, MORE)
        more = ""
        if with_more is not None:
            more = f"; {MORE * self.limit} contexts would show ±{points_text(with_more)}"
        if smallest is not None:
            return (
                f"differences below ±{points_text(smallest)} cannot be seen with n = {self.n}{more}"
            )
        at_once = ""
        if self.family > 1:
            at_once = f" at Holm’s level of {self.alpha:.2g}"
        return f"no difference can be seen{at_once} with n = {self.n}{more}"

    @property
    def too_few(self) -> bool:
        """Tells whether some task has too few contexts for any test."""
        return self.fewest < fewest_clusters()

    @property
    def n(self) -> str:
        """Writes the number of contexts, and of how many tasks they are: ``--limit`` counts those
        of one task."""
        count = len(self.tasks)
        if count == 1:
            return str(self.contexts)
        each = ""
        # Only where each task has as many: “x 12” would else be wrong of some.
        if count * self.limit == self.contexts:
            each = f" x {self.limit}"
        return f"{self.contexts} ({count} tasks{each})"

    @property
    def headline(self) -> str:
        """Writes the verdict and what it rests on, such as "right: better, 62 against 39: +23 [+13,
        +32], p <0.001"."""
        first, second = self.sides
        heights = f"{first:.0f} against {second:.0f}"
        p = ""
        if self.p is not None:
            p = f", p {p_text(self.p)}"
        return f"{self.title}: {self.verdict}, {heights}: {self.difference.text}{p}"

    @property
    def clauses(self) -> tuple[str, ...]:
        """Lists what has to be known to read the headline."""
        span = self.span
        if len(self.tasks) > 1:
            span = f"{span}, mean of {len(self.tasks)} tasks"
        clauses = [span, self.reason or f"n = {self.n}"]
        if self.p is not None and self.family > 1:
            tests = f"{self.family} tests, controls apart"
            clauses.append(f"p corrected by Holm’s method over {tests}")
        if self.left_out:
            clauses.append(f"left out: {', '.join(self.left_out)}")
        return tuple(filter(None, clauses))


def points_text(number: float) -> str:
    """Writes a difference in points with one digit behind the point below 10, and with none
    above."""
    # 9.95 would be written as 10.0, with a digit more than 10 has.
    digits = 0 if number >= 9.95 else 1
    return f"{number:.{digits}f}"


def verdict_in_words(row: Pooled) -> str:
    """Writes the verdict with its p, or with the smallest difference that would be told."""
    if row.verdict != UNDECIDED and row.p is not None:
        return f"{row.verdict}, p {p_text(row.p)}"
    if row.smallest is None:
        return UNDECIDED
    return f"{UNDECIDED} ±{row.smallest:.0f}"


def shared_clauses(lines: Sequence[Pooled]) -> tuple[list[str], list[str]]:
    """Returns the clauses that more than half of some lines have, and of each line the others,
    joined."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line.clauses)
    shared = []
    for clause, count in counts.items():
        if count > len(lines) / 2:
            shared.append(clause)
    others = []
    for line in lines:
        rest = [clause for clause in line.clauses if clause not in shared]
        others.append("; ".join(rest))
    return shared, others


def pool(
    records: DataFrame,
    policy: str,
    others: Sequence[str],
    unmastered: Mapping[str, str] | None = None,
) -> list[Pooled]:
    """Compares the areas of the policy and of each of the others. None of no shared level.
    ``unmastered``: why the model cannot do a task, which is left out."""
    return pool_tables(_tables(records, (policy, *others)), policy, others, unmastered or {})


def pool_tables(
    tables: Sequence[AnswerTable], policy: str, others: Sequence[str], unmastered: Mapping[str, str]
) -> list[Pooled]:
    """Compares the areas of the policy and of each of the others, over the tasks of some tables.
    Holm's method corrects the tests over the others, as in :func:`_corrected`."""
    lines = []
    for other in others:
        shared = _shared(tables, (policy, other), unmastered)
        if shared is None:
            continue
        line = _area(shared)
        if line is not None:
            lines.append(line)
    return _corrected(lines)


def pool_levels(
    records: DataFrame,
    policy: str,
    others: Sequence[str],
    unmastered: Mapping[str, str] | None = None,
) -> list[Pooled]:
    """Compares the mean of tasks of the policy with that of each of the others at each level that
    both have. Holm's method corrects the tests over all levels and opponents together, as in
    :func:`_corrected`."""
    tables = _tables(records, (policy, *others))
    lines = []
    for other in others:
        shared = _shared(tables, (policy, other), unmastered or {})
        if shared is None:
            continue
        for place in range(len(shared.levels)):
            # One place without width: the mean height of a single level is its value.
            line = _line(shared.at(place), np.zeros((2, 1)), anchored=False)
            if line is not None:
                lines.append(line)
    corrected = _corrected(lines)
    for place, line in enumerate(corrected):
        # Without a test there is no corrected interval: that of a paired loss stands in its place.
        if line.test is None and not line.too_few:
            corrected[place] = _untested(line, len(lines))
    return corrected


def _untested(line: Pooled, levels: int) -> Pooled:
    """Gives a line whose contexts hardly differ the interval of a paired loss, as wide as if all
    ``levels`` of the comparison were tested. It holds 0: nothing was told."""
    low, high = line.held(ALPHA / levels)
    return replace(
        line, difference=MeanDifference(line.difference.mean, min(low, 0.0), max(high, 0.0))
    )


def _tables(records: DataFrame, policies: Sequence[str]) -> list[AnswerTable]:
    of_policies = records[records["policy"].isin((*policies, FULL))]
    if of_policies.empty:
        return []
    return answer_tables(of_policies, comparing=True)


def _corrected(lines: list[Pooled]) -> list[Pooled]:
    """Corrects the tests of one policy by Holm's method: those against both controls, and apart
    from them those against all others, on which a verdict against a control does not depend."""
    lines = list(lines)
    for is_of_control in (True, False):
        tests: dict[int, StudentTest] = {}
        p_values: dict[int, float] = {}
        for place, line in enumerate(lines):
            if line.test and (line.other in TO_BEAT) is is_of_control:
                tests[place] = line.test
                p_values[place] = line.test.p
        for place, corrected in holm(p_values).items():
            test, line = tests[place], lines[place]
            tested = test.interval(corrected.alpha)
            held = line.held(corrected.alpha)
            lines[place] = replace(
                line,
                difference=MeanDifference.widened(test.mean, tested, held),
                alpha=corrected.alpha,
                p=corrected.p,
                family=len(tests),
            )
    return lines


def _leads(tables: Sequence[AnswerTable]) -> tuple[str, ...]:
    """Returns the measures that judge a task, as far as its answers have them."""
    measured: set[str] = set()
    for table in tables:
        measured |= table.known
    for lead in LEADS:
        if lead[0] in measured:
            return tuple(name for name in lead if name in measured)
    return ()


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
        tables = {}
        for task, by_level in self.tables.items():
            tables[task] = [by_level[place]]
        return replace(self, levels=(self.levels[place],), tables=tables)


def _shared(
    tables: Sequence[AnswerTable], pair: tuple[str, str], unmastered: Mapping[str, str]
) -> _Shared | None:
    by_task: dict[str, dict[Level, AnswerTable]] = {}
    for table in tables:
        by_task.setdefault(table.task, {})[table.level] = table
    leads: dict[str, tuple[str, ...]] = {}
    shared: dict[str, dict[Level, AnswerTable]] = {}
    for task, by_level in by_task.items():
        leads[task] = _leads(list(by_level.values()))
        if task in unmastered:
            continue
        meeting = [table for table in by_level.values() if table.is_shared(pair, leads[task])]
        if meeting:
            shared[task] = {table.level: table for table in meeting}
    levels = _common_levels(shared)
    if not levels:
        return None
    tables_by_task = {}
    for task, by_level in shared.items():
        # In the order of the levels, so that a place is the same level in each task.
        tables_by_task[task] = [by_level[level] for level in levels]
    return _Shared(pair, tuple(levels), tables_by_task, leads, tuple(by_task), unmastered)


def _common_levels(shared: Mapping[str, Mapping[Level, AnswerTable]]) -> list[Level]:
    """Lists the levels that all tasks have, ascending in what is done to the cache. Of several
    kinds it takes the kind of the last one."""
    if not shared:
        return []
    in_all = set.intersection(*map(set, shared.values()))
    levels = sorted(in_all, key=lambda level: level.amount)
    return [level for level in levels if level.kind == levels[-1].kind]


def _area(shared: _Shared) -> Pooled | None:
    # A curve begins at the full cache; what has one level alone, as int4, is a point and has no
    # area.
    tables = list(shared.tables.values())
    last = tables[0][-1]
    if len(shared.levels) > 1:
        for name, level in zip(shared.pair, last.run_levels(shared.pair), strict=True):
            if level != last.level and name != FULL:
                return None
    # Without the full cache in each task a curve has no origin, and begins at its first level.
    every_task_has_full = all(FULL in by_level[0].policies for by_level in tables)
    anchored = shared.levels != (UNTREATED,) and every_task_has_full
    return _line(shared, _places(tables, shared.pair, anchored), anchored)


def _line(shared: _Shared, places: FloatArray, anchored: bool) -> Pooled | None:
    """Makes one test before it is corrected, over the levels at which both have every task that
    counts."""
    # To where the shorter curve ends: what lies beyond it is known of one of them alone.
    end = float(places.max(axis=1).min())
    tasks: list[str] = []
    leads: list[Sequence[str]] = []
    values: list[FloatArray] = []
    paired: list[PairedDifference] = []
    sides: list[tuple[float, float]] = []
    contexts: list[int] = []
    differing = 0
    for task, tables in shared.tables.items():
        # None of a task without a question that both answered at each level.
        part = _task_difference(tables, shared.pair, shared.leads[task], places, end, anchored)
        if part is None:
            continue
        tasks.append(task)
        leads.append(shared.leads[task])
        values.append(part.values)
        paired.append(part.paired)
        sides.append(part.sides)
        contexts.append(part.contexts)
        differing += int(np.count_nonzero(part.values))
    if not tasks:
        return None
    test = None
    # Each task needs enough contexts for its variance; what differs may lie in any of them.
    if min(*contexts, differing) >= fewest_clusters():
        test = StudentTest.from_tasks(values, differing)
    first, second = np.mean(sides, axis=0).tolist()
    span = f"area up to {shared.levels[-1].where}"
    if places.shape[1] == 1:
        span = f"at {shared.levels[0].where}"
    tables_of_tasks = list(shared.tables.values())
    held = [by_level[-1].held_by(shared.pair) for by_level in tables_of_tasks]
    return Pooled(
        *shared.pair,
        title=_title(leads),
        levels=shared.levels,
        # The interval comes with the corrected test.
        difference=MeanDifference(round(first - second, DIGITS), None, None),
        sides=(first, second),
        test=test,
        alpha=ALPHA,
        p=None,
        family=0,
        tasks=tuple(tasks),
        contexts=sum(contexts),
        fewest=min(contexts),
        limit=max(contexts),
        differing=differing,
        span=span,
        end=end,
        run_at=tables_of_tasks[0][-1].run_levels(shared.pair),
        bytes_held=_mean_held(held),
        left_out=_left_out(shared, tasks),
        by_task=tuple(paired),
    )


def _title(leads: Sequence[Sequence[str]]) -> str:
    """Writes the titles of what leads some tasks, each once. ``leads``: the measures of each
    task."""
    distinct: dict[str, None] = {}
    for lead in leads:
        for whole_lead, title in LEADS.items():
            if whole_lead[0] == lead[0]:
                distinct[title] = None
    return " or ".join(distinct)


def _left_out(shared: _Shared, compared: Collection[str]) -> tuple[str, ...]:
    """Lists the tasks that are not compared, each with its reason."""
    lines = []
    for task in shared.every_task:
        if task in compared:
            continue
        reason = NOT_SHARED
        if task in shared.unmastered:
            _, _, behind_colon = shared.unmastered[task].partition(": ")
            reason = behind_colon or shared.unmastered[task]
        lines.append(f"{task} ({reason})")
    return tuple(lines)


Percents = tuple[float | None, float | None]  # of two policies; None where bytes were not counted


def _mean_held(by_task: Sequence[Percents]) -> Percents:
    """Returns the mean over tasks of what either holds; None where a task has no count of bytes."""
    firsts, seconds = zip(*by_task, strict=True)
    return _mean_unless_missing(firsts), _mean_unless_missing(seconds)


def _mean_unless_missing(percents: Sequence[float | None]) -> float | None:
    counted = []
    for percent in percents:
        if percent is None:
            return None
        counted.append(percent)
    return float(np.mean(counted))


def _places(
    tasks: Sequence[Sequence[AnswerTable]], pair: tuple[str, str], anchored: bool
) -> FloatArray:
    """Returns where the levels of both are on the axis of their curves, shape (2, levels), and with
    an anchor (2, 1 + levels): at the mean realised ratio over tasks; where no tokens are removed,
    or one of the two policies removes none, at the level itself."""
    ratios_by_task = []
    for tables in tasks:
        ratios = [table.realised[table.places(*pair)] for table in tables]
        ratios_by_task.append(ratios)
    # One axis for all tasks, since their curves are averaged level by level.
    places: FloatArray = np.mean(ratios_by_task, axis=0).T
    both_remove = bool((places.max(axis=1) > FLAT).all())
    # A policy that removes nothing stands at 0 whatever its level, and would have no curve.
    if not (tasks[0][-1].level.declared.removes and both_remove):
        amounts = [table.level.amount for table in tasks[0]]
        places = np.array([amounts, amounts])
    if not anchored:
        return places
    return np.column_stack([np.zeros(2), places])


@dataclass(frozen=True)
class _TaskDifference:
    values: FloatArray  # one for each context; their mean is the difference
    sides: tuple[float, float]
    contexts: int  # of the measure that has the fewest

    @property
    def paired(self) -> PairedDifference:
        """Returns what the first has more and less in each context, as shares."""
        shares = self.values / POINTS_OF_ONE
        return PairedDifference(np.maximum(shares, 0), np.maximum(-shares, 0))


def _task_difference(
    tables: Sequence[AnswerTable],
    pair: tuple[str, str],
    leads: Sequence[str],
    places: FloatArray,
    end: float,
    anchored: bool,
) -> _TaskDifference | None:
    """Computes the areas of both, context by context: of what leads the task, or of the mean of all
    that leads it, in percent of good. None where no question has a value at each level. ``places``:
    as of :func:`_places`."""
    draws = np.unique(tables[0].draws, return_inverse=True)[1]
    # Which context each question is about, shape (questions, contexts).
    members = (draws[:, None] == np.arange(draws.max() + 1)).astype(np.float64)
    # As a product, and not as :func:`sum_by_context` adds: the order of additions is another one,
    # and areas that were written with all their digits would differ in the last.
    sums, counts = [], []
    for name in leads:
        values = _percent_of_good(name, tables, pair, anchored)
        is_everywhere = ~np.isnan(values).any(axis=(0, 1))  # questions with a value at each level
        if is_everywhere.any():
            sums.append(values[..., is_everywhere] @ members[is_everywhere])
            counts.append(members[is_everywhere].sum(axis=0))
    if not counts:
        return None
    there = np.any(counts, axis=0)
    by_lead = []
    for of_lead, count in zip(sums, counts, strict=True):
        by_lead.append(context_values(of_lead[..., there], count[there]))
    heights = np.mean(by_lead, axis=0)  # shape (levels, policies, contexts)
    contexts = int(there.sum())
    ends = np.full(contexts, end)
    areas = []
    for side, place in enumerate(places):
        curves = np.tile(place, (contexts, 1))
        areas.append(mean_heights(curves, heights[:, side].T, ends))
    first, second = areas
    fewest = min(int(np.count_nonzero(count)) for count in counts)
    sides = float(first.mean()), float(second.mean())
    return _TaskDifference(np.round(first - second, DIGITS), sides, fewest)


def _percent_of_good(
    name: str, tables: Sequence[AnswerTable], pair: tuple[str, str], anchored: bool
) -> FloatArray:
    """Returns a measure of both policies on each question, in percent of good, shape (levels, 2,
    questions); with an anchor the full cache stands before the first level, for both."""
    # Shape (levels, policies, questions), which keeps the two policies on the same questions.
    levels = [table.of(name, *pair) for table in tables]
    if anchored:
        levels.insert(0, tables[0].of(name, FULL, FULL))
    values = np.stack(levels)
    if COMPARED[name].better == "lower":
        return 100 - values
    return values
