"""Writes what people look at: ``summary.json`` of a store, and the pages and downloads of a site."""

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame

from kvbench.models.names import title_of_model
from kvbench.publish.downloads import (
    FOLDER,
    RECORDS_FILE,
    join_study_tables,
    sheet_file,
    study_tables_of,
    table_file,
    write_records,
    write_sheets,
    write_study_tables,
)
from kvbench.publish.former_files import announce_files, remove_former_files
from kvbench.publish.method import method_of, run_entry
from kvbench.publish.places import distinct_names, without_places
from kvbench.publish.published import published_records, published_rows, published_stores
from kvbench.publish.site_list import COMPARISON, RUN, enlist, folder_of, run_site_beside
from kvbench.run.report import what_to_do
from kvbench.store.merging import RunGroup, group_runs
from kvbench.store.run_file import Identity, tolerance_of
from kvbench.store.store import SUMMARY_FILE, Store
from kvbench.system.console import warn
from kvbench.system.errors import KVBenchError
from kvbench.system.files import AtWorkError, working_in, write_text_atomically
from leaderboards.aggregate.arguments import Arguments, arguments_of_records
from leaderboards.aggregate.duels import Duel, duels
from leaderboards.aggregate.lost_answers import lost_answers
from leaderboards.aggregate.outcomes import OpponentVerdict, areas_of, outcomes_of
from leaderboards.aggregate.pooled import pool, pool_levels
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.aggregate.summary import PlannedCells, summarise
from leaderboards.downloads.sheets import Sheet, file_name, join_sheets
from leaderboards.downloads.tables import (
    attacks_sheet,
    board_sheet,
    cells_sheet,
    duels_sheet,
    means_sheet,
    outcomes_sheet,
    pooled_sheet,
)
from leaderboards.errors import LeaderboardError
from leaderboards.pages.comparison import build_comparison, contexts_text
from leaderboards.pages.examples import COLUMNS, build_examples
from leaderboards.pages.front import FRONT, METHOD, page_renderers
from leaderboards.pages.method import build_method
from leaderboards.pages.results import Results, task_page
from leaderboards.paper.of_run import figures_of_study
from leaderboards.paper.pictures import PaperFigure
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import (
    Study,
    StudyInput,
    StudySection,
    build_study,
    studies,
    studies_of,
)
from leaderboards.studies.lost_answers import lost_section
from leaderboards.studies.parts import examples_page


def summary_rows(records: DataFrame, group: RunGroup, every_task: bool = False) -> list[SummaryRow]:
    """Aggregates the records of runs, beside what these set out to fill. ``every_task``: whether tasks that the model
    cannot do enter means over tasks too."""
    identity = group.identity
    planned = PlannedCells(
        mode=identity.mode,
        contexts={task.name: task.contexts for task in identity.tasks},
        chances={
            task.name: task.chance for task in identity.tasks if task.chance > 0
        },  # without golds there is none
        policies={policy.name: policy.points for policy in identity.policies},
        covered={policy.name: policy.tasks for policy in identity.policies},
        every_task=every_task,
    )
    try:
        return summarise(records, planned)
    except LeaderboardError as error:
        raise KVBenchError(f"{_where(group.stores)} cannot be summarised: {error}") from error


def publish_summary(store: Store, records: DataFrame, every_task: bool = False) -> list[SummaryRow]:
    """Aggregates all records of a store and writes ``summary.json`` beside them, which is the same for all: its means
    leave out tasks that the model cannot do. The rows that are returned leave out nothing where ``every_task``."""
    rows = rows_of_run(store, records)
    content = json.dumps([row.model_dump() for row in rows], indent=1)
    with (
        suppress(AtWorkError),
        working_in(store.folder),
    ):  # a run that is at work writes its own at its end
        write_text_atomically(store.folder / SUMMARY_FILE, content + "\n")
    return summary_rows(records, RunGroup((store,)), every_task) if every_task else rows


def rows_of_run(store: Store, records: DataFrame, every_task: bool = False) -> list[SummaryRow]:
    """Aggregates all records of a store, warns of what is missing, and writes nothing."""
    group = RunGroup((store,))
    rows = summary_rows(records, group, every_task)
    _warn(group.stores, rows)
    return rows


def _warn(stores: Sequence[Store], rows: Sequence[SummaryRow]) -> None:
    """Warns of runs that are not complete, and of those that lack records though they were: a file is gone."""
    unfinished = [store for store in stores if store.run.status != "complete"]
    for store in unfinished:
        state = store.run.reason or store.run.status
        warn(f"warning: {store.folder} is not complete ({state}): what is missing is blank")
    of_tasks = [row for row in rows if row.task != ALL_TASKS]
    gaps = [f"{row.policy} of {row.task}: {row.reason}" for row in of_tasks if not row.complete]
    if gaps and not unfinished:
        warn(
            f"warning: {_where(stores)} lacks records ({gaps[0]}): these are blank; {what_to_do(rows)}"
        )


