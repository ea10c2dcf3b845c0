"""``python -m kvbench import-kvpress``: results of kvpress's own evaluation, on a page of their own."""

from pathlib import Path
from typing import Annotated

import typer

from kvbench.publish.downloads import link_pages, write_sheets
from kvbench.publish.kvpress_results import results_in
from kvbench.system.console import console, printable
from kvbench.system.errors import KVBenchError
from kvbench.system.files import make_folder, write_text_atomically
from leaderboards.downloads.tables import imported_sheet
from leaderboards.pages.imported import IMPORTED, build_imported


def command(
    results: Annotated[Path, typer.Argument(help="A folder that kvpress's evaluation wrote, or a folder of such.")],
    out: Annotated[Path, typer.Option(help="Folder that imported.html is written to.")] = Path("site"),
) -> None:
    """Reads predictions.csv, metrics.json and config.yaml of each evaluation; fails at the end if one is broken."""
    rows, broken = results_in(results)
    for line in broken:
        console.print(f"left out: {printable(line)}", style="yellow", soft_wrap=True)
    make_folder("--out", out)
    sheets = [imported_sheet(rows)]
    write_sheets(out, sheets)
    write_text_atomically(out / IMPORTED, build_imported(str(results), rows, broken, sheets))
    link_pages(out)
    console.print(f"imported: {len(rows)} rows of kvpress\npage:     {out / IMPORTED}", soft_wrap=True)
    if broken:
        raise KVBenchError(f"{len(broken)} folders could not be read and are left out, all others are on the page")
