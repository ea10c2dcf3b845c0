"""Runs units on a Ray cluster, or on one that it starts on this machine; each worker is an actor."""

import importlib
import os
import platform
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import torch

from kvbench.experiments.build_grid import build_grid, leave_out, leave_out_tasks
from kvbench.experiments.grid import Grid
from kvbench.models.load import load_tokenizer
from kvbench.run.execute import UnitRows
from kvbench.run.local import LoadedJob, load_job, memory_plan
from kvbench.run.unit import Unit, rows_of, some_of
from kvbench.store.run_file import Identity, Job
from kvbench.store.tables import RowsByTable
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError, first_line, unexpected_error
from kvbench.system.memory import is_out_of_memory

ATTEMPTS = 3  # workers that may end, one after the other
LOADED = "loaded the model"
REACHABLE_WITHIN = 5.0  # seconds
Result = TypeVar("Result")


@dataclass(frozen=True)
class Readiness:
    """The report of a worker that has loaded its model."""

    identity: Identity  # of the run that it would write
    missing: dict[str, str]  # policies without weights, with the reason
    memory: str  # a line about the memory that it needs


class Worker:
    """Makes the grid of a job on another machine, loads its model once, and runs units.

    Relative paths of the job, such as plug-ins, begin at ``folder``; ``sharing`` workers have the same memory. It
    raises only :class:`KVBenchError`, which any process can read.
    """

    def __init__(self, job: Job, folder: Path, threads: int, sharing: int = 1) -> None:
        self.job, self.folder, self.threads, self.sharing = job, folder, threads, sharing

    def prepare(self) -> Readiness:
        """Loads the model and reports."""

        def load() -> Readiness:
            memory = memory_plan(self._loaded.model, self._loaded.grid, self._share, self.sharing)
            return Readiness(self._identity, self._loaded.missing, memory)

        return _in_one_line(load)

    def work(self, unit: Unit, expected: Identity) -> list[RowsByTable]:
        """Returns the rows of each context of a unit; raises :class:`KVBenchError` if they belong to another run."""
        if names := _in_one_line(lambda: self._identity.differences(expected)):
            here, there = (getattr(identity, names[0]) for identity in (self._identity, expected))
            raise KVBenchError(
                f"the worker on {platform.node()} would write another run ({names[0]}: {here} instead of {there}): all "
                "machines need the same kvbench, packages, model and kind of device"
            )
        work = (self._loaded.model, self._loaded.grid, unit)
        return _in_one_line(lambda: [rows_of(*work, index, self._share) for index in unit.contexts])

    @cached_property
    def _loaded(self) -> LoadedJob:
        if self.folder.is_dir():
            os.chdir(self.folder)
        torch.set_num_threads(self.threads)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        return load_job(self.job)

    @cached_property
    def _identity(self) -> Identity:
        return self._loaded.grid.identity(self._loaded.model)

    @cached_property
    def _share(self) -> int:
        """Returns the bytes that keys and values may take here, computed once, as free memory changes during work."""
        return self._loaded.grid.setting.kv_bound(self._loaded.model.device) // self.sharing


def _in_one_line(do: Callable[[], Result]) -> Result:
    try:
        return do()
    except KVBenchError:
        raise
    except BaseException as error:  # also an exit, which would look like the end of the worker
        if is_out_of_memory(error):
            raise KVBenchError(
                "the device of a worker is out of memory: start the same command again with a smaller --max-kv-gb, or "
                "more --gpus-per-worker and --device-map auto"
            ) from error
        raise unexpected_error(error) from None


@dataclass(frozen=True)
class Cluster:
    """The cluster that the options describe."""

    address: str | None = None  # None starts a cluster on this machine
    workers: int | None = None  # at most
    cpus: float = 1.0  # of each worker
    gpus: float | None = None  # of each worker; None chooses by the job's device and by the GPUs of the cluster

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise KVBenchError(f"--workers is 1 or more, not {self.workers}")
        if not 0 < self.cpus < inf:
            raise KVBenchError(f"--cpus-per-worker is a number above 0, not {self.cpus:g}")
        if self.gpus is not None and not (0 <= self.gpus < 1 or (self.gpus >= 1 and self.gpus % 1 == 0)):
            raise KVBenchError(f"--gpus-per-worker is a whole number or a share below 1, not {self.gpus:g}")


@contextmanager
def on_ray(job: Job, cluster: Cluster) -> Iterator["RayExecutor"]:
    """Starts Ray or connects to it, and lets a first worker load the model, which decides what can be run."""
    tokenizer = cache(lambda: load_tokenizer(job.model))
    grid = build_grid(job, lambda text: len(tokenizer().encode(text, add_special_tokens=False)))
    grid = leave_out_tasks(grid, tokenizer(), job)
    of_kvbench = signal.getsignal(signal.SIGTERM)
    ray = _connect(cluster.address)
    try:
        signal.signal(signal.SIGTERM, of_kvbench)  # Ray has put its own there, which exits without a word
        yield RayExecutor(ray, job, cluster, grid)
    finally:  # and all workers with it
        ray.shutdown()


