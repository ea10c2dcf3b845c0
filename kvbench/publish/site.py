"""Writes what people look at: ``summary.json`` of a store, and the pages and downloads of a site."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pandas import DataFrame

from kvbench.publish.downloads import (
    FOLDER,
    RECORDS_FILE,
    join_study_tables,
    model_name,
    origin_of,
    write_records,
    write_sheets,
    write_study_tables,
    write_tables,
)
from kvbench.publish.method import method_of, run_entry
from kvbench.publish.site_list import (
    COMPARISON,
    ENTRY_FILES,
    RUN,
    enlist,
    folder_of,
    remove_former_files,
    run_site_beside,
)
from kvbench.run.report import what_to_do
from kvbench.store.merging import RunGroup, group_runs
from kvbench.store.run_file import Identity
from kvbench.store.store import SUMMARY_FILE, Store
from kvbench.system.console import printable, warn
from kvbench.system.errors import KVBenchError
from kvbench.system.files import write_text_atomically
from leaderboards.aggregate.answers import AnswerKind, answer_kinds
from leaderboards.aggregate.arguments import Arguments, arguments_of_records
from leaderboards.aggregate.duels import Duel, duels
from leaderboards.aggregate.pooled import OF_AREAS, Pooled, pool
from leaderboards.aggregate.row import ALL_TASKS, MODES, SummaryRow
from leaderboards.aggregate.summary import PlannedCells, summarise
from leaderboards.downloads.print_tables import PrintTable, pooled_rows
from leaderboards.downloads.sheets import Sheet, file_name, join_sheets
from leaderboards.downloads.tables import (
    board_sheet,
    cells_sheet,
    duels_sheet,
    kinds_sheet,
    pooled_sheet,
)
from leaderboards.errors import LeaderboardError
from leaderboards.pages.comparison import build_comparison, contexts_text
from leaderboards.pages.examples import COLUMNS, build_examples
from leaderboards.pages.front import FRONT, METHOD, page_renderers
from leaderboards.pages.method import Downloads, Method, build_method
from leaderboards.pages.results import Results, examples_page, task_page
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import Study, StudyInput, build_study
from leaderboards.studies.registry import studies, studies_of


def planned_cells(identity: Identity, every_task: bool = False) -> PlannedCells:
    """Returns the cells that a run set out to fill, as its ``run.json`` says. ``every_task``: whether tasks that the
    model cannot do enter means over tasks too."""
    return PlannedCells(
        mode=identity.mode,
        contexts={task.name: task.contexts for task in identity.tasks},
        chances={task.name: task.chance for task in identity.tasks if task.chance > 0},  # without golds there is none
        policies={policy.name: policy.points for policy in identity.policies},
        covered={policy.name: policy.tasks for policy in identity.policies},
        every_task=every_task,
    )


def summary_rows(store: Store, records: DataFrame | None = None, every_task: bool = False) -> list[SummaryRow]:
    """Aggregates the records of a store: all of them, or those at hand."""
    return _rows(store.frame() if records is None else records, store.identity, str(store.folder), every_task)


def _rows(records: DataFrame, identity: Identity, where: str, every_task: bool) -> list[SummaryRow]:
    try:
        return summarise(records, planned_cells(identity, every_task))
    except LeaderboardError as error:
        raise KVBenchError(f"{where} cannot be summarised: {error}") from error


def publish_summary(store: Store, records: DataFrame, every_task: bool = False) -> list[SummaryRow]:
    """Aggregates all records of a store and writes ``summary.json`` beside them, which is the same for all: its means
    leave out tasks that the model cannot do. The rows that are returned leave out nothing where ``every_task``."""
    rows = summary_rows(store, records)
    _warn([store], rows)
    store.write_json(SUMMARY_FILE, [row.model_dump() for row in rows])
    return summary_rows(store, records, every_task) if every_task else rows


def _warn(stores: Sequence[Store], rows: Sequence[SummaryRow]) -> None:
    """Warns of runs that are not complete, and of those that lack records though they were: a file is gone."""
    unfinished = [store for store in stores if store.run.status != "complete"]
    for store in unfinished:
        state = store.run.reason or store.run.status
        warn(f"warning: {store.folder} is not complete ({state}): what is missing is blank")
    of_tasks = [row for row in rows if row.task != ALL_TASKS]
    gaps = [f"{row.policy} of {row.task}: {row.reason}" for row in of_tasks if not row.complete]
    if gaps and not unfinished:
        warn(f"warning: {_where(stores)} lacks records ({gaps[0]}): these are blank; {what_to_do(rows)}")


def _where(stores: Sequence[Store]) -> str:
    return ", ".join(str(store.folder) for store in stores)


def publish_site(store: Store, records: DataFrame, folder: Path | None) -> tuple[list[Path], list[SummaryRow]]:
    """Writes the pages of a run, each self-contained, and its summary; returns where to begin, and the rows.
    ``folder``: None for the run's own in the folder of all sites."""
    first, (rows,) = _write([RunGroup((store,))], [records], folder_of(folder, [store]))
    return first, rows


