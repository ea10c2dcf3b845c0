"""A policy over all that it was asked to reach, resample by resample: what areas, cliffs and ranks are computed from.

All policies of a task meet the same resamples, so that what is subtracted is paired; tasks are resampled on their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from pandas import DataFrame, factorize

from leaderboards.aggregate.row import ALL_TASKS, F1, GER, HALLUCINATION, REALISED_RATIO, SummaryRow
from leaderboards.statistics.bootstrap import RESAMPLES, FloatArray, cluster_weights, task_seed
from leaderboards.statistics.columns import Columns, groups
from leaderboards.statistics.levels import with_levels
from leaderboards.statistics.resampling import Blank, Estimate
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

# The field of a row that says whether there is such a measure, and the column of the records that it is the mean of.
MEASURES = {measure.field: measure.reads[0] for measure in (F1, HALLUCINATION, GER, REALISED_RATIO)}
NO_FULL = "the full cache was not run"
TWO_KINDS = "asked by levels of two kinds: look at one of them"
NOT_MEASURED = "not measured"
NOT_COMPRESSED = "the full cache is not compressed"
FLAT = 1e-9  # differences below which are noise of sums

Measured = FloatArray | Blank


@dataclass(frozen=True)
class Profile:
    """One policy on one board.

    Its measures have the shape (1 + resamples, levels): first as measured, then as resampled. They have no resamples
    where any task has a single cluster, and are :class:`Blank` where any level has no such measure.
    """

    policy: str
    # The full cache first, as ratio 0; then what the policy was asked to reach, from little compression to much.
    # A policy that was asked for ratio 0 itself is not looked at there.
    levels: tuple[Level, ...]
    f1: Measured  # in percent; the others are shares
    hallucination_rate: Measured
    ger: Measured
    realised_ratio: Measured
    questions: int  # that each level answers

    @property
    def not_comparable(self) -> str:
        """Why levels are not comparable between contexts, if they are not."""
        return self.levels[-1].declared.not_comparable

    def estimate(self, values: FloatArray) -> Estimate:
        """Makes an estimate of a value as measured and as resampled, shape (1 + resamples,)."""
        return Estimate.of(float(values[0]), values[1:], self.questions)


@dataclass(frozen=True)
class _Tally:
    """One task in one mode: ``sums`` and ``counts`` of each measure, by cluster, of each cell, shape (clusters,)."""

    sums: Mapping[tuple[str, str, Level], FloatArray]
    counts: Mapping[tuple[str, str, Level], FloatArray]
    weights: FloatArray

    @classmethod
    def of(cls, answered: Columns, cells: Sequence[tuple[str, Level, Columns]], seed: int, resamples: int) -> Self:
        clusters = np.unique(answered["draw"])
        sums: dict[tuple[str, str, Level], FloatArray] = {}
        counts: dict[tuple[str, str, Level], FloatArray] = {}
        for policy, level, cell in cells:
            positions = np.searchsorted(clusters, cell["draw"])
            for name, column in MEASURES.items():
                values = cell[column]
                known = ~np.isnan(values)
                key = (name, policy, level)
                sums[key] = np.bincount(positions, np.where(known, values, 0.0), len(clusters)).astype(np.float64)
                counts[key] = np.bincount(positions, known, len(clusters)).astype(np.float64)
        many = len(clusters) > 1
        return cls(sums, counts, cluster_weights(len(clusters), seed, resamples if many else 0))

    def means(self, name: str, cells: Sequence[tuple[str, Level]]) -> FloatArray:
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
    """All profiles of a run; each is computed when it is asked for, since together they fill hundreds of megabytes.
    ``rows`` are those of :func:`~leaderboards.aggregate.summary.summarise`, which know what is blank and why."""

    rows: Mapping[tuple[str, str], Mapping[str, Mapping[Level, SummaryRow]]]
    tallies: Mapping[tuple[str, str], _Tally]

    @classmethod
    def of(cls, records: DataFrame, rows: Sequence[SummaryRow], seed: int = 0, resamples: int = RESAMPLES) -> Self:
        """The same records, rows and seed give the same profiles, whatever the order of the records."""
        by_policy: dict[tuple[str, str], dict[str, dict[Level, SummaryRow]]] = {}
        for row in rows:
            by_policy.setdefault((row.mode, row.task), {}).setdefault(row.policy, {})[row.at] = row
        identity = ["task", "mode", "policy"]
        # Sums of floats depend on their order, and profiles shall not.
        order = ["example_id", "question_id"]
        needed = list(dict.fromkeys([*identity, *order, "level_kind", "level", "draw_id", *MEASURES.values()]))
        known = records.loc[records["status"] == "ok", needed].sort_values(order, kind="stable")
        known = with_levels(known).assign(draw=factorize(known["draw_id"], sort=True)[0])
        columns = Columns.of(known.astype(dict.fromkeys(MEASURES.values(), np.float64)))
        cells: dict[tuple[str, str], list[tuple[str, Level, Columns]]] = {}
        for (task, mode, policy, level), places in groups(known, [*identity, "level"]):
            cells.setdefault((str(mode), str(task)), []).append((str(policy), level, columns.at(places)))
        tallies = {
            (str(mode), str(task)): _Tally.of(
                columns.at(places), cells[str(mode), str(task)], task_seed(seed, str(task)), resamples
            )
            for (mode, task), places in groups(known, ["mode", "task"])
        }
        return cls(by_policy, tallies)

    def of_board(self, mode: str, task: str) -> dict[str, Profile]:
        """Computes the profiles of the policies of a board, in the order of its rows."""
        return {policy: self.profile(mode, task, policy) for policy in self.rows[mode, task]}

    def profile(self, mode: str, task: str, policy: str) -> Profile:
        """KeyError for a policy that is not on this board."""
        board = self.rows[mode, task]
        own = {level: row for level, row in board[policy].items() if level != UNTREATED}
        cells = [(policy, level) for level in sorted(own, key=lambda level: level.amount)]
        rows = {UNTREATED: board.get(FULL, {}).get(UNTREATED), **own}
        tasks = [one for of_mode, one in self.tallies if of_mode == mode] if task == ALL_TASKS else [task]
        return Profile(
            policy,
            (UNTREATED, *(level for _, level in cells)),
            **{name: self._measured(name, mode, tasks, cells, rows) for name in MEASURES},
            questions=min(row.n if row else 0 for row in rows.values()),
        )

    def _measured(
        self,
        name: str,
        mode: str,
        tasks: Sequence[str],
        cells: Sequence[tuple[str, Level]],
        rows: Mapping[Level, SummaryRow | None],
    ) -> Measured:
        if len({level.kind for _, level in cells}) > 1:
            return Blank(TWO_KINDS)
        for level, row in rows.items():
            if row is None:
                return Blank(NO_FULL)
            if getattr(row, name) is None:
                return Blank(f"{row.policy} at {level.where}: {row.reason or NOT_MEASURED}")
        means = [self.tallies[mode, task].means(name, [(FULL, UNTREATED), *cells]) for task in tasks]
        fewest = min(array.shape[1] for array in means)  # 1 where a task has a single cluster
        # Level by level in memory: what follows goes over few levels and many resamples.
        found: FloatArray = np.mean([array[:, :fewest] for array in means], axis=0).T
        return found