def _connect(address: str | None) -> Any:
    """Connects the ``ray`` package and returns it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # or it reports each run to its makers
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or it warns of a change to come
    if address is None:
        # Ray listens on all interfaces, and whoever reaches it runs code: since 2.52 it can ask for a token, which it
        # makes for itself. It reads this when it is imported, and no later.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise KVBenchError("--executor ray needs Ray, which is not installed: pip install 'kvbench[ray]'") from error
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None:
        where = ray.util.get_node_ip_address()
        console.print(f"starting Ray at {where}, where it takes nobody without its token", soft_wrap=True)
        ray.init(address="local", include_dashboard=False, **quiet)
        return ray
    try:
        if address != "auto":  # Ray itself would wait for minutes where nobody listens, and print pages
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal() or "/" in address:
                raise ValueError("an address is auto or HOST:PORT")
            socket.create_connection((host, int(port)), timeout=REACHABLE_WITHIN).close()
        ray.init(address=address, **quiet)
    except Exception as error:  # Ray, the network and differing versions raise anything
        raise KVBenchError(
            f"no Ray cluster can be used at {address} ({_reason(error)}): start one with "
            "ray start --head, or leave --address out for one on this machine"
        ) from error
    return ray


class RayExecutor:
    """Gives each worker one unit at a time."""

    def __init__(self, ray: Any, job: Job, cluster: Cluster, grid: Grid) -> None:
        self.ray = ray
        self.job: Job | None = job
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = gpus_of_a_worker(cluster, job, nodes)
        room = places(nodes, cluster.cpus, gpus)
        self.most = min(room, cluster.workers or room)
        if not gpus:  # Ray hides a machine's GPUs, or not, by its version
            job = job.model_copy(update={"device": "cpu"})
        again = {"max_restarts": ATTEMPTS - 1, "max_task_retries": ATTEMPTS - 1}
        actor = ray.remote(Worker).options(num_cpus=cluster.cpus, num_gpus=gpus, **again)
        threads, together = max(1, int(cluster.cpus)), sharing(nodes, cluster.cpus, gpus, self.most)
        self._new_worker = lambda: actor.remote(job, Path.cwd(), threads, together)
        where = f"on Ray, in {self.most} worker(s) at most, as soon as the cluster has a place"
        console.print(f"loading {job.model} {where}", soft_wrap=True)
        self.workers = [self._new_worker()]
        ready: Readiness = self._result(self.workers[0].prepare.remote(), LOADED)
        self.grid = leave_out(grid, ready.missing, job)
        self.identity = ready.identity
        self._memory = ready.memory

    @contextmanager
    def map(self, units: Sequence[Unit]) -> Iterator[Iterator[UnitRows]]:
        console.print(self._memory, soft_wrap=True)
        while len(self.workers) < min(self.most, len(units)):
            self.workers.append(self._new_worker())
        try:
            yield self._answers(units)
        finally:
            for worker in self.workers:
                self.ray.kill(worker)

    def _answers(self, units: Sequence[Unit]) -> Iterator[UnitRows]:
        """Gives a unit to each worker that is ready. Ray starts a worker anew that dies, and repeats its unit there."""
        waiting, left = deque(units), len(units)
        doing: dict[Any, tuple[Any, Unit | None]] = {worker.prepare.remote(): (worker, None) for worker in self.workers}
        while left:
            (reference,), _ = self.ray.wait(list(doing), num_returns=1)
            worker, unit = doing.pop(reference)
            answer = self._result(reference, f"worked on {unit} ({some_of(unit.policies)})" if unit else LOADED)
            if waiting:
                next_unit = waiting.popleft()
                doing[worker.work.remote(next_unit, self.identity)] = (worker, next_unit)
            if unit is not None:
                left -= 1
                yield from ((unit, rows) for rows in answer)

    def _result(self, reference: Any, what: str) -> Any:
        """Returns the result of a worker, or raises its error in one line."""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise (cause if isinstance(cause, KVBenchError) else unexpected_error(cause)) from None
        except self.ray.exceptions.RayError as error:
            raise KVBenchError(
                f"{ATTEMPTS} workers ended while they {what} ({_reason(error)}), most likely for lack of memory: start "
                "the same command again with a smaller --max-kv-gb or fewer --workers"
            ) from error


def _reason(error: Exception) -> str:
    return first_line(error) or type(error).__name__


def gpus_of_a_worker(cluster: Cluster, job: Job, nodes: Sequence[Mapping[str, float]]) -> float:
    """Returns the GPUs of each worker: the option, or one if the job's device is a GPU and the cluster has any."""
    most = max((node.get("GPU", 0) for node in nodes), default=0)
    by_default = 1 if job.device == "cuda" or (job.device == "auto" and most) else 0
    gpus: float = by_default if cluster.gpus is None else cluster.gpus
    if gpus == 0 and job.device == "cuda":
        raise KVBenchError("--device cuda needs a GPU for each worker: give --gpus-per-worker 1, or --device cpu")
    if job.device_map is not None and gpus < 1:
        raise KVBenchError("--device-map auto spreads weights over GPUs: give --gpus-per-worker 2 or more")
    if gpus > most:
        raise KVBenchError(
            f"a worker needs {gpus:g} GPU(s), and no machine of the cluster has more than {most:g}: give another "
            "--gpus-per-worker, or --device cpu"
        )
    return gpus


def places(nodes: Sequence[Mapping[str, float]], cpus: float, gpus: float) -> int:
    """Counts the workers that the machines have room for."""
    rooms = [min(node.get("CPU", 0) // cpus, node.get("GPU", 0) // gpus if gpus else inf) for node in nodes]
    if not sum(rooms):
        most = max((node.get("CPU", 0) for node in nodes), default=0)
        raise KVBenchError(
            f"a worker needs {cpus:g} CPU(s), and no machine of the cluster has room for it (the largest has "
            f"{most:g}): give another --cpus-per-worker"
        )
    return int(sum(rooms))


def sharing(nodes: Sequence[Mapping[str, float]], cpus: float, gpus: float, workers: int) -> int:
    """Counts the workers that share one memory: the workers of a machine, or of a GPU that is given in shares."""
    most = 1 / gpus if gpus else max(node.get("CPU", 0) // cpus for node in nodes)
    return max(1, min(int(most), workers))
