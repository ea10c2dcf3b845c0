"""``python -m kvbench figures`` draws a run for print."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from pandas import DataFrame
from rich.progress import track

from kvbench.cli.parameters import Beside, EveryTask, Run
from kvbench.cli.result import Result
from kvbench.experiments.options import choose
from kvbench.publish.parts import study_inputs
from kvbench.publish.places import name_of_place
from kvbench.publish.print_figures import list_figures, read_paper
from kvbench.publish.site import other_model, rows_of_run
from kvbench.store.store import Store
from kvbench.system.console import console, printable
from kvbench.system.files import make_folder, write_text_atomically
from leaderboards.aggregate.arguments import Arguments, adapted_presses, arguments_of_records
from leaderboards.aggregate.leading_measures import reasons_by_task
from leaderboards.aggregate.pooled import Pooled, pool_levels
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.downloads.print_tables import data_sentences, result_table
from leaderboards.downloads.sheets import file_name
from leaderboards.paper.printing import save
from leaderboards.studies.modes import content as modes
from policies import FULL

FORMATS = {"svg": "svg", "png": "png", "pdf": "pdf"}


def command(
    run: Run,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("figures"),
    formats: Annotated[
        str, typer.Option(help="svg, png and pdf, comma-separated.")
    ] = "svg,png,pdf",
    only: Annotated[
        str, typer.Option(help="Figures of these alone, such as right,ger; comma-separated.")
    ] = "",
    width: Annotated[
        str, typer.Option(help="Of each figure: column, page, or one such as 3.25in or 8cm.")
    ] = "page",
    title: Annotated[bool, typer.Option(help="Whether a heading stands above each figure.")] = True,
    tables: Annotated[
        bool, typer.Option("--tables", help="Write tables too, in LaTeX and Markdown.")
    ] = False,
    every_task: EveryTask = False,
    beside: Beside = None,
) -> Result:
    """Draws the curves, maps and distributions of each task and mode, and the pictures of studies,
    in each format. Raises :class:`KVBenchError` for a width that no paper has."""
    suffixes = choose("format", formats, FORMATS)
    paper = read_paper(width, title)
    store = Store.open(run)
    make_folder("--out", out)
    records = store.frame()
    rows = rows_of_run(store, records, every_task)
    presses = list(arguments_of_records(records).values())
    other = None if beside is None else other_model(beside, [store.identity])[0]
    study_input = study_inputs(store, other)
    figures = list_figures(rows, records, study_input)
    if only:
        names = choose("figure", only, {figure.name: figure.name for figure in figures})
        figures = [figure for figure in figures if figure.name in names]
    for figure in track(figures, "figures", console=console):
        save(figure, out, suffixes, paper)
    if tables:
        compared = _compared_with(store, records, {} if every_task else reasons_by_task(rows))
        _write_tables(store, rows, presses, compared, out)
        if table := modes.print_table(study_input, describe_origin(store)):
            write_text_atomically(out / "modes.tex", table.latex())
            write_text_atomically(out / "modes.md", table.markdown())
    return Result(files={"figures": out})


def _write_tables(
    store: Store,
    rows: Sequence[SummaryRow],
    presses: Sequence[Arguments],
    compared: Sequence[Pooled],
    out: Path,
) -> None:
    """Writes what a run comes to, in LaTeX and in Markdown, for each mode in which the model can do
    some task."""
    levels = {task.name: task.level for task in store.identity.tasks}
    model = f"{printable(name_of_place(store.identity.model))} in {store.identity.dtype}"
    adapted = adapted_presses(presses)
    for mode in dict.fromkeys(row.mode for row in rows):
        tasks = [row.task for row in rows if row.mode == mode]
        task = ALL_TASKS if ALL_TASKS in tasks else tasks[0]
        sentences = data_sentences(rows, task, mode, model, levels)
        data = printable(f"{sentences} {describe_origin(store)}")
        paper = result_table(rows, mode, adapted, data, compared, every_interval=False)
        memo = result_table(rows, mode, adapted, data, compared, every_interval=True)
        if len(paper.rows) > 1:
            stem = f"results-{file_name(mode)}"
            write_text_atomically(out / f"{stem}.tex", paper.latex())
            write_text_atomically(out / f"{stem}.md", memo.markdown())


def _compared_with(store: Store, records: DataFrame, unmastered: Mapping[str, str]) -> list[Pooled]:
    """Returns the mean of tasks at each level of the press of a comparison beside each of its
    opponents; nothing of another run. ``unmastered``: why the model cannot do a task, which enters
    nothing."""
    if store.run.job is None or store.run.job.press is None:
        return []
    # The grid of a comparison has its press last.
    *others, press = (policy.name for policy in store.identity.policies)
    return pool_levels(records, press, [name for name in others if name != FULL], unmastered)


def describe_origin(store: Store) -> str:
    """Says of which run the numbers of a table are."""
    identity = store.identity
    if identity.git_revision:
        commit = f", commit {identity.git_revision[:10]}"
    else:
        commit = ""
    name, began = printable(store.folder.resolve().name), store.run.created[:10]
    return f"Numbers: run {name} of {began}, kvbench {identity.kvbench_version}{commit}."
