"""``python -m kvbench site`` writes the pages of one or more runs."""

from pathlib import Path
from typing import Annotated

import typer

from kvbench.board.pieces import open_board
from kvbench.cli.parameters import Beside, EveryTask, Tolerance
from kvbench.cli.result import Result
from kvbench.experiments.options import check_tolerance
from kvbench.publish import site_list
from kvbench.publish.board.pages import publish_board
from kvbench.publish.site import other_model, publish_sites
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError

BOARD = Path("board")


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Folders of runs, such as runs/x; or board, the shipped records."
        ),
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
    if runs == [BOARD] and not BOARD.exists():
        _check_alone(beside)
        place = site or site_list.ROOT / BOARD
        site_list.make_site_folder("--site", place)
        pages = publish_board(open_board(), place, every_task, tolerance)
        return Result(files={"page": pages})
    folders: dict[Path, Path] = {}  # each once, as it was named last
    for run in runs:
        folders[run.resolve()] = run
    stores = [Store.open(folder) for folder in folders.values()]
    if beside is not None:
        stores += other_model(beside, [store.identity for store in stores])
    site_list.make_site_folder("--site", site)
    return Result(files={"page": publish_sites(stores, site, every_task, tolerance)})


def _check_alone(beside: Path | None) -> None:
    """Raises :class:`KVBenchError` where a run shall stand beside the board."""
    if beside is not None:
        raise KVBenchError("--beside stands beside runs, and the board has all of its models")
