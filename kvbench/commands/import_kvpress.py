"""``python -m kvbench import-kvpress``: results of kvpress's own evaluation, on a page of their own."""

from pathlib import Path
from typing import Annotated

import typer

from kvbench.atomic import write_text_atomically
from kvbench.console import console, printable
from kvbench.errors import KVBenchError
from kvbench.kvpress_results import results_in
from leaderboards import build_imported

PAGE_NAME = "imported.html"


def command(
    results: Annotated[Path, typer.Argument(help="A folder that kvpress's evaluation wrote, or a folder of such.")],
    out: Annotated[Path, typer.Option(help="Folder that imported.html is written to.")] = Path("site"),
) -> None:
    """Reads predictions.csv, metrics.json and config.yaml of each evaluation; fails at the end if one is broken."""
    rows, broken = results_in(results)
    for line in broken:
        console.print(f"left out: {printable(line)}", style="yellow", soft_wrap=True)
    write_text_atomically(out / PAGE_NAME, build_imported(str(results), rows, broken))
    console.print(f"imported: {len(rows)} rows of kvpress\npage:     {out / PAGE_NAME}", soft_wrap=True)
    if broken:
        raise KVBenchError(f"{len(broken)} folders could not be read and are left out, all others are on the page")
