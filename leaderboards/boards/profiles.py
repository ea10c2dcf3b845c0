"""Describes a policy over all its levels, context by context: areas, ranks and safe ratios are
computed from that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, factorize

from leaderboards.aggregate.arguments import Arguments, arguments_of_records
from leaderboards.aggregate.leading_measures import good, leading_measures
from leaderboards.aggregate.row import (
    ALL_TASKS,
    KV_BYTES,
    LEAKAGE,
    NEXT_TOKENS,
    OBEYED,
    REALISED_RATIO,
    RIGHT,
    SummaryRow,
)
from leaderboards.metrics import Measure
from leaderboards.statistics.bootstrap import Blank, FloatArray
from leaderboards.statistics.columns import FULL_PLACE, Columns, groups, with_full, with_levels
from leaderboards.statistics.context_sums import ContextSums, context_values, sum_by_context
from leaderboards.statistics.paired_difference import PairedDifference
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

# The axis of the curves, and all that may lead a task.
TALLIED = {
    measure.field: measure for measure in (REALISED_RATIO, RIGHT, OBEYED, LEAKAGE, NEXT_TOKENS)
}
# A dictionary keeps the order and each name once: several measures read the same column.
_READ: dict[str, None] = {}
for _measure in TALLIED.values():
    _READ |= dict.fromkeys(_measure.reads)
PROFILE_COLUMNS = tuple(_READ)
NO_FULL = "the full cache was not run"
TWO_KINDS = "asked by levels of two kinds: look at one of them"
NOT_MEASURED = "not measured"
NOT_COMPRESSED = "the full cache is not compressed"
NO_LEVELS = (
    "it has one level, which is no curve: "
    "whether it is safe, and at how many bytes, is in the other columns"
)
ONE_LEVEL = "one level"

Measured = FloatArray | Blank
Board = tuple[str, str]  # mode and task
Cells = Sequence[tuple[str, Level]]  # of one policy
Rows = Sequence[SummaryRow | None]  # of the full cache, then of the cells


@dataclass(frozen=True)
class LeadByContext:
    """One measure that leads one task, at the full cache and at each level, shape (1 + levels,
    contexts)."""

    heights: FloatArray  # in percent of good; their mean over contexts is the measure
    # What is lost and gained against the full cache on the same questions, as shares.
    lost: FloatArray
    gained: FloatArray
    # The contexts that have the measure, as not all have attacks, shape (contexts,).
    there: NDArray[np.bool_]

    @property
    def means(self) -> FloatArray:
        """Returns the measure at the full cache and at each level, shape (1 + levels,)."""
        means: FloatArray = self.heights[:, self.there].mean(axis=1)
        return means

    def loss(self, place: int) -> PairedDifference:
        """Returns the difference of the full cache over a place, which is the loss there."""
        return PairedDifference(self.lost[place, self.there], self.gained[place, self.there])


@dataclass(frozen=True)
class Profile:
    """One policy on one board. What it measures is :class:`Blank` where any level has no such
    measure."""

    policy: str
    # The full cache first, as ratio 0; then what the policy was asked to reach, from little
    # compression to much. A policy that was asked for ratio 0 itself is not looked at there. One
    # without levels, as int4, has ratio 0 twice: for the full cache, and for itself.
    levels: tuple[Level, ...]
    realised_ratio: Measured  # shape (1 + levels,)
    # By task, what leads it: what is right, or directives obeyed and what does not leak.
    leads: tuple[tuple[LeadByContext, ...], ...] | Blank
    questions: int  # that each level answers
    contexts: int  # the fewest of a task
    held: float | None = None  # its bytes in percent of the full cache's, where it has no levels
    # Why it has neither rank nor verdict, though it has numbers: the model cannot do the task.
    withheld: str = ""

    @cached_property
    def lead(self) -> Measured:
        """Returns what policies are ranked by, in percent, shape (1 + levels,): the mean over tasks
        of the mean of the measures that lead each."""
        if isinstance(self.leads, Blank):
            return self.leads
        by_task = []
        for of_task in self.leads:
            means = [lead.means for lead in of_task]
            by_task.append(np.mean(means, axis=0))
        mean: FloatArray = np.mean(by_task, axis=0)
        return mean

    @property
    def places(self) -> Measured:
        """Returns where each level is on the axis, shape (1 + levels,): its realised ratio, or the
        level where no tokens are removed."""
        if isinstance(self.realised_ratio, Blank) or self.axis == REALISED_RATIO.field:
            return self.realised_ratio
        return np.array([level.amount for level in self.levels])

    @property
    def axis(self) -> str:
        """Names what its curve is over: curves over the same are compared, and others are not."""
        # A policy asked by levels of two kinds has no profile (:func:`_gap`), so that one speaks
        # for all.
        highest = self.levels[-1]
        if highest.declared.removes:
            return REALISED_RATIO.field
        return highest.kind

    @property
    def no_levels(self) -> str:
        """Says why it is a single point and no curve, as the full cache and a quantisation are, if
        it is."""
        if set(self.levels) != {UNTREATED}:
            return ""
        return NOT_COMPRESSED if self.policy == FULL else NO_LEVELS


@dataclass(frozen=True)
class _CellSums:
    """One measure of one cell by context, of shape (contexts,); all have the same counts."""

    measured: ContextSums
    # The differences from the full cache on the same question that are for the worse, and those
    # that are for the better.
    lost: ContextSums
    gained: ContextSums

    @classmethod
    def add_up(
        cls, measure: Measure, cell: Columns, contexts: NDArray[np.intp], count: int
    ) -> Self:
        """Adds up the answers of a cell. ``contexts``: the number of each answer's context, below
        ``count``, shape (answers,)."""
        values = _values(measure, cell)
        if measure.weights is None:
            # An answer without the measure, such as one that is no attack, weighs nothing. As a 0
            # that counts it would be a failure.
            counted = (~np.isnan(values)).astype(np.float64)
        else:
            counted = np.nan_to_num(measure.weights(cell))
        # Where the full cache has no such record, ``cell.full`` reads any other.
        has_twin = cell[FULL_PLACE] >= 0
        worse = np.where(has_twin, _values(measure, cell.full) - values, 0.0)
        if measure.better != "higher":
            worse = -worse
        # Where either has no value nothing is lost, and nothing gained.
        worse = np.nan_to_num(worse)
        return cls(
            sum_by_context(np.nan_to_num(values), contexts, count, counted),
            sum_by_context(np.maximum(worse, 0), contexts, count, counted),
            sum_by_context(np.maximum(-worse, 0), contexts, count, counted),
        )


def _values(measure: Measure, cell: Columns) -> FloatArray:
    values: FloatArray = cell[measure.reads[0]] if measure.values is None else measure.values(cell)
    return values


@dataclass(frozen=True)
class _Tally:
    """One task in one mode: the sums of each measure of each cell, over the same contexts."""

    cells: Mapping[tuple[str, str, Level], _CellSums]

    @classmethod
    def of(cls, draws: NDArray[np.intp], cells: Sequence[tuple[str, Level, Columns]]) -> Self:
        """Adds up each cell. ``draws``: those of the task, one for each context, ascending, shape
        (contexts,)."""
        sums = {}
        for policy, level, cell in cells:
            # The number of a context is its place among the draws of the task, the same in each
            # cell.
            contexts = np.searchsorted(draws, cell["draw"])
            for name, measure in TALLIED.items():
                of_cell = _CellSums.add_up(measure, cell, contexts, len(draws))
                sums[name, policy, level] = of_cell
        return cls(sums)

    def means(self, name: str, cells: Cells) -> FloatArray:
        """Returns the means of some cells, shape (cells,)."""
        means = []
        for cell in cells:
            measured = self.cells[name, *cell].measured
            count = measured.counts.sum()
            means.append(measured.sums.sum() / count if count else np.nan)
        return np.array(means)

    def lead(self, measure: Measure, cells: Cells) -> LeadByContext:
        """Returns a measure of the full cache, which is the first of the cells, and of each
        other."""
        sums, counts, lost, gained = [], [], [], []
        for cell in cells:
            of_cell = self.cells[measure.field, *cell]
            sums.append(of_cell.measured.sums)
            counts.append(of_cell.measured.counts)
            lost.append(of_cell.lost.sums)
            gained.append(of_cell.gained.sums)
        measured = ContextSums(np.stack(sums), np.stack(counts))
        # What the full cache was asked tells which contexts have the measure; all cells have the
        # same.
        there = measured.counts[0] > 0
        # Contexts without the measure go first: as zeros they would lower the mean count, by which
        # each value is scaled.
        counts_there = measured.counts[:, there]
        measured_there = context_values(measured.sums[:, there], counts_there)
        lost_there = context_values(np.stack(lost)[:, there], counts_there)
        gained_there = context_values(np.stack(gained)[:, there], counts_there)
        # Nobody reads what stands for the other contexts, and the mean is the measure all the same.
        elsewhere = measured_there.mean(axis=1)
        return LeadByContext(
            good(measure, _within(measured_there, there, elsewhere)),
            _within(lost_there, there),
            _within(gained_there, there),
            there,
        )


def _within(
    values: FloatArray, there: NDArray[np.bool_], elsewhere: FloatArray | None = None
) -> FloatArray:
    """Returns values of some contexts among all, shape (cells, contexts). ``values``: shape (cells,
    contexts that are ``there``). ``elsewhere``: of the other contexts, shape (cells,), by default
    0."""
    among = np.zeros((len(values), len(there)))
    if elsewhere is not None:
        among += elsewhere[:, None]
    among[:, there] = values
    return among


@dataclass(frozen=True)
class Profiles:
    """Makes the profiles of a run, each when it is asked for, since together they fill hundreds of
    megabytes. ``rows`` are those of :func:`~leaderboards.aggregate.summary.summarise`, which know
    what is blank and why."""

    rows: Mapping[Board, Mapping[str, Mapping[Level, SummaryRow]]]
    tallies: Mapping[Board, _Tally]
    # By policy and task.
    arguments: Mapping[tuple[str, str], Arguments] = field(default_factory=dict)

    @classmethod
    def of(cls, records: DataFrame, rows: Sequence[SummaryRow]) -> Self:
        """Makes the same profiles of the same records and rows, whatever the order of the
        records."""
        by_policy: dict[Board, dict[str, dict[Level, SummaryRow]]] = {}
        for row in rows:
            of_board = by_policy.setdefault((row.mode, row.task), {})
            of_board.setdefault(row.policy, {})[row.at] = row
        identity = ["task", "mode", "policy"]
        # Sums of floats depend on their order, and profiles shall not.
        order = ["example_id", "question_id"]
        names = dict.fromkeys(
            [*identity, *order, "level_kind", "level", "draw_id", *PROFILE_COLUMNS]
        )
        answers = records.loc[records["status"] == "ok", list(names)]
        answers = with_levels(answers.sort_values(order, kind="stable"))
        # Sorted, so that a context has the same number whatever the order of the records is.
        draw, _ = factorize(answers["draw_id"], sort=True)
        answers = answers.assign(draw=draw)
        # As floats, since truth values with gaps come from pandas as objects; a gap is NaN then.
        columns = Columns.of(with_full(answers.astype(dict.fromkeys(PROFILE_COLUMNS, np.float64))))
        cells: dict[Board, list[tuple[str, Level, Columns]]] = {}
        for (task, mode, policy, level), places in groups(answers, [*identity, "level"]):
            of_task = cells.setdefault((str(mode), str(task)), [])
            of_task.append((str(policy), level, columns.at(places)))
        by_task = answers.groupby(["mode", "task"], sort=False, observed=True)
        draws = by_task["draw"].unique()
        tallies = {}
        for place, of_task in cells.items():
            tallies[place] = _Tally.of(np.sort(draws[place]), of_task)
        return cls(by_policy, tallies, arguments_of_records(records))

    def board_profiles(self, mode: str, task: str) -> dict[str, Profile]:
        """Returns the profiles of all policies of a board."""
        profiles = {}
        for policy in self.rows[mode, task]:
            profiles[policy] = self.profile(mode, task, policy)
        return profiles

    def presses(self, mode: str, task: str) -> dict[str, list[Arguments]]:
        """Returns what each policy of a board ran with, task by task; of those without arguments
        nothing."""
        presses: dict[str, list[Arguments]] = {}
        for policy in self.rows[mode, task]:
            presses[policy] = []
            for name in self.tasks(mode, task):
                arguments = self.arguments.get((policy, name))
                if arguments and arguments.used:
                    presses[policy].append(arguments)
        return presses

    def profile(self, mode: str, task: str, policy: str) -> Profile:
        """Returns the profile of a policy.

        Raises :class:`KeyError` for a policy that is not on this board."""
        treated = [level for level in self.rows[mode, task][policy] if level != UNTREATED]
        levels = sorted(treated, key=_amount)
        if not treated and policy != FULL:
            levels = [UNTREATED]
        cells = [(policy, level) for level in levels]
        # The full cache first, then a row for each level; None where it was not run.
        rows = self._rows(mode, task, cells)
        full = rows[0]
        gap = _gap(cells, rows)
        questions = contexts = 0
        present = [row for row in rows if row is not None]
        # With a level missing there is no number of questions that each level answers.
        if len(present) == len(rows):
            questions = min(row.n for row in present)
            contexts = min(row.fewest_contexts for row in present)
        return Profile(
            policy,
            (UNTREATED, *levels),
            realised_ratio=gap or self._realised(mode, self.tasks(mode, task), cells, rows),
            leads=gap or self._leads(mode, task, cells),
            questions=questions,
            contexts=contexts,
            held=None if treated else _held(rows[-1], full),
            withheld=full.not_mastered or "" if full else "",
        )

    def _full(self, mode: str, task: str) -> SummaryRow | None:
        return self.rows[mode, task].get(FULL, {}).get(UNTREATED)

    def tasks(self, mode: str, task: str) -> Sequence[str]:
        """Returns the task, or those that a mean over tasks is made of."""
        full = self._full(mode, task)
        # Without the full cache there is no list, and no profile either: see :func:`_gap`.
        if task == ALL_TASKS and full:
            return full.mean_of
        return [task]

    def _leads(
        self, mode: str, task: str, cells: Cells
    ) -> tuple[tuple[LeadByContext, ...], ...] | Blank:
        leads: list[tuple[LeadByContext, ...]] = []
        for name in self.tasks(mode, task):
            rows = self._rows(mode, name, cells)
            gap = _gap(cells, rows)
            # What leads a task follows from its full cache, and is the same for all policies.
            measures = leading_measures(rows[0])
            for measure in measures:
                gap = gap or _unmeasured(measure, rows)
            if gap is not None:
                return gap
            whole = [(FULL, UNTREATED), *cells]
            tally = self.tallies[mode, name]
            of_task = []
            for measure in measures:
                of_task.append(tally.lead(measure, whole))
            leads.append(tuple(of_task))
        return tuple(leads)

    def _rows(self, mode: str, task: str, cells: Cells) -> Rows:
        board = self.rows[mode, task]
        rows = [self._full(mode, task)]
        for policy, level in cells:
            rows.append(board[policy].get(level))
        return rows

    def _realised(self, mode: str, tasks: Sequence[str], cells: Cells, rows: Rows) -> Measured:
        whole = [(FULL, UNTREATED), *cells]
        means = []
        for task in tasks:
            means.append(self.tallies[mode, task].means(REALISED_RATIO.field, whole))
        return _unmeasured(REALISED_RATIO, rows) or np.mean(means, axis=0)


def _amount(level: Level) -> float:
    return level.amount


def _held(row: SummaryRow | None, full: SummaryRow | None) -> float | None:
    """Returns the bytes that a policy holds, in percent of the full cache's."""
    if row is None or full is None:
        return None
    held, whole = KV_BYTES.value(row), KV_BYTES.value(full)
    if held is None or not whole:
        return None
    return 100 * held / whole


def _unmeasured(measure: Measure, rows: Rows) -> Blank | None:
    for row in rows:
        if row is not None and measure.value(row) is None:
            return _not_measured(row)
    return None


def _not_measured(row: SummaryRow) -> Blank:
    return Blank(f"{row.policy} at {row.at.where}: {row.reason or NOT_MEASURED}")


def _gap(cells: Cells, rows: Rows) -> Blank | None:
    """Says why a policy has no profile at all."""
    kinds = {level.kind for _, level in cells}
    # A curve over a share removed and a rate of faults would have no axis.
    if len(kinds) > 1:
        return Blank(TWO_KINDS)
    for row in rows:
        if row is None:
            return Blank(NO_FULL)
        if not row.complete:
            return _not_measured(row)
    return None
