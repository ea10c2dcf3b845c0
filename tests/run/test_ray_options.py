"""What a run on Ray is asked for: addresses, and who gets which CPUs, GPUs and memory. No cluster is started."""

import importlib.util
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvbench.run import on_ray
from kvbench.run.on_ray import Cluster, Worker, gpus_of_a_worker, places, sharing
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import CommandLine

ROOT = Path(__file__).parents[2]
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: kvbench[ray]")
BASE = ("run", "--tasks", "base", "--policies", "knorm")


@needs_ray
def test_an_address_where_nobody_listens_is_one_line(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # closed again: nobody listens there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    line = cli.error(*BASE, "--executor", "ray", "--address", address)
    assert f"no Ray cluster can be used at {address} (" in line
    assert "Connection refused" in line


def test_without_ray_one_line_says_how_to_get_it(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'kvbench[ray]'" in cli.error(*BASE, "--executor", "ray")


@needs_ray
@pytest.mark.parametrize("form", ["127.0.0.1:{}", "localhost:{}"])
def test_no_cluster_at_the_address_is_one_line(cli: CommandLine, form: str) -> None:
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        address = form.format(bound.getsockname()[1])
        said = cli.error(*BASE, "--executor", "ray", "--address", address)
    assert f"no Ray cluster can be used at {address} (" in said
    assert "ray start --head" in said


@needs_ray
@pytest.mark.parametrize("address", ["nowhere", "http://127.0.0.1:1", "127.0.0.1:port"])
def test_what_is_no_address_is_one_line(cli: CommandLine, address: str) -> None:
    said = cli.error(*BASE, "--executor", "ray", "--address", address)
    assert "an address is auto or HOST:PORT" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--address", "auto"], "--address is for --executor ray"),
        (["--workers", "2"], "--workers is for --executor ray"),
        (["--gpus-per-worker", "1"], "--gpus-per-worker is for --executor ray"),
        (["--executor", "ray", "--workers", "0"], "--workers is 1 or more, not 0"),
        (["--executor", "ray", "--cpus-per-worker", "0"], "--cpus-per-worker is a number above 0, not 0"),
        (["--executor", "ray", "--cpus-per-worker", "nan"], "--cpus-per-worker is a number above 0, not nan"),
        (["--executor", "ray", "--gpus-per-worker", "1.5"], "--gpus-per-worker is a whole number or a share below 1"),
        (["--executor", "ray", "--gpus-per-worker", "inf"], "--gpus-per-worker is a whole number or a share below 1"),
        (["--executor", "ray", "--ratios", "2"], "--ratios 2: 2 is outside"),
        (["--executor", "raj"], "Invalid value for '--executor'"),
    ],
)
def test_options_that_cannot_be_meant_are_one_line(cli: CommandLine, arguments: list[str], message: str) -> None:
    assert message in cli.error(*BASE, *arguments)


def job(device: str = "auto", **more: object) -> Job:
    small = {"tasks": "base", "policies": "knorm", "levels": {"ratio": "0.5"}, "limit": 2, "max_kv_gb": 0.5}
    return Job.model_validate(small | {"device": device} | more)


CPU_NODE, GPU_NODE = {"CPU": 4.0}, {"CPU": 16.0, "GPU": 8.0}


@pytest.mark.parametrize(
    ("device", "asked", "nodes", "found"),
    [
        ("auto", None, [CPU_NODE], 0),
        ("auto", None, [CPU_NODE, GPU_NODE], 1),
        ("cpu", None, [GPU_NODE], 0),
        ("cuda", None, [GPU_NODE], 1),
        ("cuda", 8, [GPU_NODE], 8),
        ("auto", 0.25, [GPU_NODE], 0.25),
    ],
)
def test_a_worker_has_a_gpu_where_there_are_any(
    device: str, asked: float | None, nodes: list[dict[str, float]], found: float
) -> None:
    assert gpus_of_a_worker(Cluster(gpus=asked), job(device), nodes) == found


