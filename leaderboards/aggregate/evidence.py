"""Evidence for a claim: means over the records of an experiment, as measured and in the same
resamples of contexts.

Every number is an array of shape (1 + resamples,), so that ratios, differences and areas are plain
arithmetic, and what is set against one another varies together. Draws of a random treatment belong
to their context: whoever resamples contexts resamples draws too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, factorize

from leaderboards.aggregate.leading_measures import ABOVE_CHANCE, has_itself
from leaderboards.metrics import METRICS
from leaderboards.statistics.area import mean_heights
from leaderboards.statistics.bootstrap import FloatArray, Resampler, task_seed
from policies.declaration.levels import Level
from policies.declaration.names import FULL

# Of a perfect score, which the full cache must reach: what fails has nothing to lose.
LEAST_CLEAN = 0.5
# Of running text nobody gets half of the tokens right: 20 points above a full stop at every place,
# as on a board.
LEAST_OF = {"next_token_accuracy": 0.126 + ABOVE_CHANCE / 100}
FEWEST_CONTEXTS = 6  # below it no test of contexts can tell anything
# Said of a claim that more contexts would not decide, in a register and on the page of method.
UNMET = "precondition not met"


class NoEvidenceError(Exception):
    """Raised where records that a claim needs are not there; the message says which."""


class PreconditionError(NoEvidenceError):
    """Raised where the records are there and the model does not meet what a claim takes, however
    many contexts are run: most often the full cache has too little of a task."""


class TooFewError(NoEvidenceError):
    """Raised where some contexts show what a claim is about, and too few do. ``times``: about how
    many times as many contexts would be enough."""

    def __init__(self, reason: str, times: float) -> None:
        super().__init__(reason)
        self.times = times


def filled_table(tables: Mapping[str, DataFrame], name: str, filled: str) -> DataFrame:
    """Returns a table of a study. Raises :class:`NoEvidenceError` where nothing was ``filled``,
    such as "observed"."""
    table = tables.get(name)
    if table is None or table.empty:
        raise NoEvidenceError(f"nothing was {filled}: there is no table {name}")
    return table


@dataclass(frozen=True)
class TaskEvidence:
    """The records of one task of an experiment, and what resamples its contexts."""

    task: str
    records: DataFrame
    seed: int
    every_task: bool = False  # whether it is measured although the model cannot do it
    name: str = ""  # of the evidence: the context that resamples have more is another one in each
    times: int = 1
    # Filled as cells are asked for.
    _by_cell: dict[tuple[str, float | None], DataFrame] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def resampler(self) -> Resampler:
        """Returns what resamples the contexts; the same seed and task resample the same."""
        contexts = self.records["draw_id"].nunique()
        return Resampler.of(contexts, task_seed(self.seed, self.task), self.times)

    @property
    def contexts(self) -> int:
        return self.resampler.count

    @cached_property
    def _by_policy(self) -> dict[str, DataFrame]:
        """Sorts the records by policy once, with the number of their context as ``draw``: claims
        and studies ask for hundreds of cells."""
        # Numbered over all policies, so that a context has the same number in each cell.
        numbered = self.records.assign(draw=factorize(self.records["draw_id"], sort=True)[0])
        by_policy = {}
        for policy, records in numbered.groupby("policy", sort=False, observed=True):
            by_policy[str(policy)] = records
        return by_policy

    def mean(
        self,
        policy: str,
        level: float | None = None,
        column: str = "right",
        has_width: bool = True,
        **where: object,
    ) -> FloatArray:
        """Averages a column over the answers of a policy at a level, None where it has none: shape
        (1 + resamples,). What failed or is NaN counts as 0. ``has_width``: whether resamples differ
        where all contexts agree, as those of an interval must. ``where``: values of other columns.

        Raises :class:`NoEvidenceError` without records."""
        here = self._rows_at(policy, level, column, where)
        values = np.nan_to_num(here[column].to_numpy(dtype=np.float64))
        bounds = None
        if has_width and column in METRICS:
            bounds = METRICS[column].range
        # The name seeds the context that resamples have more: a cell meets the same one wherever it
        # is averaged again, and another cell another one.
        name = f"{policy}/{level}/{column}/{sorted(where.items())}"
        if self.name:
            name = f"{self.name}/{name}"
        return self.resampler.means(values, here["draw"].to_numpy(), bounds, name)

    def by_context(
        self, policy: str, level: float | None, column: str, **where: object
    ) -> FloatArray:
        """Averages the same context by context: shape (contexts,), NaN of contexts without such an
        answer.

        Raises :class:`NoEvidenceError` without records of the policy and level."""
        here = self._rows_at(policy, level, column, {})
        for name, value in where.items():
            here = here[here[name] == value]
        values = here[column].astype(np.float64).fillna(0)
        # pandas carries along what rounding loses: sums as of :func:`sum_by_context` would move the
        # last digits of correlations that were published.
        means = values.groupby(here["draw"]).mean()
        of_contexts: FloatArray = means.reindex(range(self.contexts)).to_numpy()
        return of_contexts

    def _rows_at(
        self, policy: str, level: float | None, column: str, where: Mapping[str, object]
    ) -> DataFrame:
        records = self._records_at(policy, level)
        # What failed has no value and stays, as 0: a treatment must not gain by failing. What the
        # column does not concern goes.
        chosen = records[column].notna() | (records["status"] != "ok")
        for name, value in where.items():
            chosen &= records[name] == value
        if not chosen.any():
            at = "" if level is None else f" at {level:g}"
            raise NoEvidenceError(f"{policy}{at} has no answer of {self.task} with {column}")
        # Choosing rows of a frame takes as long as all else here.
        return records if chosen.all() else records[chosen]

    def _records_at(self, policy: str, level: float | None) -> DataFrame:
        """Returns the records of a policy at a level, or at all; of a cell they are asked for once
        for each measure."""
        cell = (policy, level)
        if cell not in self._by_cell:
            records = self._by_policy.get(policy, self.records[:0])
            if level is not None:
                records = records[np.isclose(records["level"].astype(float), level)]
            self._by_cell[cell] = records
        return self._by_cell[cell]

    def clean(self, column: str = "right", **where: object) -> FloatArray:
        """Averages the same over the answers of the full cache, shape (1 + resamples,).

        Raises :class:`PreconditionError` where the model has less than half of it right, or of next
        tokens too few above chance, unless ``every_task``; :class:`NoEvidenceError` without records
        of the full cache."""
        clean = self.mean(FULL, None, column, True, **where)
        least = _least(column)
        # The mean as measured decides; resamples below the bound are what its interval is for.
        if clean[0] < least and not self.every_task:
            raise PreconditionError(
                f"{self.task}: the full cache reaches {clean[0]:.3g} of {column}, not {least:g}"
            )
        return clean

    def shortfall(self, column: str, scale: str) -> str:
        """Says how little the model itself has of the task, where that is too little to judge
        anything by; empty where it can do it. ``scale``: what the column is a percentage of.

        Raises :class:`NoEvidenceError` without records of the full cache."""
        reached = float(self.mean(FULL, None, column)[0])
        least = _least(column)
        if reached >= least:
            return ""
        bounds = METRICS[column].range
        highest = bounds[1] if bounds else 1.0
        percent = 100 / highest
        return has_itself(percent * reached, scale, percent * least)

    def share_kept(self, policy: str, level: float | None, column: str = "right") -> FloatArray:
        """Returns what a treatment keeps of a perfect score, which the full cache must reach, as a
        share of it, shape (1 + resamples,).

        Raises :class:`NoEvidenceError` or :class:`PreconditionError`, as :meth:`mean` and
        :meth:`clean` do."""
        # In a resample the full cache may have nothing right, and then there is no share.
        with np.errstate(invalid="ignore", divide="ignore"):
            share: FloatArray = self.mean(policy, level, column) / self.clean(column)
        return share

    def levels(self, policy: str) -> tuple[Level, ...]:
        """Lists the levels of a policy, the least treated first; nothing of one that was not
        run."""
        here = self._by_policy.get(policy, self.records[:0])
        kinds, values = here["level_kind"].astype(str), here["level"].astype(float)
        levels = [Level(*pair) for pair in set(zip(kinds, values, strict=True))]
        return tuple(sorted(levels, key=lambda level: level.amount))

    def area(self, policy: str, levels: Sequence[float]) -> FloatArray:
        """Returns the mean height of the curve of what is kept, from the untreated cache on, shape
        (1 + resamples,).

        Raises :class:`NoEvidenceError` or :class:`PreconditionError`, as :meth:`mean` and
        :meth:`clean` do."""
        clean = self.clean()
        # 1, and NaN in those resamples in which the other shares are NaN too.
        shares = [clean / clean]
        shares += [self.share_kept(policy, level) for level in levels]
        heights = np.stack(shares, axis=1)
        places = np.tile([0.0, *levels], (len(heights), 1))
        return mean_heights(places, heights, places[:, -1])


def check_same_contexts(first: TaskEvidence, second: TaskEvidence) -> None:
    """Raises :class:`NoEvidenceError` where two runs were asked other questions: then their
    contexts are no pairs."""
    if set(first.records["question_id"]) != set(second.records["question_id"]):
        raise NoEvidenceError(f"{first.task}: the two runs were asked other questions")


def _least(column: str) -> float:
    """Returns what the full cache must reach in a column for a share of it to tell anything."""
    if column in LEAST_OF:
        return LEAST_OF[column]
    bounds = METRICS[column].bounds
    highest = bounds[1] if bounds else 1.0  # truth values have no bounds
    return LEAST_CLEAN * highest


@dataclass(frozen=True)
class Evidence:
    """The records of an experiment on one model, with the seed of its resamples, and its tables of
    studies by name. ``every_task``: whether tasks are measured too that the model cannot do.
    ``name``: of the experiment and model. ``times``: how many times as many contexts as there are
    each resample stands for, to see what more would tell."""

    records: DataFrame
    seed: int = 0
    tables: Mapping[str, DataFrame] = field(default_factory=dict)
    every_task: bool = False
    name: str = ""
    times: int = 1

    @cached_property
    def limit(self) -> int:
        """Counts the contexts of the task that has most, as ``--limit`` does: several may be of one
        draw."""
        column = "example_id" if "example_id" in self.records else "draw_id"
        counts = self.records.groupby("task", observed=True)[column].nunique()
        return max(counts.tolist(), default=0)

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Lists the tasks in the order in which they appear."""
        return tuple(map(str, self.records["task"].unique()))

    def mastered(
        self, column_of: Callable[[TaskEvidence], str]
    ) -> tuple[list[TaskEvidence], list[str]]:
        """Parts the tasks, by what leads each, into those that the model can do with the full
        cache, and the reasons why the others tell nothing."""
        mastered, reasons = [], []
        for task in map(self.of, self.tasks):
            try:
                task.clean(column_of(task))
            except NoEvidenceError as error:
                reasons.append(str(error))
            else:
                mastered.append(task)
        return mastered, reasons

    def of(self, task: str) -> TaskEvidence:
        """Returns the records of a task. Raises :class:`NoEvidenceError` where there are none."""
        if task not in self.tasks:
            raise NoEvidenceError(f"there are no records of {task}")
        records = self.records[self.records["task"] == task]
        return TaskEvidence(task, records, self.seed, self.every_task, self.name, self.times)


class Contexts:
    """Resamples the contexts of some answers, which go by their names; the same seed and experiment
    draw the same."""

    def __init__(self, contexts: NDArray[np.str_], evidence: Evidence, experiment: str) -> None:
        names, self._numbers = np.unique(contexts, return_inverse=True)
        self.count = len(names)
        seed = task_seed(evidence.seed, experiment)
        self._resampler = Resampler.of(self.count, seed, evidence.times)

    def sums(self, values: FloatArray) -> FloatArray:
        """Adds up a number of each answer: shape (1 + resamples,). ``values``: shape (answers,)."""
        return self._resampler.sums(values, self._numbers)

    def mean(self, values: FloatArray, bounds: tuple[float, float] | None = None) -> FloatArray:
        """Averages a number of each answer, which may have ``bounds``: shape (1 + resamples,).
        ``values``: shape (answers,)."""
        return self._resampler.means(values, self._numbers, bounds)
