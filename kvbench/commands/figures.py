"""``python -m kvbench figures``: the curves, scatters and heat maps of a run, for print."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from kvbench.cli.parameters import Run
from kvbench.cli.result import Result
from kvbench.experiments.options import choose
from kvbench.publish.site import publish_summary
from kvbench.store.store import Store
from kvbench.system.console import console, printable
from kvbench.system.files import make_folder
from leaderboards.aggregate.facets import facets
from leaderboards.aggregate.row import ALL_TASKS
from leaderboards.boards.standings import all_standings
from leaderboards.downloads.sheets import file_name
from leaderboards.figures.gallery import Details, Gallery, gallery
from leaderboards.figures.heat_drawing import save_map
from leaderboards.figures.heatmaps import MEAN, HeatMap

FORMATS = {name: name for name in ("svg", "png", "pdf")}
LEVELS = ("0.5", "0.9")  # at which tasks are set against policies, where a run has them

Figure = tuple[str, Callable[[Path], None]]  # the stem of its file, and what writes it


def command(
    run: Run,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("figures"),
    formats: Annotated[str, typer.Option(help="svg, png and pdf, comma-separated.")] = "svg,png,pdf",
    policies: Annotated[
        str, typer.Option(help="Heat maps of these too, beside those of the mean of the methods; comma-separated.")
    ] = "",
) -> Result:
    """Draws every curve, scatter and heat map of each task and mode, in each format."""
    suffixes = choose("format", formats, FORMATS)
    store = Store.open(run)
    make_folder("--out", out)
    records = store.frame()
    rows = publish_summary(store, records)
    names = {row.policy: row.policy for row in rows}
    chosen = choose("policy", policies, names) if policies else []
    details = Details(all_standings(records, rows), facets(records, rows))
    figures: list[Figure] = []
    for task, mode in dict.fromkeys((row.task, row.mode) for row in rows):
        figures += _figures(gallery(rows, task, mode, details), task, mode, chosen)
    for stem, save in track(figures, "figures", console=console):
        for suffix in suffixes:
            save(out / f"{stem}.{suffix}")
    return Result(files={"figures": out})


def _figures(shown: Gallery, task: str, mode: str, policies: Sequence[str]) -> Iterator[Figure]:
    where = printable(f"{'mean over tasks' if task == ALL_TASKS else task}, {mode}")
    place = f"{file_name(task)}-{file_name(mode)}"
    for picture in shown.pictures:
        yield f"{picture.name}-{place}", picture.plot.save
    for one in shown.maps:
        for measure, option in _layers(one, policies):
            layer = one.layers[measure, option]
            heading = f"{one.title}, {option}, {layer.measure.title}, {layer.measure.unit}: {where}"
            stem = "-".join((one.name, measure, re.sub(r"[^A-Za-z0-9._+-]+", "-", option), place))
            yield stem, partial(save_map, one, (measure, option), heading=heading)


def _layers(heat_map: HeatMap, policies: Sequence[str]) -> list[tuple[str, str]]:
    """Chooses the layers that are worth a file: all measures of the first policy or mean and of ``policies``, and two
    levels of tasks."""
    options = {option for _, option in heat_map.layers}
    first = MEAN if MEAN in options else heat_map.first[1]
    options_shown = [level for level in LEVELS if level in options] if heat_map.name == "tasks" else [first, *policies]
    return [key for key in heat_map.layers if key[1] in (options_shown or [first])]
