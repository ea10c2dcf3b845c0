"""Scale-out on Ray: it stores what one machine stores, also where a worker is killed; and what its
options ask for."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kvbench.cli.program import main
from kvbench.execution import on_ray
from kvbench.execution.on_ray import Cluster, RayExecutor, Readiness, Worker
from kvbench.experiments.build_grid import build_grid
from kvbench.prompts.context_length import count_by
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import CommandLine, assert_answers_equal, outcome, small_command
from tests.support.wording import assert_says

ROOT = Path(__file__).parents[2]
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: kvbench[ray]"
)
BASE = ("run", "--tasks", "base", "--policies", "knorm")


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:{}", "nowhere", "http://127.0.0.1:1"])
def test_no_cluster_at_the_address_is_one_line(cli: CommandLine, address: str) -> None:
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        address = address.format(bound.getsockname()[1])
        said = cli.error(*BASE, "--executor", f"ray(address={address})")
    assert_says(said, "no Ray cluster", f"{address} (")


def test_without_ray_one_line_says_how_to_get_it(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'kvbench[ray]'" in cli.error(*BASE, "--executor", "ray")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--executor", "local(address=auto)"], "local has no option address: it has cell_seconds"),
        (["--executor", "ray(workers=two)"], "workers=two: Input should be a valid integer"),
        (["--executor", "ray(workers=0)"], "workers is 1 or more, not 0"),
        (["--executor", "ray(cpus=nan)"], "cpus is a number above 0, not nan"),
        (["--executor", "ray(gpus=1.5)"], "gpus is a whole number or a share below 1"),
        (["--executor", "raj"], "unknown executor 'raj': did you mean 'ray'?"),
    ],
)
def test_options_that_cannot_be_meant_are_one_line(
    cli: CommandLine, arguments: list[str], message: str
) -> None:
    assert message in cli.error(*BASE, *arguments)


def job(device: str = "auto", **more: object) -> Job:
    small = {
        "tasks": "base",
        "policies": "knorm",
        "levels": {"ratio": "0.5"},
        "limit": 2,
        "max_kv_gb": 0.5,
    }
    return Job.model_validate(small | {"device": device} | more)


@pytest.mark.parametrize(
    ("device", "given", "most", "expected"),
    [
        ("auto", None, 0, 0),
        ("auto", None, 8, 1),
        ("cpu", None, 8, 0),
        ("cuda", None, 8, 1),
        ("cuda", 8, 8, 8),
        ("auto", 0.25, 8, 0.25),
        ("cuda", None, 0, "a worker needs 1 GPU.* no machine of the cluster has more than 0"),
        ("auto", 16, 8, "a worker needs 16 GPU.* no machine of the cluster has more than 8"),
        ("cuda", 0, 8, "--device cuda needs a GPU for each worker"),
    ],
)
def test_a_worker_has_a_gpu_where_there_are_any(
    device: str, given: float | None, most: float, expected: float | str
) -> None:
    if isinstance(expected, str):
        with pytest.raises(KVBenchError, match=expected):
            Cluster(gpus=given).gpus_of_a_worker(device, most)
    else:
        assert Cluster(gpus=given).gpus_of_a_worker(device, most) == expected


class FakeRay:
    """A cluster whose workers work in this process when their answers are asked for, the last one
    first; or are never started, where it is told what each would report."""

    exceptions = SimpleNamespace(RayTaskError=BrokenPipeError, RayError=ConnectionError)

    def __init__(self, *nodes: dict[str, float], ready: Readiness | None = None) -> None:
        self.resources = [{"Alive": True, "Resources": node} for node in nodes]
        self.ready = ready
        self.started: list[tuple[Any, ...]] = []
        self.mode = ""

    def nodes(self) -> list[dict[str, object]]:
        return self.resources

    def init(self, **_: object) -> None:
        self.mode = os.environ["RAY_AUTH_MODE"]
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def remote(self, kind: type) -> SimpleNamespace:
        def start(*given: Any) -> SimpleNamespace:
            self.started.append(given)
            worker = kind(*given)
            calls = {
                name: SimpleNamespace(remote=partial(partial, getattr(worker, name)))
                for name in ("prepare", "work")
            }
            return SimpleNamespace(**calls)

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=start))

    def wait(self, references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return references[-num_returns:], references[:-num_returns]

    def get(self, reference: Any) -> Any:
        return self.ready or reference()

    def kill(self, worker: object) -> None: ...

    def shutdown(self) -> None: ...


SMALL, LARGE = {"CPU": 4.0}, {"CPU": 16.0, "GPU": 8.0}


@pytest.mark.parametrize(
    ("nodes", "cluster", "device", "workers", "together"),
    [
        ([SMALL, LARGE], Cluster(), "cpu", 20, 16),
        ([SMALL, LARGE], Cluster(cpus=3), "cpu", 6, 5),
        ([SMALL], Cluster(workers=2), "cpu", 2, 2),
        ([LARGE], Cluster(), "cuda", 8, 1),
        ([LARGE], Cluster(gpus=0.25, workers=3), "auto", 3, 3),
        ([LARGE], Cluster(gpus=4), "auto", 2, 1),
    ],
)
def test_workers_are_as_many_as_there_is_room_for_and_share_the_memory_of_a_machine_or_gpu(
    monkeypatch: pytest.MonkeyPatch,
    nodes: list[dict[str, float]],
    cluster: Cluster,
    device: str,
    workers: int,
    together: int,
) -> None:
    monkeypatch.setattr(on_ray, "leave_out", lambda grid, *_: grid)
    ray = FakeRay(*nodes, ready=Readiness(None, {}, ""))  # type: ignore[arg-type]
    executor = RayExecutor(ray, job(device), cluster, None)  # type: ignore[arg-type]
    assert (executor.most, ray.started[0][-1]) == (workers, together)


def test_a_worker_that_would_write_another_run_refuses(toy_folder: Path) -> None:
    """Other packages or weights on one of the machines would mix two runs in one store."""
    worker = Worker(job("cpu", model=str(toy_folder)), ROOT, 1)
    ready = worker.prepare()
    with pytest.raises(
        KVBenchError, match=r"would write another run \(model_fingerprint: \w+ instead of another\)"
    ):
        worker.work(None, ready.identity.model_copy(update={"model_fingerprint": "another"}))  # type: ignore[arg-type]
    with pytest.raises(KVBenchError, match="there is no model at /nowhere"):
        Worker(job("cpu", model="/nowhere"), ROOT, 1).prepare()


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    for name in ("RAY_AUTH_MODE", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "")  # so that it is put back
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    ray = FakeRay(SMALL)
    monkeypatch.setitem(sys.modules, "ray", ray)
    before = signal.getsignal(signal.SIGTERM)
    yield ray
    signal.signal(signal.SIGTERM, before)


def ray_command(model: Path, folder: Path, *more: str) -> list[str]:
    """The command of a run of six contexts, which are two units."""
    return [
        str(word)
        for word in small_command(
            model, folder, "--tasks", "base", "--limit", 6, "--device", "cpu", *more
        )
    ]


def assert_same_records(folder: Path) -> None:
    here, spread = (Store.open(folder / name / "runs" / "x") for name in ("here", "ray"))
    assert spread.run.status == "complete"
    assert spread.identity.differences(here.identity) == []
    assert set(outcome(spread)["status"]) == {"ok"}
    assert_answers_equal(outcome(spread), outcome(here))


def test_a_run_on_a_cluster_stores_what_one_process_stores(
    fake_ray: FakeRay, toy_folder: Path, tmp_path: Path
) -> None:
    assert main(ray_command(toy_folder, tmp_path / "here")) == 0
    assert main(ray_command(toy_folder, tmp_path / "ray", "--executor", "ray(workers=2)")) == 0
    assert len(fake_ray.started) == 2
    assert_same_records(tmp_path)


def test_a_cluster_of_its_own_asks_for_a_token_and_sigterm_stays_ours(
    fake_ray: FakeRay, toy_folder: Path
) -> None:
    """Ray listens on all interfaces: who reaches it without a token could run code. Its own handler
    of SIGTERM would exit without a word, and leave the run ``started``."""
    before = signal.getsignal(signal.SIGTERM)
    small = job("cpu", model=str(toy_folder))
    with on_ray.on_ray(small, build_grid(small, count_by(small.model)), Cluster()):
        assert signal.getsignal(signal.SIGTERM) == before
    assert fake_ray.mode == "token"


# It kills its process at its first call if "deadly" is there.
PRESS = """
import os, signal
from dataclasses import dataclass
from pathlib import Path
from kvpress import ScorerPress

HERE = Path(__file__).parent

@dataclass
class Press(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        try:
            (HERE / "deadly").rename(HERE / "died")
        except FileNotFoundError:
            return values.norm(dim=-1)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_ray
@pytest.mark.slow
def test_a_worker_that_is_killed_changes_no_record(toy_folder: Path, tmp_path: Path) -> None:
    """On a cluster that the run itself starts, in a process of its own."""
    (tmp_path / "press.py").write_text(PRESS)
    more = ("--policies", f"{tmp_path / 'press.py'}:Press")
    assert main(ray_command(toy_folder, tmp_path / "here", *more)) == 0
    (tmp_path / "deadly").touch()
    path = os.pathsep.join([str(ROOT), *sys.path])
    spread = [
        sys.executable,
        "-m",
        "kvbench",
        *ray_command(toy_folder, tmp_path / "ray", *more, "--executor", "ray"),
    ]
    done = subprocess.run(
        spread, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "died").exists()
    assert_same_records(tmp_path)
