"""``python -m kvbench import-kvpress`` shows results of kvpress's own evaluation, on a page of their own."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from kvbench.cli.result import Result
from kvbench.publish.downloads import write_sheets
from kvbench.publish.kvpress_results import results_in
from kvbench.publish.site_list import link_pages
from kvbench.system.files import make_folder, write_text_atomically
from leaderboards.downloads.tables import imported_sheet
from leaderboards.pages.imported import IMPORTED, build_imported
from leaderboards.terminal.result_table import Column, ResultTable


def command(
    results: Annotated[Path, typer.Argument(help="A folder that kvpress's evaluation wrote, or a folder of such.")],
    site: Annotated[Path, typer.Option(help="Folder that imported.html is written to.")] = Path("site"),
) -> Result:
    """Reads predictions.csv, metrics.json and config.yaml of each evaluation; fails at the end if one is broken."""
    rows, broken = results_in(results)
    make_folder("--site", site)
    sheet = imported_sheet(rows)
    write_sheets(site, [sheet])
    write_text_atomically(site / IMPORTED, build_imported(str(results), rows, broken, [sheet]))
    link_pages(site)
    table = ResultTable(
        sheet.name, [Column(name) for name in sheet.columns], sheet.rows, view=Text(f"{len(rows)} rows of kvpress")
    )
    left_out = [f"left out: {line}" for line in broken]
    fault = f"{len(broken)} folders could not be read and are left out, all others are on the page" if broken else ""
    return Result([table], warnings=left_out, files={"page": site / IMPORTED}, fault=fault)