def publish_sites(stores: Sequence[Store], folder: Path | None, every_task: bool = False) -> list[Path]:
    """Writes the pages of several runs; what may not be compared stands on boards of its own. Returns where to
    begin."""
    groups = group_runs(stores)
    return _write(groups, [group.records() for group in groups], folder_of(folder, stores), every_task)[0]


def _write(
    groups: Sequence[RunGroup], records: Sequence[DataFrame], folder: Path, every_task: bool = False
) -> tuple[list[Path], list[list[SummaryRow]]]:
    """Writes all files of a site; returns the pages to begin with, and the rows of each group."""
    inputs = [_study_input(*parts) for parts in zip(groups, records, strict=True)]
    studies_of_groups = [studies_of(one) for one in inputs]
    results = _aggregate(groups, inputs, studies_of_groups, every_task)
    pages, answers, method = _from_records(groups, inputs, folder)
    first = [FRONT]
    sheets_of_studies: list[list[Sheet]] = []
    for number, (study_input, group, studies_of_group) in enumerate(
        zip(inputs, groups, studies_of_groups, strict=True), start=1
    ):
        sheets_of_studies.append([])
        for study in studies_of_group:
            page = study.file_name(number)
            beside = [
                other
                for other, of_other in zip(inputs, studies_of_groups, strict=True)
                if other.model != study_input.model and study in of_other
            ]
            pages[page], content = build_study(study, replace(study_input, beside=beside))
            if len(group.stores) == 1:
                group.stores[0].write_json(f"{study.name}.json", dict(content.quoted))
            sheets_of_studies[-1] += content.sheets
            first.append(page)

    pages |= {name: render() for name, render in page_renderers(results, method.tasks).items()}
    sheets = [
        sheet.with_labels(_labels(group))
        for one, group, of_studies in zip(results, groups, sheets_of_studies, strict=True)
        for sheet in [*_sheets(one), *of_studies]
    ]
    together = join_sheets(sheets)
    downloads = write_sheets(folder, together)
    pages[METHOD] = build_method(method, Downloads(together, RECORDS_FILE, answers))
    for name, page in pages.items():
        write_text_atomically(folder / name, page)
    downloads += write_study_tables(folder, [(_labels(group), group.stores) for group in groups])
    remove_former_files(folder, [*pages, *downloads, f"{FOLDER}/{RECORDS_FILE}", ENTRY_FILES[RUN]])
    pages_first = [folder / name for name in first]
    enlist(folder, RUN, pages_first, [store for group in groups for store in group.stores])
    return pages_first, [list(one.rows) for one in results]


def _sheets(results: Results) -> list[Sheet]:
    """Makes the downloads of a board."""
    return [cells_sheet(results.rows), board_sheet(results.standings, results.boards)]


def _aggregate(
    groups: Sequence[RunGroup],
    inputs: Sequence[StudyInput],
    studies_of_groups: Sequence[Sequence[Study]],
    every_task: bool,
) -> list[Results]:
    """Computes what stands on the boards."""
    rows = _summarise(groups, [one.records for one in inputs], every_task)
    parts = zip(groups, inputs, rows, studies_of_groups, strict=True)
    return [_results(number, *of_group) for number, of_group in enumerate(parts, start=1)]


def _summarise(groups: Sequence[RunGroup], records: Sequence[DataFrame], every_task: bool) -> list[list[SummaryRow]]:
    """Aggregates the records of each group; the site of a single run writes its summary too."""
    stores = [store for group in groups for store in group.stores]
    if len(stores) == 1:
        return [publish_summary(stores[0], records[0], every_task)]
    summaries = []
    for group, frame in zip(groups, records, strict=True):
        rows = _rows(frame, group.identity, _where(group.stores), every_task)
        _warn(group.stores, rows)
        summaries.append(rows)
    return summaries


def _from_records(
    groups: Sequence[RunGroup], inputs: Sequence[StudyInput], folder: Path
) -> tuple[dict[str, str], int, Method]:
    """Does what needs the records alone: returns the pages of examples, how many records were written, and what the
    page of method tells."""
    tasks = {str(task) for one in inputs for task in one.records["task"].unique()}
    pages = {
        examples_page(str(task), number): build_examples(
            one.model, str(task), of_task, task_page(str(task)) if len(tasks) > 1 else FRONT
        )
        for number, one in enumerate(inputs, start=1)
        for task, of_task in one.records[[*COLUMNS]].groupby("task", sort=False)
    }
    labelled = [(_labels(group), one.records) for group, one in zip(groups, inputs, strict=True)]
    runs = {str(store.folder): store.run for group in groups for store in group.stores}
    method = method_of(runs, [one.records for one in inputs])
    return pages, write_records(folder, labelled), method


def _labels(group: RunGroup) -> dict[str, str]:
    """Returns the columns of downloads that tell these results from others of the site."""
    return {"model": group.identity.model, "setting": group.setting}


def _study_input(group: RunGroup, records: DataFrame) -> StudyInput:
    """Puts together what studies are made from; of their own tables those that a study of the registry reads."""
    tables = join_study_tables(group.stores, {name for study in studies().values() for name in study.tables})
    return StudyInput(
        model=group.identity.model,
        records=records,
        runs=[store.run.model_dump(mode="json", exclude={"job"}) for store in group.stores],
        tables={table.name: rows.to_pandas() for table, rows in tables.items()},
    )