def _where(stores: Sequence[Store]) -> str:
    return ", ".join(str(store.folder) for store in stores)


@dataclass(frozen=True)
class PublishedRun:
    """A run as it was published."""

    pages: Sequence[Path]  # those to begin with
    rows: Sequence[SummaryRow]
    results: Results  # what its pages show, which name no place of this machine


def publish_site(
    store: Store,
    records: DataFrame,
    folder: Path | None,
    tolerance: float | None = None,
    every_task: bool = False,
    others: Sequence[Store] = (),
) -> PublishedRun:
    """Writes the pages of a run and its summary. ``others``: runs of other models or modes, which stand beside
    it on the site."""
    place = folder_of(folder, [store])
    groups = [RunGroup((store,)), *group_runs(others)]
    if others:
        publish_summary(store, records)
    frames = [records, *(group.records() for group in groups[1:])]
    first, rows, results = _write(groups, frames, place, every_task, tolerance)
    return PublishedRun(first, rows[0], results[0])


def other_model(beside: Path, runs: Sequence[Identity]) -> list[Store]:
    """Opens the run that shall stand beside others; :class:`KVBenchError` where it is of their model and mode or has
    none of their tasks."""
    other = Store.open(beside)
    if (other.identity.model, other.identity.mode) in {(run.model, run.mode) for run in runs}:
        of = f"{other.identity.model} in mode {other.identity.mode}"
        raise KVBenchError(
            f"--beside {beside}: it is of {of} too; give a run of another model or mode"
        )
    tasks = {task.name for run in runs for task in run.tasks}
    if tasks.isdisjoint(task.name for task in other.identity.tasks):
        raise KVBenchError(
            f"--beside {beside}: it has none of the tasks {', '.join(sorted(tasks))}; run one of them"
        )
    return [other]


def publish_sites(
    stores: Sequence[Store],
    folder: Path | None,
    every_task: bool = False,
    tolerance: float | None = None,
) -> list[Path]:
    """Writes the pages of several runs, on boards of their own where they cannot be compared. ``tolerance``: the loss
    in points below which a level is safe, if not that of the runs."""
    groups = group_runs(stores)
    records = [group.records() for group in groups]
    return _write(groups, records, folder_of(folder, stores), every_task, tolerance)[0]


@dataclass(frozen=True)
class _Part:
    """Holds runs that may be compared with their results, from which a board of a site is made."""

    group: RunGroup
    given: StudyInput
    studies: Sequence[Study]
    results: Results

    @property
    def labels(self) -> dict[str, str]:
        """Returns the columns of downloads that tell these results from others of the site."""
        return {"model": self.group.identity.model, "setting": self.group.setting}


