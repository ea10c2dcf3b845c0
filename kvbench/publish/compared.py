"""Compares policies of one run with each other and with themselves in earlier runs.

Each comparison is published as a page of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from kvbench.execution.report import broken, describe_failures, fails_always
from kvbench.experiments.opponents import check_common_level
from kvbench.publish.comparison import PublishedComparison, publish_comparison
from kvbench.publish.places import without_places
from kvbench.publish.site import publish_summary, summary_rows
from kvbench.store.earlier import EarlierRun
from kvbench.store.merging import RunGroup
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.gate import Gate, GateRow
from leaderboards.aggregate.leading_measures import reasons_by_task
from leaderboards.aggregate.pairing import levels_by_policy, with_held
from leaderboards.aggregate.pooled import Pooled, pool_levels
from leaderboards.aggregate.row import SummaryRow
from policies import CONTROLS, FULL


@dataclass(frozen=True)
class Compared:
    """A policy and its opponents, as they were published."""

    policy: str
    named: tuple[str, ...]  # the opponents that somebody named, which a gate reads
    published: PublishedComparison
    warnings: tuple[str, ...]

    def gate_rows(self, gate: Gate) -> list[GateRow]:
        """Returns what a gate reads; raises :class:`KVBenchError` where there is nothing for an
        opponent that was named, or where no verdict can be given although the gate asks for one."""
        outcomes = {outcome.other: outcome for outcome in self.published.outcomes}
        rows: list[GateRow] = []
        for other in map(without_places, self.named):
            if other not in outcomes:
                reason = "no task of both is complete and can be done with the full cache"
                advice = "give easier tasks, or --every-task"
                fault = f"the gate cannot judge {self.policy} against {other}: {reason}"
                raise KVBenchError(f"{fault}; {advice}")
            rows += gate.rows(outcomes[other].rows)
        if gate.fails_if_worse and all(row.row.too_few for row in rows):
            raise KVBenchError(f"--fail-if worse could never fail: {rows[0].row.reason}")
        return rows


@dataclass(frozen=True)
class ComparedRun:
    """All that was compared of one run."""

    store: Store
    rows: list[SummaryRow]
    unmastered: dict[str, str]  # why the model cannot do a task, which has no verdict
    comparisons: list[Compared]

    @property
    def fault(self) -> str:
        """Names the policies that failed somewhere; empty where none did."""
        return describe_failures(self.rows)


def compare_press(
    store: Store,
    mine: str,
    press: str,
    others: Sequence[str],
    named: Sequence[str],
    earlier: Sequence[EarlierRun],
    site: Path | None,
    every_task: bool,
    warnings: Sequence[str],
) -> ComparedRun:
    """Compares a press, which was run now, with others of its run and with itself in earlier runs;
    raises :class:`KVBenchError` where it, or the full cache, has no answer at all. ``press``: as it
    was named; ``named``: of the others, those that somebody named."""
    # Bytes are a share of the run's own full cache, and are computed before runs are joined.
    records = with_held(store.frame())
    if reason := fails_always(records, FULL):
        raise KVBenchError(reason)
    if reason := fails_always(records, mine):
        raise KVBenchError(broken(mine, reason, press))
    rows = publish_summary(store, records)
    unmastered = {} if every_task else reasons_by_task(rows)
    run = _Run(store, records, site, unmastered)
    comparison = _compare(run, mine, others, named, earlier, warnings)
    return ComparedRun(store, rows, unmastered, [comparison])


def compare_runs(
    today: EarlierRun,
    named: Sequence[str],
    earlier: Sequence[EarlierRun],
    site: Path | None,
    every_task: bool,
    beside: Sequence[EarlierRun] = (),
) -> ComparedRun:
    """Compares policies of a stored run with others of that run, and with themselves in earlier
    runs, and runs nothing. ``beside``: runs whose own losses stand in one table with it. Controls
    are compared with nothing, but for the full cache with itself in an earlier run. Raises
    :class:`KVBenchError` where nothing can be compared."""
    for name in named:
        today.policy(name)
    store = today.store
    # Nothing is written into a stored run, which may be somebody else's.
    rows = summary_rows(today.records, RunGroup((store,)))
    unmastered = {} if every_task else reasons_by_task(rows)
    comparisons = []
    for policy in store.identity.policies:
        runs = [other for other in earlier if other.store.identity.policy(policy.name)]
        others = [name for name in named if name != policy.name]
        is_control = policy.name in CONTROLS and not (policy.name == FULL and runs)
        has_opponents = bool(others or runs)
        if has_opponents and not is_control and policy.name not in named:
            judged = unmastered
            if policy.name == FULL and not every_task:
                judged = _mastered_by_none(unmastered, runs)
            run = _Run(store, today.records, site, judged, beside_rows(today, runs, beside, judged))
            comparisons.append(_compare(run, policy.name, others, others, runs, ()))
    if not comparisons:
        folders = ", ".join(str(other.store.folder) for other in earlier)
        opponents = folders or ", ".join(named)
        policies = ", ".join(policy.name for policy in store.identity.policies)
        fault = f"{store.folder} has nothing to compare with {opponents}"
        raise KVBenchError(f"{fault}: it has {policies}")
    if any(comparison.policy == FULL for comparison in comparisons):
        unmastered = _mastered_by_none(unmastered, earlier)
    return ComparedRun(store, rows, unmastered, comparisons)


def _mastered_by_none(unmastered: Mapping[str, str], runs: Sequence[EarlierRun]) -> dict[str, str]:
    """Returns the tasks that neither side can do, where both are full caches: one that has lost a
    task is to be told so."""
    left = dict(unmastered)
    for run in runs:
        rows = summary_rows(run.records, RunGroup((run.store,)))
        reasons = reasons_by_task(rows)
        left = {task: reason for task, reason in left.items() if task in reasons}
    return left


def beside_rows(
    today: EarlierRun,
    earlier: Sequence[EarlierRun],
    beside: Sequence[EarlierRun],
    unmastered: Mapping[str, str],
) -> list[Pooled]:
    """Compares each policy of some runs with the full cache of its own run, on the questions of
    today; of a run without policies its full cache with that of the first earlier run: how much two
    runs differ that are alike. Raises :class:`KVBenchError` where they share no question."""
    questions = today.records
    rows: list[Pooled] = []
    for run in beside:
        names = [entry.name for entry in run.store.identity.policies if entry.name not in CONTROLS]
        mine, _ = run.answers(FULL, questions)
        if not names and earlier:
            theirs, _ = earlier[0].answers(FULL, questions)
            pair = (mine.assign(policy=FULL), theirs)
            other = earlier[0].policy_label(FULL)
            pooled = pool_levels(pd.concat(pair, ignore_index=True), FULL, [other], unmastered)
            rows += _labelled(pooled, run)
        for name in names:
            answers, _ = run.answers(name, questions)
            pair = (mine.assign(policy=FULL), answers.assign(policy=name))
            pooled = pool_levels(pd.concat(pair, ignore_index=True), name, [FULL], unmastered)
            rows += _labelled(pooled, run)
    return rows


def _labelled(rows: Sequence[Pooled], run: EarlierRun) -> list[Pooled]:
    """Names the run behind its policies."""
    labelled = []
    for row in rows:
        other = run.policy_label(row.other) if row.other == FULL else row.other
        policy = without_places(run.policy_label(row.policy))
        labelled.append(replace(row, policy=policy, other=without_places(other)))
    return labelled


@dataclass(frozen=True)
class _Run:
    """A run whose policies are compared, and where the pages go."""

    store: Store
    records: pd.DataFrame
    site: Path | None
    unmastered: dict[str, str]  # why the model cannot do a task, which has no verdict
    beside: Sequence[Pooled] = ()  # what other runs lose


def _compare(
    run: _Run,
    mine: str,
    others: Sequence[str],
    named: Sequence[str],
    earlier: Sequence[EarlierRun],
    warnings: Sequence[str],
) -> Compared:
    """Compares a policy with others of its run and with itself in earlier runs, and publishes
    it."""
    others, named, notes = list(others), list(named), list(warnings)
    records = run.records
    of_policy = records[records["policy"] == mine]
    levels = [*levels_by_policy(records)[mine]]
    parts, labels = [records], []
    for other_run in earlier:
        labels.append(other_run.label)
        folder = other_run.store.folder
        stored = [point.level for point in other_run.policy(mine).points]
        check_common_level(mine, levels, stored, folder)
        answers, changed = other_run.answers(mine, of_policy)
        parts.append(answers)
        others.append(other_run.policy_label(mine))
        named.append(other_run.policy_label(mine))
        if described := other_run.differences(run.store.identity, [mine]):
            notes.append(described)
        if changed:
            notes.append(f"{changed} questions have another text in {folder} and are not compared")
    together = pd.concat(parts, ignore_index=True) if earlier else records
    published = publish_comparison(
        run.store, together, mine, others, run.site, run.unmastered, notes, labels, run.beside
    )
    judged = {duel.other for duel in published.duels}
    for other in others:
        if without_places(other) not in judged:
            notes.append(f"no verdict against {other}: no cell of both is complete")
    return Compared(mine, tuple(named), published, tuple(notes))