def _results(
    number: int, group: RunGroup, given: StudyInput, rows: list[SummaryRow], studies_of_group: Sequence[Study]
) -> Results:
    identity = group.identity
    return Results.of(
        given.records,
        rows,
        {str(store.folder): store.run.model_dump(mode="json", exclude={"job"}) for store in group.stores},
        identity.model,
        setting=group.setting,
        families={policy.name: policy.family for policy in identity.policies},
        studies={study.title: study.file_name(number) for study in studies_of_group},
    )


@dataclass(frozen=True)
class PublishedComparison:
    """A policy against others, as it was published."""

    page: Path
    pooled: list[Pooled]
    duels: list[Duel]
    kinds: list[AnswerKind]
    presses: list[Arguments]  # of the policy and its opponents, task by task
    unmastered: Mapping[str, str]  # why the model cannot do a task, which has no verdict
    next_step: str  # the command that makes pages of its run


def publish_comparison(
    store: Store,
    records: DataFrame,
    policy: str,
    others: Sequence[str],
    folder: Path | None,
    unmastered: Mapping[str, str],
    warnings: Sequence[str] = (),
) -> PublishedComparison:
    """Writes the page of a policy against others, and its tables. ``unmastered``: why the model cannot do a task, which
    has no verdict and enters nothing. ``warnings``: what a reader of the verdicts has to know."""
    try:
        verdicts = duels(records, policy, others)
    except LeaderboardError as error:
        failed = _failed_cells(records, (policy, *others))
        raise KVBenchError(f"{error}{f': {failed[0]}' if failed else ''}") from error
    judged = records[~records["task"].isin(list(unmastered))]
    kinds = answer_kinds(judged, policy, others)
    whole = pool(records, policy, others, unmastered)
    used = arguments_of_records(records[records["policy"].isin((policy, *others))])
    tasks = dict.fromkeys(duel.task for duel in verdicts)
    keys = [(name, task) for name in (policy, *others) for task in tasks]
    presses = [used[key] for key in keys if key in used and used[key].used]
    next_step = _command_of_site(store, folder)
    folder = folder_of(folder, [store])
    name = f"compare-{file_name(policy)}"
    sheets = (
        pooled_sheet(f"{name}-pooled", whole),
        duels_sheet(f"{name}-verdicts", verdicts, unmastered),
        kinds_sheet(f"{name}-failures", kinds),
    )
    write_sheets(folder, sheets)
    path = folder / f"{name}.html"
    page = build_comparison(
        store.identity.model,
        verdicts,
        kinds,
        _failed_cells(records, (policy, *others)),
        sheets,
        whole,
        presses,
        run=run_entry(store.folder.name, store.run),
        contexts=contexts_text({task.name: task.contexts for task in store.identity.tasks if task.name in tasks}),
        beside=run_site_beside(folder, store),
        unmastered=unmastered,
        warnings=[*warnings, *([fault] if (fault := store.run.reason) else [])],
        next_step=next_step,
    )
    write_text_atomically(path, page)
    enlist(folder, COMPARISON, [path], [store])
    return PublishedComparison(path, whole, verdicts, kinds, presses, unmastered, next_step)


def _command_of_site(store: Store, folder: Path | None) -> str:
    """Writes the command that makes pages of the run of a comparison: beside its page, unless another run has its pages
    there."""
    place = [] if folder is None or (folder / FRONT).is_file() else ["--site", str(folder)]
    return shlex.join(["python", "-m", "kvbench", "site", str(store.folder), *place])


def write_comparison_tables(store: Store, comparison: PublishedComparison) -> list[Path]:
    """Writes the pooled differences for a paper, beside the page of the comparison."""
    adapted = {one.policy for one in comparison.presses if one.is_adapted}
    judged = [duel for duel in comparison.duels if duel.task not in comparison.unmastered]
    contexts = contexts_text({duel.task: duel.contexts for duel in judged})
    what = f"{printable(comparison.duels[0].policy)} minus each other policy, in points"
    tasks = ", ".join(dict.fromkeys(duel.task for duel in judged))
    of_run = f"Model {model_name(store)}; tasks: {tasks}; contexts: {contexts}."
    data = f"{of_run} {MODES[store.identity.mode]} {origin_of(store)}"
    together = "95 % intervals and p, corrected by Holm’s method over the controls, and over all other opponents."
    caption = " ".join((f"{what}.", together, OF_AREAS, data))
    table = PrintTable(pooled_rows(comparison.pooled, adapted), caption)
    return write_tables(comparison.page.parent, {f"{comparison.page.stem}-pooled": table})


def _failed_cells(records: DataFrame, policies: Sequence[str]) -> list[str]:
    failed = records[(records["status"] != "ok") & records["policy"].isin(policies)]
    cells = with_levels(failed).groupby(["policy", "task", "level"], sort=False, observed=True)
    return [f"{policy} at {level.where} of {task}: {cell['reason'].iloc[0]}" for (policy, task, level), cell in cells]