def _write(
    groups: Sequence[RunGroup],
    records: Sequence[DataFrame],
    folder: Path,
    every_task: bool = False,
    tolerance: float | None = None,
) -> tuple[list[Path], list[list[SummaryRow]], list[Results]]:
    """Writes all files of a site; returns the pages to begin with, and the rows of each group with what is shown."""
    rows = [
        _rows_of(group, of_group, every_task, len(groups))
        for group, of_group in zip(groups, records, strict=True)
    ]
    jobs = [store.run.job for group in groups for store in group.stores]
    points = tolerance_of(jobs, tolerance)  # one, as a page names it once
    # From here on nothing names a place of this machine.
    shown = _published_groups(groups)
    folders = distinct_names(str(store.folder) for group in groups for store in group.stores)
    records = [published_records(frame) for frame in records]
    rows_shown = [published_rows(of_group) for of_group in rows]
    policies = tuple(dict.fromkeys(row.policy for of_group in rows_shown for row in of_group))
    runs = [_runs_of(group, folders) for group in shown]
    inputs = [
        replace(_study_input(*one, number), policies=policies)
        for number, one in enumerate(zip(shown, records, runs, strict=True), start=1)
    ]
    inputs = [replace(one, modes=_other_modes(one, inputs)) for one in inputs]
    parts = [_part(*one, points) for one in zip(shown, inputs, rows_shown, runs, strict=True)]
    stores = [store for group in shown for store in group.stores]
    method = method_of({folders[str(store.folder)]: store.run for store in stores}, records)
    tasks = {str(task) for frame in records for task in frame["task"].unique()}
    pages: dict[str, str] = {}
    first, sheets, results = [FRONT], list[Sheet](), list[Results]()
    for number, part in enumerate(parts, start=1):
        for task, of_task in part.given.records[[*COLUMNS]].groupby("task", sort=False):
            above = task_page(str(task)) if len(tasks) > 1 else FRONT
            pages[examples_page(str(task), number)] = build_examples(
                part.given.model, str(task), of_task, above
            )
        own = [
            cells_sheet(part.results.rows),
            board_sheet(part.results.standings, part.results.boards),
        ]
        own += [attacks_sheet(part.results.attacks)] if part.results.attacks else []
        on_front = list[StudySection]()
        for study in part.studies:
            beside = [
                one.given
                for one in parts
                if one.given.model != part.given.model and study in one.studies
            ]
            given = replace(part.given, beside=beside)
            if study.is_on_front:
                content = study.find(given)
                on_front += content.parts
            else:
                page = study.file_name(number)
                pages[page], content = build_study(study, given)
                first.append(page)
            own += content.sheets
        sheets += [sheet.with_labels(part.labels) for sheet in own]
        results.append(replace(part.results, sections=on_front))
    pages |= {name: render() for name, render in page_renderers(results, method.tasks).items()}
    together = join_sheets(sheets)
    names = [*pages, METHOD, f"{FOLDER}/{RECORDS_FILE}", *map(sheet_file, together)]
    names += map(table_file, study_tables_of(stores))
    announce_files(folder, names)
    write_sheets(folder, together)
    answers = write_records(folder, [(part.labels, part.given.records) for part in parts])
    pages[METHOD] = build_method(method, together, RECORDS_FILE, answers)
    for name, text in pages.items():
        write_text_atomically(folder / name, text)
    write_study_tables(folder, [(part.labels, part.group.stores) for part in parts])
    remove_former_files(folder, names)
    pages_first = [folder / name for name in first]
    enlist(folder, RUN, pages_first, stores)
    return pages_first, rows, results


def _rows_of(
    group: RunGroup, records: DataFrame, every_task: bool, groups: int
) -> list[SummaryRow]:
    """Aggregates the records of a group; a single run of a site gets its summary too."""
    if groups == 1 and len(group.stores) == 1:
        return publish_summary(group.stores[0], records, every_task)
    rows = summary_rows(records, group, every_task)
    _warn(group.stores, rows)
    return rows