@pytest.mark.parametrize(
    ("device", "asked", "nodes", "message"),
    [
        ("cuda", None, [CPU_NODE], "a worker needs 1 GPU.* no machine of the cluster has more than 0"),
        ("auto", 16, [GPU_NODE, GPU_NODE], "a worker needs 16 GPU.* no machine of the cluster has more than 8"),
        ("cuda", 0, [GPU_NODE], "--device cuda needs a GPU for each worker"),
        ("spread", None, [CPU_NODE], "--device-map auto spreads weights over GPUs: give --gpus-per-worker"),
        ("auto", 1, [], "no machine of the cluster has more than 0"),
    ],
)
def test_a_gpu_that_is_not_there_is_said(
    device: str, asked: float | None, nodes: list[dict[str, float]], message: str
) -> None:
    asking = job("auto", device_map="auto") if device == "spread" else job(device)
    with pytest.raises(KVBenchError, match=message):
        gpus_of_a_worker(Cluster(gpus=asked), asking, nodes)


def test_workers_are_as_many_as_the_machines_have_room_for() -> None:
    assert places([CPU_NODE, GPU_NODE], 1, 0) == 20
    assert places([CPU_NODE, GPU_NODE], 3, 0) == 6
    assert places([CPU_NODE, GPU_NODE], 1, 1) == 8
    assert places([CPU_NODE, GPU_NODE], 4, 1) == 4
    assert places([GPU_NODE], 1, 0.5) == 16
    with pytest.raises(KVBenchError, match=r"32 CPU\(s\), and no machine .* \(the largest has 16\)"):
        places([CPU_NODE, GPU_NODE], 32, 0)


def test_workers_share_the_memory_of_their_machine_or_of_a_gpu_that_is_given_in_shares() -> None:
    assert sharing([CPU_NODE, GPU_NODE], 1, 0, 20) == 16
    assert sharing([CPU_NODE], 1, 0, 2) == 2
    assert sharing([CPU_NODE], 3, 0, 20) == 1
    assert sharing([GPU_NODE], 1, 1, 8) == 1
    assert sharing([GPU_NODE], 1, 4, 2) == 1
    assert sharing([GPU_NODE], 1, 0.25, 32) == 4
    assert sharing([GPU_NODE], 1, 0.25, 3) == 3


def test_workers_that_share_a_memory_keep_within_the_bound_together(toy_folder: Path) -> None:
    whole, half = (Worker(job("cpu", model=str(toy_folder)), ROOT, 1, workers).prepare().memory for workers in (1, 2))
    assert whole.startswith("at most 500 MB of keys and values at once")
    assert half.startswith("at most 250 MB of keys and values at once in each of 2 processes")


def test_a_worker_that_would_write_another_run_refuses(toy_folder: Path) -> None:
    """Other packages or weights on one of the machines would mix two runs in one store."""
    worker = Worker(job("cpu", model=str(toy_folder)), ROOT, 1)
    ready = worker.prepare()
    with pytest.raises(KVBenchError, match=r"would write another run \(model_fingerprint: \w+ instead of another\)"):
        worker.work(None, ready.identity.model_copy(update={"model_fingerprint": "another"}))  # type: ignore[arg-type]
    with pytest.raises(KVBenchError, match="there is no model at /nowhere"):
        Worker(job("cpu", model="/nowhere"), ROOT, 1).prepare()


def test_a_cluster_of_its_own_asks_for_a_token_and_says_where_it_listens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray listens on all interfaces: who reaches it without a token could run code."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # so that it is put back
    monkeypatch.delenv("RAY_AUTH_MODE")
    seen: list[str | None] = []

    class Ray:
        util = SimpleNamespace(get_node_ip_address=lambda: "192.0.2.7")

        @staticmethod
        def init(address: str, **_: object) -> None:
            seen.append(capsys.readouterr().err)

    def imported(_: str) -> type[Ray]:
        seen.append(os.environ.get("RAY_AUTH_MODE"))  # Ray reads it now, and no later
        return Ray

    monkeypatch.setattr("kvbench.run.on_ray.importlib.import_module", imported)
    on_ray._connect(None)
    mode, said = seen
    assert mode == "token"
    assert "starting Ray at 192.0.2.7" in str(said)
