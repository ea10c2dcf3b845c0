"""Compares policies of one run with each other and with themselves in earlier runs, and publishes each comparison."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from kvbench.experiments.opponents import check_common_level
from kvbench.publish.places import without_places
from kvbench.publish.site import (
    PublishedComparison,
    publish_comparison,
    publish_summary,
    summary_rows,
)
from kvbench.run.report import broken, fails_always, failures_of
from kvbench.store.earlier import EarlierRun
from kvbench.store.merging import RunGroup
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.gate import Gate, GateRow
from leaderboards.aggregate.lead import reasons_by_task
from leaderboards.aggregate.pairing import levels_by_policy, with_held
from leaderboards.aggregate.row import SummaryRow
from policies import CONTROLS, FULL


@dataclass(frozen=True)
class Compared:
    """A policy and its opponents, as they were published."""

    policy: str
    named: tuple[str, ...]  # the opponents that somebody named, which a gate reads
    published: PublishedComparison
    warnings: tuple[str, ...]

    def unmet(self, others: Sequence[str]) -> list[str]:
        """Lists the opponents with which no cell of both is complete."""
        met = {duel.other for duel in self.published.duels}
        return [other for other in others if without_places(other) not in met]

    def gate_rows(self, gate: Gate) -> list[GateRow]:
        """Returns what a gate reads; :class:`KVBenchError` where there is nothing for an opponent that was named."""
        outcomes = {one.other: one for one in self.published.outcomes}
        rows: list[GateRow] = []
        for other in map(without_places, self.named):
            if other not in outcomes:
                reason = "no task of both is complete and can be done with the full cache"
                advice = "give easier tasks, or --every-task"
                raise KVBenchError(
                    f"the gate cannot judge {self.policy} against {other}: {reason}; {advice}"
                )
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
        return failures_of(self.rows)


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
    """Compares a press, which was run now, with others of its run and with itself in earlier runs. ``press``: as it was
    named; ``named``: of the others, those that somebody named."""
    records = with_held(store.frame())
    if reason := fails_always(records, FULL):
        raise KVBenchError(reason)
    if reason := fails_always(records, mine):
        raise KVBenchError(broken(mine, reason, press))
    rows = publish_summary(store, records)
    unmastered = {} if every_task else reasons_by_task(rows)
    one = _compared(store, records, mine, (others, named), earlier, site, unmastered, warnings)
    return ComparedRun(store, rows, unmastered, [one])


def compare_runs(
    today: EarlierRun,
    named: Sequence[str],
    earlier: Sequence[EarlierRun],
    site: Path | None,
    every_task: bool,
) -> ComparedRun:
    """Compares policies of a stored run with others of that run, and with themselves in earlier runs, and runs nothing.
    Controls are compared with nothing, but for the full cache with itself in an earlier run."""
    for name in named:
        today.policy(name)
    store, records = today.store, today.records
    rows = summary_rows(records, RunGroup((store,)))
    unmastered = {} if every_task else reasons_by_task(rows)
    comparisons = []
    for policy in store.identity.policies:
        runs = [run for run in earlier if run.store.identity.policy(policy.name)]
        is_control = policy.name in CONTROLS and not (policy.name == FULL and runs)
        others = [name for name in named if name != policy.name]
        if is_control or policy.name in named or not (others or runs):
            continue
        comparisons.append(
            _compared(store, records, policy.name, (others, others), runs, site, unmastered, ())
        )
    if not comparisons:
        folders = ", ".join(str(run.store.folder) for run in earlier)
        has = ", ".join(policy.name for policy in store.identity.policies)
        raise KVBenchError(
            f"{store.folder} has nothing to compare with {folders or ', '.join(named)}: it has {has}"
        )
    return ComparedRun(store, rows, unmastered, comparisons)


def _compared(
    store: Store,
    records: pd.DataFrame,
    mine: str,
    sides: tuple[Sequence[str], Sequence[str]],
    earlier: Sequence[EarlierRun],
    site: Path | None,
    unmastered: dict[str, str],
    warnings: Sequence[str],
) -> Compared:
    others, named = (list(side) for side in sides)
    levels = [*levels_by_policy(records)[mine]]
    parts, notes = [records], list(warnings)
    for run in earlier:
        check_common_level(
            mine, levels, [point.level for point in run.policy(mine).points], run.store.folder
        )
        answers, changed = run.answers(mine, records[records["policy"] == mine])
        parts.append(answers)
        others.append(run.name_of(mine))
        named.append(run.name_of(mine))
        if described := run.differences(store.identity, [mine]):
            notes.append(described)
        if changed:
            notes.append(
                f"{changed} questions have another text in {run.store.folder} and are not compared"
            )
    together = pd.concat(parts, ignore_index=True) if earlier else records
    published = publish_comparison(
        store, together, mine, others, site, unmastered, notes, [run.label for run in earlier]
    )
    one = Compared(mine, tuple(named), published, tuple(notes))
    unmet = [
        f"no verdict against {other}: no cell of both is complete" for other in one.unmet(others)
    ]
    return Compared(mine, tuple(named), published, (*notes, *unmet))
