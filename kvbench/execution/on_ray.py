"""Runs units on a Ray cluster, or on one that it starts on this machine; each worker is an
actor."""

import importlib
import os
import platform
import signal
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from kvbench.execution.execute import Unit, UnitRows, rows_of
from kvbench.execution.local import LocalExecutor, errors_in_one_line, memory_plan, on_this_machine
from kvbench.experiments.build_grid import build_grid, leave_out, leave_out_tasks
from kvbench.experiments.grid import Grid
from kvbench.models.load import load_tokenizer
from kvbench.prompts.context_length import count_by
from kvbench.store.run_file import Identity, Job
from kvbench.store.tables import RowsByTable
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError, first_line, unexpected_error

ATTEMPTS = 3  # workers that may end, one after the other
REACHABLE_WITHIN = 5.0  # seconds


@dataclass(frozen=True)
class Readiness:
    """The report of a worker that has loaded its model."""

    identity: Identity  # of the run that it would write
    missing: dict[str, str]  # policies without weights, with the reason
    memory: str  # a line about the memory that it needs


class Worker:
    """Makes the grid of a job on another machine, loads its model once, and runs units.

    Relative paths of the job, such as plug-ins, begin at ``folder``; ``sharing`` workers have the
    same memory. It raises only :class:`KVBenchError`, which any process can read.
    """

    def __init__(self, job: Job, folder: Path, threads: int, sharing: int = 1) -> None:
        self.job = job
        self.folder = folder
        self.threads = threads
        self.sharing = sharing

    def prepare(self) -> Readiness:
        """Loads the model and reports."""
        with errors_in_one_line():
            executor, share = self._loaded
            memory = memory_plan(executor.model, executor.grid, share, self.sharing)
            return Readiness(executor.identity, executor.missing, memory)

    def work(self, unit: Unit, expected: Identity) -> RowsByTable:
        """Returns the rows of a unit; raises :class:`KVBenchError` if they belong to another
        run."""
        with errors_in_one_line():
            executor, share = self._loaded
            names = executor.identity.differences(expected)
            if names:
                differing = _difference(names[0], executor.identity, expected)
                raise KVBenchError(
                    f"the worker on {platform.node()} would write another run ({differing}): "
                    "all machines need the same kvbench, packages, model and kind of device"
                )
            return rows_of(executor.model, executor.grid, unit, share)

    @cached_property
    def _loaded(self) -> tuple[LocalExecutor, int]:
        """Loads the model, and tells the bytes that keys and values may take: free memory changes
        during work."""
        # The worker may be on a machine without that folder, where only whole paths are found.
        if self.folder.is_dir():
            os.chdir(self.folder)
        torch.set_num_threads(self.threads)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        grid = build_grid(self.job, count_by(self.job.model))
        executor = on_this_machine(self.job, grid)
        return executor, executor.grid.kv_bound(executor.model.device) // self.sharing


def _difference(name: str, mine: Identity, expected: Identity) -> str:
    """Says how a worker's run differs from the expected one in a field, if that is a text, and else
    in all fields."""
    here = getattr(mine, name)
    if isinstance(here, str):
        return f"{name}: {here} instead of {getattr(expected, name)}"
    return mine.described_against(expected)


@dataclass(frozen=True)
class Cluster:
    """The cluster that the options describe; raises :class:`KVBenchError` for options that no
    cluster can have."""

    address: str | None = None  # None starts a cluster on this machine
    workers: int | None = None  # at most
    cpus: float = 1.0  # of each worker
    # Of each worker; None chooses by the job's device and by the GPUs of the cluster.
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise KVBenchError(f"workers is 1 or more, not {self.workers}")
        if not 0 < self.cpus < float("inf"):
            raise KVBenchError(f"cpus is a number above 0, not {self.cpus:g}")
        if self.gpus is not None:
            is_share = 0 <= self.gpus < 1
            is_whole = self.gpus >= 1 and self.gpus % 1 == 0
            if not (is_share or is_whole):
                allowed = "a whole number or a share below 1"
                raise KVBenchError(f"gpus is {allowed}, not {self.gpus:g}")

    def gpus_of_a_worker(self, device: str, available: float) -> float:
        """Returns the GPUs of each worker: the option, or by the device; raises
        :class:`KVBenchError` where no machine has as many. ``available``: on the machine of the
        cluster that has the largest number."""
        gpus = self.gpus
        if gpus is None:
            uses_gpu = device == "cuda" or (device == "auto" and available)
            gpus = 1.0 if uses_gpu else 0.0
        if gpus == 0 and device == "cuda":
            advice = "give ray(gpus=1), or --device cpu"
            raise KVBenchError(f"--device cuda needs a GPU for each worker: {advice}")
        if gpus > available:
            reason = f"no machine of the cluster has more than {available:g}"
            advice = "give other gpus, or --device cpu"
            raise KVBenchError(f"a worker needs {gpus:g} GPU(s), and {reason}: {advice}")
        return gpus


@contextmanager
def on_ray(job: Job, grid: Grid, cluster: Cluster) -> Iterator["RayExecutor"]:
    """Starts Ray or connects to it, and lets a first worker load the model, which decides what can
    be run. Raises :class:`KVBenchError` where no cluster can be used."""
    tokenizer = load_tokenizer(job.model, job.date)
    grid = leave_out_tasks(grid, tokenizer, job)
    of_kvbench = signal.getsignal(signal.SIGTERM)
    ray = _connect(cluster.address)
    try:
        # Ray has put its own there, which exits without a word.
        signal.signal(signal.SIGTERM, of_kvbench)
        yield RayExecutor(ray, job, cluster, grid)
    finally:  # and all workers with it
        ray.shutdown()


