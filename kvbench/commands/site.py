"""``python -m kvbench site`` writes the pages of one or more runs."""

from pathlib import Path
from typing import Annotated

import typer

from kvbench.cli.parameters import Beside, EveryTask, Tolerance
from kvbench.cli.result import Result
from kvbench.experiments.options import check_tolerance
from kvbench.publish import site_list
from kvbench.publish.site import other_model, publish_sites
from kvbench.store.store import Store


def command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, such as runs/x.")
    ],
    site: Annotated[
        Path | None, typer.Option(help="Folder of the pages. Default: of the runs' name, in site.")
    ] = None,
    every_task: EveryTask = False,
    tolerance: Tolerance = None,
    beside: Beside = None,
) -> Result:
    """Builds the pages of one or more runs. Those on one board differ in nothing but tasks and
    policies."""
    check_tolerance(tolerance)
    folders: dict[Path, Path] = {}  # each once, as it was named last
    for run in runs:
        folders[run.resolve()] = run
    stores = [Store.open(folder) for folder in folders.values()]
    if beside is not None:
        stores += other_model(beside, [store.identity for store in stores])
    site_list.make_site_folder("--site", site)
    return Result(files={"page": publish_sites(stores, site, every_task, tolerance)})
