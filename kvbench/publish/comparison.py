"""Writes the page of a policy against others, and its downloads."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pandas import DataFrame

from kvbench.publish.downloads import write_sheets
from kvbench.publish.method import run_entry
from kvbench.publish.places import without_places
from kvbench.publish.published import published_records, published_stores
from kvbench.publish.site_list import (
    COMPARISON,
    enlist,
    find_neighbours,
    run_site_beside,
    site_folder,
)
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from kvbench.system.files import write_text_atomically
from leaderboards.aggregate.arguments import Arguments, arguments_of_records
from leaderboards.aggregate.duels import Duel, duels
from leaderboards.aggregate.lost_answers import ChangedAnswer, changed_answers, lost_answers
from leaderboards.aggregate.outcomes import OpponentVerdict, join_outcomes, list_areas
from leaderboards.aggregate.pooled import Pooled, pool, pool_levels
from leaderboards.downloads.sheets import Sheet, file_name
from leaderboards.downloads.tables import duels_sheet, means_sheet, outcomes_sheet, pooled_sheet
from leaderboards.errors import LeaderboardError
from leaderboards.pages.comparison import beside_section, build_comparison, contexts_text
from leaderboards.pages.front import FRONT
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.lost_answers import changed_section, lost_section
from policies import FULL


@dataclass(frozen=True)
class PublishedComparison:
    """A policy against others, as it was published."""

    page: Path
    outcomes: list[OpponentVerdict]  # none where the model can do no task
    duels: list[Duel]
    presses: list[Arguments]  # of the policy and its opponents, task by task
    next_step: str  # the command that makes pages of its run
    # Of the full cache, by opponent: the questions that one of the two has right.
    changed: Mapping[str, Sequence[ChangedAnswer]]
    table: Sequence[Pooled]  # its means, and those of runs beside it; none without such runs


def publish_comparison(
    store: Store,
    records: DataFrame,
    policy: str,
    others: Sequence[str],
    folder: Path | None,
    unmastered: Mapping[str, str],
    warnings: Sequence[str] = (),
    earlier: Sequence[str] = (),
    beside: Sequence[Pooled] = (),
) -> PublishedComparison:
    """Writes the page of a policy against others, and its tables; raises :class:`KVBenchError`
    where no cell of both is complete.

    ``unmastered``: why the model cannot do a task, which has no verdict and enters nothing.
    ``warnings``: what a reader of the verdicts has to know. ``earlier``: the other runs whose
    answers are among the records. ``beside``: what other runs lose, for the table of all."""
    # Replaced first, so that page, downloads and verdicts name a policy alike.
    records, (shown,) = published_records(records), published_stores([store])
    policy, others = without_places(policy), [without_places(other) for other in others]
    policies = (policy, *others)
    failed = _failed_cells(records, policies)
    try:
        verdicts = duels(records, policy, others)
    except LeaderboardError as error:
        reason = f": {failed[0]}" if failed else ""
        raise KVBenchError(f"{error}{reason}") from error
    by_level = pool_levels(records, policy, others, unmastered)
    outcomes = join_outcomes(by_level, pool(records, policy, others, unmastered))
    tasks = list(dict.fromkeys(duel.task for duel in verdicts))
    presses = _presses(records, policies, tasks)
    changed: dict[str, list[ChangedAnswer]] = {}
    if policy == FULL:
        changed = {other: changed_answers(records, policy, other) for other in others}
    table: list[Pooled] = []
    if beside:
        label = f"{policy} of {shown.folder.name}"
        table = [*(replace(row, policy=label) for row in by_level), *beside]
    # By the folder that was given: the next line puts the usual one in its place.
    next_step = _site_command(store, folder)
    folder = site_folder(folder, [store])
    name = f"compare-{file_name(policy)}"
    sheets = _sheets(name, outcomes, verdicts, unmastered, table)
    write_sheets(folder, sheets)
    path = folder / f"{name}.html"
    page = build_comparison(
        shown.identity.model,
        verdicts,
        failed,
        sheets,
        outcomes,
        presses,
        run=run_entry(shown.folder.name, shown.run),
        contexts=_contexts(store, tasks),
        beside=run_site_beside(folder, store),
        unmastered=unmastered,
        warnings=_shown_warnings(warnings, shown),
        next_step=without_places(next_step),
        earlier=earlier,
        lost=lost_section([lost for lost in lost_answers(records) if lost.policy == policy]),
        more=[part for part in (beside_section(table), changed_section(changed)) if part],
        neighbours=find_neighbours(folder),
    )
    write_text_atomically(path, page)
    enlist(folder, COMPARISON, [path], [shown])
    return PublishedComparison(path, outcomes, verdicts, presses, next_step, changed, table)


def _presses(records: DataFrame, policies: Sequence[str], tasks: Sequence[str]) -> list[Arguments]:
    """Lists the arguments that the presses ran with, task by task; a press without any has none."""
    used = arguments_of_records(records[records["policy"].isin(policies)])
    presses = []
    for policy in policies:
        for task in tasks:
            arguments = used.get((policy, task))
            if arguments is not None and arguments.used:
                presses.append(arguments)
    return presses


def _site_command(store: Store, folder: Path | None) -> str:
    """Returns the command that makes the pages of a run: beside a comparison, unless another run
    has its pages there."""
    words = ["python", "-m", "kvbench", "site", str(store.folder)]
    if folder is not None and not (folder / FRONT).is_file():
        words += ["--site", str(folder)]
    return shlex.join(words)


def _contexts(store: Store, tasks: Collection[str]) -> str:
    counts = {task.name: task.contexts for task in store.identity.tasks if task.name in tasks}
    return contexts_text(counts)


def _shown_warnings(warnings: Sequence[str], run: Store) -> list[str]:
    """Returns the warnings as a page has them, and behind them why the run failed, if it did."""
    shown = [without_places(warning) for warning in warnings]
    if run.run.reason:
        shown.append(run.run.reason)
    return shown


def _sheets(
    name: str,
    outcomes: Sequence[OpponentVerdict],
    verdicts: Sequence[Duel],
    unmastered: Mapping[str, str],
    table: Sequence[Pooled],
) -> list[Sheet]:
    """Makes the downloads of a comparison, what is read first at their head."""
    levels: list[Pooled] = []
    for outcome in outcomes:
        levels += outcome.rows
    sheets = [
        means_sheet(f"{name}-means", levels),
        outcomes_sheet(f"{name}-outcomes", outcomes),
        pooled_sheet(f"{name}-pooled", list_areas(outcomes)),
        duels_sheet(f"{name}-verdicts", verdicts, unmastered),
    ]
    if table:
        sheets.append(means_sheet(f"{name}-beside", table))
    return sheets


def _failed_cells(records: DataFrame, policies: Sequence[str]) -> list[str]:
    """Says of each cell of some policies that failed why it did."""
    failed = records[(records["status"] != "ok") & records["policy"].isin(policies)]
    cells = with_levels(failed).groupby(["policy", "task", "level"], sort=False, observed=True)
    lines = []
    for (policy, task, level), cell in cells:
        lines.append(f"{policy} at {level.where} of {task}: {cell['reason'].iloc[0]}")
    return lines
