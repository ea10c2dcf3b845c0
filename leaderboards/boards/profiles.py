"""Describes a policy over all its levels, resample by resample: areas and ranks are computed from that.

All policies of a task meet the same resamples, so that what is subtracted is paired; tasks are resampled on their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, factorize

from leaderboards.aggregate.arguments import Arguments, arguments_of_records
from leaderboards.aggregate.lead import good, leading_measures
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
from leaderboards.statistics.bootstrap import RESAMPLES, Blank, Estimate, FloatArray, cluster_weights, task_seed
from leaderboards.statistics.columns import Columns, groups, with_levels
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

TALLIED = {measure.field: measure for measure in (REALISED_RATIO, RIGHT, OBEYED, LEAKAGE, NEXT_TOKENS)}
COLUMNS = tuple(dict.fromkeys(column for measure in TALLIED.values() for column in measure.reads))
NO_FULL = "the full cache was not run"
TWO_KINDS = "asked by levels of two kinds: look at one of them"
NOT_MEASURED = "not measured"
NOT_COMPRESSED = "the full cache is not compressed"
NO_LEVELS = "it has one level, which is no curve: whether it is safe, and at how many bytes, is in the other columns"
ONE_LEVEL = "one level"

Measured = FloatArray | Blank
Board = tuple[str, str]  # mode and task
Cells = Sequence[tuple[str, Level]]  # of one policy
Rows = Sequence[SummaryRow | None]  # of the full cache, then of the cells


@dataclass(frozen=True)
class Profile:
    """One policy on one board.

    Its measures have the shape (1 + resamples, levels): first as measured, then as resampled. They have no resamples
    where any task has a single cluster, and are :class:`Blank` where any level has no such measure.
    """

    policy: str
    # The full cache first, as ratio 0; then what the policy was asked to reach, from little compression to much.
    # A policy that was asked for ratio 0 itself is not looked at there. One without levels, as int4, has ratio 0 twice:
    # for the full cache, and for itself.
    levels: tuple[Level, ...]
    realised_ratio: Measured
    # What leads the task, each in percent of good: what is right, or directives obeyed and what does not leak. Over
    # several tasks the mean of what :attr:`lead` is in each. Blank where the model cannot do the task.
    leads: tuple[FloatArray, ...] | Blank
    questions: int  # that each level answers
    contexts: int  # the fewest of a task
    held: float | None = None  # its bytes in percent of the full cache's, where it has no levels

    @cached_property
    def lead(self) -> Measured:
        """Returns what policies are ranked by, in percent: the mean of the measures that lead the task."""
        return self.leads if isinstance(self.leads, Blank) else _mean(self.leads)

    @property
    def places(self) -> Measured:
        """Returns where each level is on the axis: its realised ratio, or the level where no tokens are removed."""
        if isinstance(self.realised_ratio, Blank) or self.axis == REALISED_RATIO.field:
            return self.realised_ratio
        return np.broadcast_to([level.amount for level in self.levels], self.realised_ratio.shape)

    @property
    def axis(self) -> str:  # what its curve is over: curves over the same are compared, and others are not
        return REALISED_RATIO.field if self.levels[-1].declared.removes else self.levels[-1].kind

    @property
    def no_levels(self) -> str:
        """Says why it is a single point and no curve, as the full cache and a quantisation are, if it is."""
        if set(self.levels) != {UNTREATED}:
            return ""
        return NOT_COMPRESSED if self.policy == FULL else NO_LEVELS

    def estimate(self, values: FloatArray) -> Estimate:
        """Makes an estimate of a value as measured and as resampled, shape (1 + resamples,)."""
        return Estimate.of(float(values[0]), values[1:], self.questions)


def _mean(arrays: Sequence[FloatArray]) -> FloatArray:
    """Averages arrays of shape (1 + resamples, levels); of a task with a single cluster there are no resamples."""
    fewest = min(map(len, arrays))
    mean: FloatArray = arrays[0] if len(arrays) == 1 else np.mean([array[:fewest] for array in arrays], axis=0)
    return mean


@dataclass(frozen=True)
class _Tally:
    """One task in one mode: ``sums`` and ``counts`` of each measure, by cluster, of each cell, shape (clusters,)."""

    sums: Mapping[tuple[str, str, Level], FloatArray]
    counts: Mapping[tuple[str, str, Level], FloatArray]
    weights: FloatArray

    @classmethod
    def of(
        cls, clusters: NDArray[np.intp], cells: Sequence[tuple[str, Level, Columns]], seed: int, resamples: int
    ) -> Self:
        sums: dict[tuple[str, str, Level], FloatArray] = {}
        counts: dict[tuple[str, str, Level], FloatArray] = {}
        for policy, level, cell in cells:
            positions = np.searchsorted(clusters, cell["draw"])
            for name, measure in TALLIED.items():
                values = cell[measure.reads[0]] if measure.values is None else measure.values(cell)
                known = ~np.isnan(values)
                counted = known.astype(np.float64) if measure.weights is None else measure.weights(cell)
                key = (name, policy, level)
                for of, numbers in ((sums, values), (counts, counted)):
                    of[key] = np.bincount(positions, np.where(known, numbers, 0.0), len(clusters)).astype(np.float64)
        many = len(clusters) > 1
        return cls(sums, counts, cluster_weights(len(clusters), seed, resamples if many else 0))

    def means(self, name: str, cells: Cells) -> FloatArray:
        """Returns the means of some cells, shape (cells, 1 + resamples); NaN in a resample that has no value."""
        sums, counts = (np.stack([of[name, *cell] for cell in cells]) for of in (self.sums, self.counts))
        if (counts == counts[0]).all():  # as it is where every cell answers the same questions
            counts = counts[:1]
        measured = sums.sum(axis=1) / counts.sum(axis=1)
        with np.errstate(invalid="ignore"):
            resampled = (sums @ self.weights.T) / (counts @ self.weights.T)
        return np.column_stack([measured, resampled])


@dataclass(frozen=True)
class Profiles:
    """Makes the profiles of a run, each when it is asked for, since together they fill hundreds of megabytes. ``rows``
    are those of :func:`~leaderboards.aggregate.summary.summarise`, which know what is blank and why."""

    rows: Mapping[Board, Mapping[str, Mapping[Level, SummaryRow]]]
    tallies: Mapping[Board, _Tally]
    arguments: Mapping[tuple[str, str], Arguments] = field(default_factory=dict)  # by policy and task

    @classmethod
    def of(cls, records: DataFrame, rows: Sequence[SummaryRow], seed: int = 0, resamples: int = RESAMPLES) -> Self:
        """Makes the same profiles of the same records, rows and seed, whatever the order of the records."""
        by_policy: dict[Board, dict[str, dict[Level, SummaryRow]]] = {}
        for row in rows:
            by_policy.setdefault((row.mode, row.task), {}).setdefault(row.policy, {})[row.at] = row
        identity = ["task", "mode", "policy"]
        # Sums of floats depend on their order, and profiles shall not.
        order = ["example_id", "question_id"]
        needed = list(dict.fromkeys([*identity, *order, "level_kind", "level", "draw_id", *COLUMNS]))
        known = records.loc[records["status"] == "ok", needed].sort_values(order, kind="stable")
        known = with_levels(known).assign(draw=factorize(known["draw_id"], sort=True)[0])
        columns = Columns.of(known.astype(dict.fromkeys(COLUMNS, np.float64)))
        cells: dict[Board, list[tuple[str, Level, Columns]]] = {}
        for (task, mode, policy, level), places in groups(known, [*identity, "level"]):
            cells.setdefault((str(mode), str(task)), []).append((str(policy), level, columns.at(places)))
        draws = known.groupby(["mode", "task"], sort=False, observed=True)["draw"].unique()
        tallies = {
            (mode, task): _Tally.of(np.sort(draws[mode, task]), of_board, task_seed(seed, task), resamples)
            for (mode, task), of_board in cells.items()
        }
        return cls(by_policy, tallies, arguments_of_records(records))

    def of_board(self, mode: str, task: str) -> dict[str, Profile]:
        return {policy: self.profile(mode, task, policy) for policy in self.rows[mode, task]}

    def presses(self, mode: str, task: str) -> dict[str, list[Arguments]]:
        """Returns what each policy of a board ran with, task by task; of those without arguments nothing."""
        tasks = self.tasks(mode, task)
        return {
            policy: [one for name in tasks if (one := self.arguments.get((policy, name))) and one.used]
            for policy in self.rows[mode, task]
        }

    def profile(self, mode: str, task: str, policy: str) -> Profile:
        """Returns the profile of a policy; raises KeyError for one that is not on this board."""
        board = self.rows[mode, task]
        by_level = {level: row for level, row in board[policy].items() if level != UNTREATED}
        levels = sorted(by_level, key=lambda level: level.amount) or [UNTREATED] * (policy != FULL)
        cells = [(policy, level) for level in levels]
        rows = self._rows(mode, task, cells)
        held, whole = (None if row is None else KV_BYTES.value(row) for row in (rows[-1], rows[0]))
        gap = _gap(cells, rows)
        unmastered = Blank(rows[0].not_mastered) if rows[0] and rows[0].not_mastered else None
        return Profile(
            policy,
            (UNTREATED, *(level for _, level in cells)),
            realised_ratio=gap or self._measure(REALISED_RATIO, mode, self.tasks(mode, task), cells, rows),
            leads=unmastered or gap or self._leads(mode, task, cells),
            questions=min(row.n if row else 0 for row in rows),
            contexts=min(row.fewest_contexts if row else 0 for row in rows),
            held=None if by_level or held is None or not whole else 100 * held / whole,
        )

    def _full(self, mode: str, task: str) -> SummaryRow | None:
        return self.rows[mode, task].get(FULL, {}).get(UNTREATED)

    def tasks(self, mode: str, task: str) -> Sequence[str]:
        """Returns the task, or those that a mean over tasks is made of."""
        full = self._full(mode, task)
        return full.mean_of if task == ALL_TASKS and full else [task]

    def _leads(self, mode: str, task: str, cells: Cells) -> tuple[FloatArray, ...] | Blank:
        leads: dict[str, list[FloatArray]] = {}
        for one in self.tasks(mode, task):
            rows = self._rows(mode, one, cells)
            for measure in leading_measures(rows[0]):
                values = _gap(cells, rows) or self._measure(measure, mode, [one], cells, rows)
                if isinstance(values, Blank):
                    return values
                leads.setdefault(one, []).append(good(measure, values))
        return (_mean([_mean(of_task) for of_task in leads.values()]),) if task == ALL_TASKS else tuple(leads[task])

    def _rows(self, mode: str, task: str, cells: Cells) -> Rows:
        board = self.rows[mode, task]
        return [self._full(mode, task), *(board[policy].get(level) for policy, level in cells)]

    def _measure(self, measure: Measure, mode: str, tasks: Sequence[str], cells: Cells, rows: Rows) -> Measured:
        for row in rows:
            if row is not None and measure.value(row) is None:
                return Blank(f"{row.policy} at {row.at.where}: {row.reason or NOT_MEASURED}")
        means = [self.tallies[mode, task].means(measure.field, [(FULL, UNTREATED), *cells]) for task in tasks]
        # Level by level in memory: what follows goes over few levels and many resamples.
        return _mean([array.T for array in means])


def _gap(cells: Cells, rows: Rows) -> Blank | None:
    """Says why a policy has no profile at all."""
    if len({level.kind for _, level in cells}) > 1:
        return Blank(TWO_KINDS)
    for row in rows:
        if row is None:
            return Blank(NO_FULL)
        if not row.complete:
            return Blank(f"{row.policy} at {row.at.where}: {row.reason or NOT_MEASURED}")
    return None
