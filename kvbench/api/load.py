"""Opens stored runs: ``kvbench.load``."""

from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.api.calls import Call, library_call
from kvbench.api.kinds import Folder
from kvbench.api.results import RunResult
from kvbench.experiments.options import check_tolerance
from kvbench.system.errors import KVBenchError
from policies import LazyModule

if TYPE_CHECKING:
    from kvbench.store.store import Store

stores = LazyModule("kvbench.store.store")


@library_call
def load(
    call: Call, *runs: Folder, every_task: bool = False, tolerance: float | None = None
) -> RunResult:
    """Opens one or more stored runs. Nothing is run.

    Args:
        *runs: Folders of runs, such as ``runs/first``.
        every_task: Whether tasks count too that the full cache cannot do.
        tolerance: Points of loss below which a level is safe; by default those of the runs.

    Returns:
        The runs, in the form of one that was just made.

    Raises:
        KVBenchError: A folder holds no run, or one of another version.

    Example:
        >>> import kvbench
        >>> kvbench.load("runs/first").cells()
    """
    if not runs:
        raise KVBenchError("load takes the folders of one or more runs, such as runs/first")
    check_tolerance(tolerance)
    opened: list[Store] = [stores.Store.open(Path(run)) for run in runs]
    return RunResult(opened, every_task, tolerance)
