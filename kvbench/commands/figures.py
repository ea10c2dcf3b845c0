"""``python -m kvbench figures``: the curves of a run, for print."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from kvbench.console import console
from kvbench.errors import KVBenchError
from kvbench.options import choose
from kvbench.publish import publish_summary
from kvbench.store import Store
from leaderboards import ALL_TASKS, CURVES, Measure, SummaryRow, curve_drawing

FORMATS = {name: name for name in ("svg", "png", "pdf")}


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a run, such as runs/x.")],
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("figures"),
    formats: Annotated[str, typer.Option(help="svg, png and pdf, comma-separated.")] = "svg,png,pdf",
) -> None:
    """One figure for each task, mode and measure, in each format."""
    suffixes = choose("format", formats, FORMATS)
    store = Store.open(run)
    rows = publish_summary(store, store.frame())
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise KVBenchError(f"--out {out} cannot be written ({error.strerror}): name another folder") from error
    for task, mode, measure in track(_figures(rows), "figures", console=console):
        drawing = curve_drawing(rows, task, mode, measure)
        where = "mean over tasks" if task == ALL_TASKS else task
        for suffix in suffixes:
            drawing.save(
                out / f"{measure.name}-{task}-{mode}.{suffix}", f"{measure.title}, {measure.unit}: {where}, {mode}"
            )
    console.print(f"figures: {out}", soft_wrap=True)


def _figures(rows: list[SummaryRow]) -> list[tuple[str, str, Measure]]:
    boards = dict.fromkeys((row.task, row.mode) for row in rows)
    return [(task, mode, measure) for task, mode in boards for measure in CURVES]