def _connect(address: str | None) -> Any:
    """Connects the ``ray`` package and returns it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it reports each run to its makers
    # Without it Ray warns of a change to come.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address is None:
        # Ray listens on all interfaces, and whoever reaches it runs code: since 2.52 it can ask for
        # a token, which it makes for itself. It reads this when it is imported, and no later.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise KVBenchError(
            "--executor ray needs Ray, which is not installed: pip install 'kvbench[ray]'"
        ) from error
    try:
        # Ray itself would wait for minutes where nobody listens, and print pages.
        if address not in (None, "auto"):
            host, _, port = str(address).rpartition(":")
            socket.create_connection((host, int(port)), timeout=REACHABLE_WITHIN).close()
        where = {"include_dashboard": False} if address is None else {}
        ray.init(address=address or "local", logging_level="ERROR", log_to_driver=False, **where)
    except Exception as error:  # Ray, the network and differing versions raise anything
        raise KVBenchError(
            f"no Ray cluster can be used at {address} ({_reason(error)}): "
            "give auto or HOST:PORT of one, or leave address out for one on this machine"
        ) from error
    return ray


class RayExecutor:
    """Gives each worker one unit at a time."""

    model = None  # each worker loads its own

    def __init__(self, ray: Any, job: Job, cluster: Cluster, grid: Grid) -> None:
        self.ray = ray
        self.job: Job | None = job
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        available = max((node.get("GPU", 0) for node in nodes), default=0)
        gpus = cluster.gpus_of_a_worker(job.device, available)
        if job.device_map is not None and gpus < 1:
            advice = "give ray(gpus=2), or more"
            raise KVBenchError(f"map=auto of --device spreads weights over GPUs: {advice}")
        room = _room(nodes, cluster.cpus, gpus)
        if not sum(room):
            advice = "give other cpus"
            raise KVBenchError(f"no machine of the cluster has {cluster.cpus:g} CPU(s): {advice}")
        # Ray starts no more workers than there are places; the others wait, and what is left is
        # done without them.
        self.most = min(sum(room), cluster.workers or sum(room))
        # Workers share one memory on one machine, or on a GPU that is given in shares.
        together = min(int(1 / gpus) if gpus else max(room), self.most)
        if not gpus:  # Ray hides a machine's GPUs, or not, by its version
            job = job.model_copy(update={"device": "cpu"})
        # Ray counts what comes after the first attempt.
        again = {"max_restarts": ATTEMPTS - 1, "max_task_retries": ATTEMPTS - 1}
        actor = ray.remote(Worker).options(num_cpus=cluster.cpus, num_gpus=gpus, **again)
        threads, sharing = max(1, int(cluster.cpus)), max(1, together)
        self._new_worker = lambda: actor.remote(job, Path.cwd(), threads, sharing)
        where = f"on Ray, in {self.most} worker(s) at most, as soon as the cluster has a place"
        console.print(f"loading {job.model} {where}", soft_wrap=True)
        self.workers = [self._new_worker()]
        ready: Readiness = self._result(self.workers[0].prepare.remote())
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
        except BaseException:
            for worker in self.workers:
                self.ray.kill(worker)
            raise

    def _answers(self, units: Sequence[Unit]) -> Iterator[UnitRows]:
        """Gives a unit to each worker that is ready. Ray starts a worker anew that dies, and
        repeats its unit there."""
        waiting, left = deque(units), len(units)
        doing: dict[Any, tuple[Any, Unit | None]] = {}
        # prepare comes first, so that a model that cannot be loaded is told as that.
        for worker in self.workers:
            doing[worker.prepare.remote()] = (worker, None)
        while left:
            (reference,), _ = self.ray.wait(list(doing), num_returns=1)
            worker, unit = doing.pop(reference)
            answer = self._result(reference, unit)
            # Its next unit before the rows are taken: it works on while they are written.
            if waiting:
                next_unit = waiting.popleft()
                doing[worker.work.remote(next_unit, self.identity)] = (worker, next_unit)
            if unit is not None:
                left -= 1
                yield unit, answer

    def _result(self, reference: Any, unit: Unit | None = None) -> Any:
        """Returns the result of a worker, or raises its error in one line."""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, MemoryError):
                advice = 'with a smaller --max-kv-gb, or more GPUs and --device "cuda(map=auto)"'
                fault = "the device of a worker is out of memory"
                raise KVBenchError(f"{fault}: start the same run again {advice}") from None
            if isinstance(cause, KVBenchError):
                raise cause from None
            raise unexpected_error(cause) from None
        except self.ray.exceptions.RayError as error:
            activity = f"worked on {unit}" if unit else "loaded the model"
            fault = f"{ATTEMPTS} workers ended while they {activity} ({_reason(error)})"
            advice = "with a smaller --max-kv-gb or fewer workers, as ray(workers=1)"
            raise KVBenchError(
                f"{fault}, most likely for lack of memory: start the same run again {advice}"
            ) from error


def _room(nodes: Sequence[Mapping[str, float]], cpus: float, gpus: float) -> list[int]:
    """Counts the workers that each machine has room for."""
    room = []
    for node in nodes:
        places = node.get("GPU", 0) // gpus if gpus else node.get("CPU", 0) // cpus
        room.append(int(places))
    return room


def _reason(error: Exception) -> str:
    return first_line(error) or type(error).__name__
