"""Chooses the executor that the command line names."""

from contextlib import AbstractContextManager, nullcontext

from kvbench.run.executor import Executor
from kvbench.run.local import on_this_machine
from kvbench.run.on_ray import Cluster, on_ray
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError


def chosen_executor(
    name: str,
    job: Job,
    address: str | None = None,
    workers: int | None = None,
    cpus_per_worker: float | None = None,
    gpus_per_worker: float | None = None,
) -> AbstractContextManager[Executor]:
    """Returns the executor ``local`` or ``ray``; raises :class:`KVBenchError` for an option of Ray with ``local``."""
    given = {
        "--address": address,
        "--workers": workers,
        "--cpus-per-worker": cpus_per_worker,
        "--gpus-per-worker": gpus_per_worker,
    }
    if name == "ray":
        cpus = 1.0 if cpus_per_worker is None else cpus_per_worker
        return on_ray(job, Cluster(address, workers, cpus, gpus_per_worker))
    for option, value in given.items():
        if value is not None:
            raise KVBenchError(f"{option} is for --executor ray: give that too")
    return nullcontext(on_this_machine(job))
