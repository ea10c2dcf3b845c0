"""``python -m kvbench figures`` draws the curves, scatters and heat maps of a run, for print."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from kvbench.cli.parameters import EveryTask, PrintTables, Run
from kvbench.cli.result import Result
from kvbench.experiments.options import choose
from kvbench.publish.downloads import model_name, origin_of, write_tables
from kvbench.publish.site import publish_summary
from kvbench.store.store import Store
from kvbench.system.console import console, printable
from kvbench.system.errors import KVBenchError
from kvbench.system.files import make_folder, write_text_atomically
from leaderboards.aggregate.arguments import adapted_presses, arguments_of_records
from leaderboards.aggregate.facets import facets
from leaderboards.aggregate.row import ALL_TASKS
from leaderboards.boards.board import boards_of
from leaderboards.boards.standings import all_standings
from leaderboards.downloads.print_tables import PrintTable, board_rows, narrow_board_rows, result_table
from leaderboards.downloads.sheets import file_name
from leaderboards.errors import LeaderboardError
from leaderboards.figures.captions import captions_page, data_sentences, map_caption, picture_caption
from leaderboards.figures.gallery import Details, Gallery, gallery
from leaderboards.figures.heat_drawing import save_map
from leaderboards.figures.heatmaps import MEAN, HeatMap
from leaderboards.rendering.paper import USUAL, Paper
from leaderboards.rendering.style import line_styles, with_adapted

FORMATS = {name: name for name in ("svg", "png", "pdf")}
LEVELS = ("0.5", "0.9")  # at which tasks are set against policies, where a run has them

CAPTIONS = "captions.md"
IN_BRACKETS = "In brackets behind a value: its 95 % interval; behind a verdict: the interval of the corrected test."


@dataclass(frozen=True)
class Figure:
    """A figure that can be written to files."""

    name: str
    stem: str  # of its files
    caption: str
    save: Callable[..., None]


def command(
    run: Run,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("figures"),
    formats: Annotated[str, typer.Option(help="svg, png and pdf, comma-separated.")] = "svg,png,pdf",
    policies: Annotated[
        str, typer.Option(help="Heat maps of these too, beside those of the mean of the methods; comma-separated.")
    ] = "",
    only: Annotated[str, typer.Option(help="Figures of these alone, such as right,ger; comma-separated.")] = "",
    width: Annotated[str | None, typer.Option(help="Of each figure, such as 3.25in or 8cm.")] = None,
    title: Annotated[bool, typer.Option(help="Whether a heading stands above each figure.")] = True,
    tables: PrintTables = False,
    every_task: EveryTask = False,
) -> Result:
    """Draws every curve, scatter and heat map of each task and mode, in each format."""
    suffixes = choose("format", formats, FORMATS)
    paper = None if width is None and title else _paper(width, title)
    store = Store.open(run)
    make_folder("--out", out)
    records = store.frame()
    rows = publish_summary(store, records, every_task)
    names = {row.policy: row.policy for row in rows}
    chosen = choose("policy", policies, names) if policies else []
    standings = all_standings(records, rows)
    details = Details(standings, facets(records, rows))
    presses = list(arguments_of_records(records).values())
    figures: list[Figure] = []
    data: dict[tuple[str, str], str] = {}
    for task, mode in dict.fromkeys((row.task, row.mode) for row in rows):
        of_task = [one for one in presses if task in (one.task, ALL_TASKS)]
        adapted = {printable(policy): texts for policy, texts in adapted_presses(of_task).items()}
        data[mode, task] = data_sentences(rows, task, mode, model_name(store), adapted)
        styles = with_adapted(line_styles(rows), adapted)
        figures += _figures(gallery(rows, task, mode, details, styles), task, mode, data[mode, task], chosen, paper)
    origin = origin_of(store)
    if only:
        names_of_figures = choose("figure", only, {figure.name: figure.name for figure in figures})
        figures = [figure for figure in figures if figure.name in names_of_figures]
    for figure in track(figures, "figures", console=console):
        for suffix in suffixes:
            figure.save(out / f"{figure.stem}.{suffix}", caption=f"{figure.caption} {origin}")
    captions = out / CAPTIONS
    write_text_atomically(captions, captions_page([(figure.stem, figure.caption) for figure in figures], origin))
    if tables:
        for (mode, task), board in boards_of(records, rows, standings).items():
            stem = f"board-{file_name(task)}-{file_name(mode)}"
            heading, told = f"Board of {_place_text(task, mode)}.", f"{data[mode, task]} {origin}"
            whole = PrintTable(board_rows(board), printable(f"{heading} {IN_BRACKETS} {told}"))
            narrow = PrintTable(narrow_board_rows(board), printable(f"{heading} {told}"))
            write_tables(out, {stem: whole, f"{stem}-narrow": narrow})
        for mode in dict.fromkeys(row.mode for row in rows):
            whole_run = (mode, ALL_TASKS) if (mode, ALL_TASKS) in data else next(key for key in data if key[0] == mode)
            table = result_table(rows, mode, adapted_presses(presses), printable(f"{data[whole_run]} {origin}"))
            if len(table.rows) > 1:  # the model can do some task
                write_tables(out, {f"results-{file_name(mode)}": table})
    return Result(files={"figures": out, "captions": captions})


def _paper(width: str | None, title: bool) -> Paper:
    try:
        return Paper(headed=title) if width is None else Paper.parse(width, title)
    except LeaderboardError as error:
        raise KVBenchError(f"--width: {error}") from error


def _figures(
    shown: Gallery, task: str, mode: str, data: str, policies: Sequence[str], paper: Paper | None
) -> Iterator[Figure]:
    where = printable(_place_text(task, mode))
    place = f"{file_name(task)}-{file_name(mode)}"
    for picture in shown.pictures:
        save: Callable[..., None] = partial(picture.plot.save, paper=paper or USUAL)
        yield Figure(picture.name, f"{picture.name}-{place}", printable(picture_caption(picture, data)), save)
    for one in shown.maps:
        for measure, option in _layers(one, policies):
            layer = one.layers[measure, option]
            heading = f"{one.title}, {option}, {layer.measure.title}, {layer.measure.unit}: {where}"
            stem = "-".join((one.name, measure, re.sub(r"[^A-Za-z0-9._+-]+", "-", option), place))
            save = partial(save_map, one, (measure, option), heading=heading, paper=paper)
            yield Figure(one.name, stem, printable(map_caption(one, (measure, option), where, data)), save)


def _place_text(task: str, mode: str) -> str:
    return f"{'mean over tasks' if task == ALL_TASKS else task}, {mode}"


def _layers(heat_map: HeatMap, policies: Sequence[str]) -> list[tuple[str, str]]:
    """Chooses the layers that are worth a file: all measures of the first policy or mean and of ``policies``, and two
    levels of tasks."""
    options = {option for _, option in heat_map.layers}
    first = MEAN if MEAN in options else heat_map.first[1]
    options_shown = [level for level in LEVELS if level in options] if heat_map.name == "tasks" else [first, *policies]
    return [key for key in heat_map.layers if key[1] in (options_shown or [first])]