def _published_groups(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Returns the groups with their runs as they are published: models are told apart over all groups."""
    shown = iter(published_stores([store for group in groups for store in group.stores]))
    return [replace(group, stores=tuple(next(shown) for _ in group.stores)) for group in groups]


def _runs_of(group: RunGroup, names: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
    """Returns what ``run.json`` of each run holds. ``names``: of runs, by their folders."""
    return {
        names[str(store.folder)]: store.run.model_dump(mode="json", exclude={"job"})
        for store in group.stores
    }


def _other_modes(given: StudyInput, inputs: Sequence[StudyInput]) -> list[StudyInput]:
    """Returns the results of the same model in other modes."""
    mode = given.mode
    return [one for one in inputs if one.model == given.model and one.mode != mode]


def _part(
    group: RunGroup,
    given: StudyInput,
    rows: Sequence[SummaryRow],
    runs: Mapping[str, Mapping[str, Any]],
    tolerance: float,
) -> _Part:
    """Joins all that is shown of a group with the studies that have sections or pages of it."""
    identity = group.identity
    chosen = studies_of(given)
    families = {policy.name: policy.family for policy in identity.policies}
    names = {
        study.title: study.file_name(given.number) for study in chosen if not study.is_on_front
    }
    model = title_of_model(identity.model, identity.model_in_words)
    shown: dict[str, Any] = {"setting": group.setting, "families": families, "studies": names}
    shown |= {"title": model.title, "described": model.in_words}
    return _Part(
        group,
        given,
        chosen,
        Results.of(given.records, rows, runs, identity.model, tolerance, **shown),
    )


def _study_input(
    group: RunGroup, records: DataFrame, runs: Mapping[str, Mapping[str, Any]], number: int = 1
) -> StudyInput:
    tables = join_study_tables(
        group.stores, {name for study in studies().values() for name in study.tables}
    )
    frames = {table.name: rows.to_pandas() for table, rows in tables.items()}
    return StudyInput(group.identity.model, records, list(runs.values()), frames, number=number)


def study_figures(given: StudyInput) -> list[PaperFigure]:
    """Returns the pictures of the studies of a run, as their pages have them. ``given``: of :func:`study_inputs`."""
    return [
        figure
        for study in studies_of(given)
        for figure in figures_of_study(study, study.find(given))
    ]


def study_inputs(store: Store, other: Store | None = None) -> StudyInput:
    """Returns what studies of a run read, with the run beside it among the other models or modes."""
    groups = _published_groups([RunGroup((one,)) for one in (store, other) if one is not None])
    names = distinct_names(str(one.folder) for group in groups for one in group.stores)
    given, *beside = (
        _study_input(group, group.records(), _runs_of(group, names), number)
        for number, group in enumerate(groups, start=1)
    )
    models = [one for one in beside if one.model != given.model]
    return replace(given, beside=models, modes=_other_modes(given, beside))


@dataclass(frozen=True)
class PublishedComparison:
    """A policy against others, as it was published."""

    page: Path
    outcomes: list[OpponentVerdict]  # none where the model can do no task
    duels: list[Duel]
    presses: list[Arguments]  # of the policy and its opponents, task by task
    next_step: str  # the command that makes pages of its run


def publish_comparison(
    store: Store,
    records: DataFrame,
    policy: str,
    others: Sequence[str],
    folder: Path | None,
    unmastered: Mapping[str, str],
    warnings: Sequence[str] = (),
    earlier: Sequence[str] = (),
) -> PublishedComparison:
    """Writes the page of a policy against others, and its tables. ``unmastered``: why the model cannot do a task, which
    has no verdict and enters nothing. ``warnings``: what a reader of the verdicts has to know. ``earlier``: the other
    runs whose answers are among the records."""
    records, (shown,) = published_records(records), published_stores([store])
    policy, others = without_places(policy), [without_places(other) for other in others]
    try:
        verdicts = duels(records, policy, others)
    except LeaderboardError as error:
        failed = _failed_cells(records, (policy, *others))
        raise KVBenchError(f"{error}{f': {failed[0]}' if failed else ''}") from error
    outcomes = outcomes_of(
        pool_levels(records, policy, others, unmastered), pool(records, policy, others, unmastered)
    )
    used = arguments_of_records(records[records["policy"].isin((policy, *others))])
    tasks = dict.fromkeys(duel.task for duel in verdicts)
    keys = [(name, task) for name in (policy, *others) for task in tasks]
    presses = [used[key] for key in keys if key in used and used[key].used]
    # Pages of the run are made beside this one, unless another run has its pages there.
    place = [] if folder is None or (folder / FRONT).is_file() else ["--site", str(folder)]
    next_step = shlex.join(["python", "-m", "kvbench", "site", str(store.folder), *place])
    folder = folder_of(folder, [store])
    name = f"compare-{file_name(policy)}"
    sheets = _sheets_of(name, outcomes, verdicts, unmastered)
    write_sheets(folder, sheets)
    path = folder / f"{name}.html"
    page = build_comparison(
        shown.identity.model,
        verdicts,
        _failed_cells(records, (policy, *others)),
        sheets,
        outcomes,
        presses,
        run=run_entry(shown.folder.name, shown.run),
        contexts=contexts_text(
            {task.name: task.contexts for task in store.identity.tasks if task.name in tasks}
        ),
        beside=run_site_beside(folder, store),
        unmastered=unmastered,
        warnings=[
            *map(without_places, warnings),
            *([fault] if (fault := shown.run.reason) else []),
        ],
        next_step=without_places(next_step),
        earlier=earlier,
        lost=lost_section([one for one in lost_answers(records) if one.policy == policy]),
    )
    write_text_atomically(path, page)
    enlist(folder, COMPARISON, [path], [shown])
    return PublishedComparison(path, outcomes, verdicts, presses, next_step)


def _sheets_of(
    name: str,
    outcomes: Sequence[OpponentVerdict],
    verdicts: Sequence[Duel],
    unmastered: Mapping[str, str],
) -> list[Sheet]:
    """Makes the downloads of a comparison, what is read first at their head."""
    rows = [row for one in outcomes for row in one.rows]
    return [
        means_sheet(f"{name}-means", rows),
        outcomes_sheet(f"{name}-outcomes", outcomes),
        pooled_sheet(f"{name}-pooled", areas_of(outcomes)),
        duels_sheet(f"{name}-verdicts", verdicts, unmastered),
    ]


def _failed_cells(records: DataFrame, policies: Sequence[str]) -> list[str]:
    failed = records[(records["status"] != "ok") & records["policy"].isin(policies)]
    cells = with_levels(failed).groupby(["policy", "task", "level"], sort=False, observed=True)
    return [
        f"{policy} at {level.where} of {task}: {cell['reason'].iloc[0]}"
        for (policy, task, level), cell in cells
    ]
