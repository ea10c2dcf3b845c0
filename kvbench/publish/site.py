"""Writes what people look at: ``summary.json`` of a store, and the pages and downloads of a
site."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from pandas import DataFrame

from kvbench.execution.report import what_to_do
from kvbench.publish.downloads import (
    FOLDER,
    RECORDS_FILE,
    downloaded_tables,
    sheet_file,
    table_file,
    write_records,
    write_sheets,
    write_study_tables,
)
from kvbench.publish.former_files import announce_files, remove_former_files
from kvbench.publish.method import describe_method
from kvbench.publish.methods import about_methods, find_left_out, methods_page
from kvbench.publish.parts import Part, list_stores, make_parts
from kvbench.publish.places import distinct_names
from kvbench.publish.site_list import RUN, enlist, find_neighbours, site_folder
from kvbench.store.merging import RunGroup, group_runs
from kvbench.store.run_file import Identity, choose_tolerance
from kvbench.store.store import SUMMARY_FILE, Store
from kvbench.system.console import warn
from kvbench.system.errors import KVBenchError
from kvbench.system.files import AtWorkError, working_in, write_text_atomically
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.aggregate.summary import PlannedCells, summarise
from leaderboards.downloads.sheets import Sheet, join_sheets
from leaderboards.downloads.tables import (
    attacks_sheet,
    board_sheet,
    cells_sheet,
)
from leaderboards.errors import LeaderboardError
from leaderboards.pages.examples import EXAMPLE_COLUMNS, build_examples
from leaderboards.pages.front import FRONT, METHOD, page_renderers
from leaderboards.pages.method import build_method
from leaderboards.pages.methods.all_methods import METHODS_PAGE, METHODS_TITLE
from leaderboards.pages.results import Results, task_page
from leaderboards.pages.uses import use_matrix
from leaderboards.rendering.templating import Neighbours
from leaderboards.studies.declaration import (
    Study,
    StudyInput,
    StudySection,
    build_study,
)
from leaderboards.studies.parts import examples_page


def summary_rows(records: DataFrame, group: RunGroup, every_task: bool = False) -> list[SummaryRow]:
    """Aggregates the records of runs, beside what these set out to fill; raises
    :class:`KVBenchError` where they cannot be aggregated. ``every_task``: whether tasks that the
    model cannot do enter means over tasks too."""
    identity = group.identity
    contexts, chances = {}, {}
    for task in identity.tasks:
        contexts[task.name] = task.contexts
        if task.chance > 0:  # without golds there is none
            chances[task.name] = task.chance
    points, covered = {}, {}
    for policy in identity.policies:
        points[policy.name] = policy.points
        covered[policy.name] = policy.tasks
    planned = PlannedCells(identity.mode, contexts, points, chances, covered, every_task)
    try:
        return summarise(records, planned)
    except LeaderboardError as error:
        raise KVBenchError(f"{_where(group.stores)} cannot be summarised: {error}") from error


def run_results(
    stores: Sequence[Store], every_task: bool = False, tolerance: float | None = None
) -> list[Results]:
    """Returns what the pages of some runs show, a part for each group that may be compared, and
    writes nothing. Raises :class:`KVBenchError` where records cannot be aggregated."""
    parts = aggregate_groups(group_runs(stores), every_task, tolerance)
    return [part.results for part in parts]


def aggregate_groups(
    groups: Sequence[RunGroup], every_task: bool = False, tolerance: float | None = None
) -> list[Part]:
    """Returns what is shown of groups of runs, and writes nothing. Raises :class:`KVBenchError`
    where records cannot be aggregated."""
    records = [group.records() for group in groups]
    rows = []
    for group, frame in zip(groups, records, strict=True):
        rows.append(summary_rows(frame, group, every_task))
    points = choose_tolerance([store.run.job for store in list_stores(groups)], tolerance)
    return make_parts(groups, records, rows, points)


def publish_summary(store: Store, records: DataFrame, every_task: bool = False) -> list[SummaryRow]:
    """Aggregates all records of a store and writes ``summary.json`` beside them, which is the same
    for all: its means leave out tasks that the model cannot do. The rows that are returned leave
    out nothing where ``every_task``. Raises :class:`KVBenchError` where records cannot be
    aggregated or the file cannot be written."""
    rows = rows_of_run(store, records)
    if store.is_packed:
        return rows
    content = json.dumps([row.model_dump() for row in rows], indent=1)
    # A run that is at work writes its own summary at its end.
    with suppress(AtWorkError), working_in(store.folder):
        write_text_atomically(store.folder / SUMMARY_FILE, content + "\n")
    if every_task:
        return summary_rows(records, RunGroup((store,)), every_task)
    return rows


def rows_of_run(store: Store, records: DataFrame, every_task: bool = False) -> list[SummaryRow]:
    """Aggregates all records of a store, warns of what is missing, and writes nothing; raises
    :class:`KVBenchError` where they cannot be aggregated."""
    group = RunGroup((store,))
    rows = summary_rows(records, group, every_task)
    _warn(group.stores, rows)
    return rows


def _warn(stores: Sequence[Store], rows: Sequence[SummaryRow]) -> None:
    """Warns of runs that are not complete, and of those that lack records though they were: a file
    is gone."""
    is_unfinished = False
    for store in stores:
        if store.run.status != "complete":
            is_unfinished = True
            state = store.run.reason or store.run.status
            warn(f"warning: {store.folder} is not complete ({state}): what is missing is blank")
    if is_unfinished:
        return
    for row in rows:
        if row.task != ALL_TASKS and not row.complete:
            gap = f"{row.policy} of {row.task}: {row.reason}"
            advice = f"these are blank; {what_to_do(rows)}"
            warn(f"warning: {_where(stores)} lacks records ({gap}): {advice}")
            return


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
    """Writes the pages of a run and its summary. ``others``: runs of other models or modes, which
    stand beside it on the site. Raises :class:`KVBenchError` where records cannot be aggregated or
    a file cannot be written."""
    # Its folder is chosen by the run alone: those beside it do not rename the site.
    place = site_folder(folder, [store])
    groups = [RunGroup((store,)), *group_runs(others)]
    if others:
        publish_summary(store, records)
    frames = [records, *(group.records() for group in groups[1:])]
    return _write(groups, frames, place, every_task, tolerance)[0]


def other_model(beside: Path, runs: Sequence[Identity]) -> list[Store]:
    """Opens the run that shall stand beside others; raises :class:`KVBenchError` where it is of
    their model and mode or has none of their tasks."""
    other = Store.open(beside)
    model, mode = other.identity.model, other.identity.mode
    tasks: set[str] = set()
    for run in runs:
        if (run.model, run.mode) == (model, mode):
            reason = f"it is of {model} in mode {mode} too"
            raise KVBenchError(f"--beside {beside}: {reason}; give a run of another model or mode")
        tasks.update(task.name for task in run.tasks)
    if tasks.isdisjoint(task.name for task in other.identity.tasks):
        reason = f"it has none of the tasks {', '.join(sorted(tasks))}"
        raise KVBenchError(f"--beside {beside}: {reason}; run one of them")
    return [other]


def publish_sites(
    stores: Sequence[Store],
    folder: Path | None,
    every_task: bool = False,
    tolerance: float | None = None,
) -> Sequence[Path]:
    """Writes the pages of several runs, on boards of their own where they cannot be compared, and
    returns the pages to begin with. ``tolerance``: the loss in points below which a level is safe,
    if not that of the runs. Raises :class:`KVBenchError` where records cannot be aggregated or a
    file cannot be written."""
    groups = group_runs(stores)
    records = [group.records() for group in groups]
    return _write(groups, records, site_folder(folder, stores), every_task, tolerance)[0].pages


@dataclass
class _Contents:
    """Collects what a site holds while its parts are built."""

    first: list[str] = field(default_factory=lambda: [FRONT])  # the pages to begin with
    pages: dict[str, str] = field(default_factory=dict)  # texts by file name
    sheets: list[Sheet] = field(default_factory=list)
    results: list[Results] = field(default_factory=list)


def _write(
    groups: Sequence[RunGroup],
    records: Sequence[DataFrame],
    folder: Path,
    every_task: bool = False,
    tolerance: float | None = None,
) -> list[PublishedRun]:
    """Writes all files of a site; returns each group as it was published, with the pages of the
    whole site to begin with."""
    rows: list[list[SummaryRow]] = []
    for group, frame in zip(groups, records, strict=True):
        rows.append(_summarise(group, frame, every_task, is_alone=len(groups) == 1))
    jobs = [store.run.job for store in list_stores(groups)]
    points = choose_tolerance(jobs, tolerance)  # one for all groups, as a page names it once
    # From here on nothing names a place of this machine.
    parts = make_parts(groups, records, rows, points)
    stores = list_stores([part.group for part in parts])
    names = distinct_names(str(store.folder) for store in stores)
    stored = {names[str(store.folder)]: store.run for store in stores}
    method = describe_method(stored, [part.study_input.records for part in parts])
    neighbours = find_neighbours(folder)
    contents = _build_parts(parts, neighbours)
    if left_out := find_left_out(stores):
        methods = about_methods(stores)
        page = methods_page(contents.results, methods, left_out, neighbours)
        contents.pages[METHODS_PAGE] = page
        contents.first.append(METHODS_PAGE)
        leading, *others = contents.results
        studies = {METHODS_TITLE: METHODS_PAGE, **leading.studies}
        contents.results = [replace(leading, studies=studies), *others]
    renderers = page_renderers(contents.results, method.tasks, neighbours)
    for page, render in renderers.items():
        contents.pages[page] = render()
    sheets = join_sheets(contents.sheets)
    files = [*contents.pages, METHOD, f"{FOLDER}/{RECORDS_FILE}"]
    files += map(sheet_file, sheets)
    files += map(table_file, downloaded_tables(stores))
    announce_files(folder, files)
    write_sheets(folder, sheets)
    labelled_records: list[tuple[Mapping[str, str], DataFrame]] = []
    labelled_stores: list[tuple[Mapping[str, str], Sequence[Store]]] = []
    for part in parts:
        labelled_records.append((part.labels, part.study_input.records))
        labelled_stores.append((part.labels, part.group.stores))
    answers = write_records(folder, labelled_records)
    # The page on method tells how many records there are, which is known once they are written.
    contents.pages[METHOD] = build_method(method, sheets, RECORDS_FILE, answers, neighbours)
    for page, text in contents.pages.items():
        write_text_atomically(folder / page, text)
    write_study_tables(folder, labelled_stores)
    # Last: whoever interrupts a build is left with files too many, and with none too few.
    remove_former_files(folder, files)
    first = [folder / page for page in contents.first]
    counts = [use_matrix(results).verdict_counts for results in contents.results]
    enlist(folder, RUN, first, stores, "; ".join(filter(None, counts)))
    published = []
    for some, results in zip(rows, contents.results, strict=True):
        published.append(PublishedRun(first, some, results))
    return published


def _build_parts(parts: Sequence[Part], neighbours: Neighbours) -> _Contents:
    """Builds the pages of examples and studies of each board, and its downloads."""
    tasks: set[str] = set()
    for part in parts:
        tasks.update(map(str, part.study_input.records["task"].unique()))
    contents = _Contents()
    for number, part in enumerate(parts, start=1):
        model, results = part.study_input.model, part.results
        by_task = part.study_input.records[[*EXAMPLE_COLUMNS]].groupby("task", sort=False)
        for name, records in by_task:
            task = str(name)
            above = task_page(task) if len(tasks) > 1 else FRONT
            page = build_examples(model, task, records, above, neighbours)
            contents.pages[examples_page(task, number)] = page
        sheets = [cells_sheet(results.rows), board_sheet(results.standings, results.boards)]
        if results.attacks:
            sheets.append(attacks_sheet(results.attacks))
        on_front: list[StudySection] = []
        for study in part.studies:
            beside = _other_models(part, parts, study)
            study_input = replace(part.study_input, beside=beside)
            if study.is_on_front:
                content = study.find(study_input)
                on_front += content.parts
            else:
                file = study.file_name(number)
                page, content = build_study(study, study_input, neighbours)
                contents.pages[file] = page
                contents.first.append(file)
            sheets += content.sheets
        contents.sheets += [sheet.with_labels(part.labels) for sheet in sheets]
        contents.results.append(replace(results, sections=on_front))
    return contents


def _other_models(part: Part, parts: Sequence[Part], study: Study) -> list[StudyInput]:
    """Returns the results of other models on the site that have what a study needs."""
    others = []
    for other in parts:
        if other.study_input.model != part.study_input.model and study in other.studies:
            others.append(other.study_input)
    return others


def _summarise(
    group: RunGroup, records: DataFrame, every_task: bool, is_alone: bool
) -> list[SummaryRow]:
    """Aggregates the records of a group; a single run of a site gets its summary too."""
    if is_alone and len(group.stores) == 1:
        return publish_summary(group.stores[0], records, every_task)
    rows = summary_rows(records, group, every_task)
    _warn(group.stores, rows)
    return rows
