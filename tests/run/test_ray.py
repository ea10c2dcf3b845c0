"""Scale-out on Ray: what it stores is what one machine stores, also when a worker or the run itself is killed."""

import importlib.util
import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

import pyarrow as pa
import pytest

from datasets_gen import TASKS
from kvbench.cli.program import main
from kvbench.prompts.prompt import build_prompts
from kvbench.run.on_ray import Cluster, busy_resource, gpus_of_a_worker, places, sharing
from kvbench.run.worker import Worker
from kvbench.store.identity import PROVENANCE
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from tests.support.processes import is_running, wait_until
from tests.support.toy import toy_tokenizer

ROOT = Path(__file__).parents[2]
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: kvbench[ray]")
CONTEXTS = 12  # three units, of 5, 5 and 2
LAYERS = 2

# It notes its process and its calls, kills its process at the first of them if "deadly" is there, and waits, at a
# context of as many tokens as "hold" says, for that file to go away.
PRESS = """
import os, signal, time
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
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
        (HERE / "pids").mkdir(exist_ok=True)
        (HERE / "pids" / str(os.getpid())).touch()
        with (HERE / "calls").open("a") as calls:
            calls.write(".")
        try:
            while keys.shape[2] == int((HERE / "hold").read_text()):
                time.sleep(0.05)
        except FileNotFoundError:
            pass
        return values.norm(dim=-1)
"""


@dataclass
class Runs:
    """Runs of one press as processes of their own; ``mark`` stands in the environment of all that they start."""

    model: Path
    folder: Path
    mark: str

    def environment(self, more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
        path = os.pathsep.join([str(ROOT), *sys.path])
        return {**os.environ, "PYTHONPATH": path, "KVBENCH_MARK": self.mark, "OMP_NUM_THREADS": "1", **more}

    def start(self, name: str, *more: str, **environment: str) -> "subprocess.Popen[str]":
        grid = ["--tasks", "base", "--limit", str(CONTEXTS), "--ratios", "0.5", "--cell-seconds", "3600"]
        policies = ["--policies", f"{self.folder / 'press.py'}:Press"]
        out = ["--name", "x", "--out", str(self.folder / name), "--site", str(self.folder / "site")]
        words = ["run", "--model", str(self.model), "--device", "cpu", *grid, *policies, *out, *more]
        return subprocess.Popen(
            [sys.executable, "-m", "kvbench", *words],
            env=self.environment(environment),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def on_ray(self, name: str, address: str | None = None) -> "subprocess.Popen[str]":
        """A run with two workers, on the cluster at the address or on one that it starts."""
        where = [] if address is None else ["--address", address]
        return self.start(name, "--executor", "ray", "--workers", "2", *where, **(OPEN if where else {}))

    def ended(self, process: "subprocess.Popen[str]") -> str:
        """What it said, when it has ended well."""
        _, said = process.communicate()
        assert process.returncode == 0, said
        return said

    def store(self, name: str) -> Store:
        return Store.open(self.folder / name / "x")

    def workers(self) -> list[int]:
        """The processes that have run the press and are still there."""
        noted = [int(path.name) for path in (self.folder / "pids").iterdir()]
        return [process for process in noted if is_running(process)]

    def processes(self) -> list[int]:
        """The processes that any run or cluster has started, zombies aside, whose environment is empty."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                environment = path.read_bytes()
            except OSError:
                continue
            if f"KVBENCH_MARK={self.mark}".encode() in environment:
                found.append(int(path.parent.name))
        return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, toy_folder: Path) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("ray")
    (folder / "press.py").write_text(PRESS)
    started = Runs(toy_folder, folder, uuid4().hex)
    yield started
    for process in started.processes():
        os.kill(process, signal.SIGKILL)


@pytest.fixture(scope="module")
def local(runs: Runs) -> bytes:
    runs.ended(runs.start("local"))
    return content(runs.store("local"))


def content(store: Store) -> bytes:
    """All records in the order of their keys, times aside, to the bit."""
    frame = store.frame().sort_values(["task", "policy", "ratio", "example_index", "question_id"])
    assert set(frame["status"]) == {"ok"}
    assert not frame.duplicated(["task", "policy", "ratio", "question_id"]).any()
    timeless = frame.drop(columns=[column for column in frame.columns if column.endswith("_seconds")])
    table = pa.Table.from_pandas(timeless, preserve_index=False)
    written = io.BytesIO()
    with pa.ipc.new_stream(written, table.schema) as stream:
        stream.write_table(table)
    return written.getvalue()


def identity(store: Store) -> dict[str, object]:
    return store.identity.model_dump(exclude=set(PROVENANCE))


def tokens_of(index: int) -> int:
    """Of the context that is compressed."""
    (prompt,) = build_prompts(toy_tokenizer(), TASKS["base"], TASKS["base"].example(0, index), "agnostic")
    return len(prompt.token_ids)


@needs_ray
def test_a_run_that_is_killed_takes_its_workers_along(runs: Runs) -> None:
    lengths = [tokens_of(index) for index in range(CONTEXTS)]
    assert lengths.count(lengths[-1]) == 1
    (runs.folder / "hold").write_text(str(lengths[-1]))
    driver = runs.on_ray("driver")
    chunks = runs.folder / "driver" / "x" / "records" / "base"

    def has_two_chunks() -> bool:  # of each, the press is written last
        return {path.parent.name for path in chunks.glob("*/Press.parquet")} == {"00000", "00001"}

    wait_until(lambda: has_two_chunks() or driver.poll() is not None)
    assert has_two_chunks(), driver.communicate()[1]
    driver.kill()
    driver.communicate()
    wait_until(lambda: not runs.workers())
    assert runs.store("driver").run.status == "started"
    (runs.folder / "hold").unlink()


OPEN = {"RAY_AUTH_MODE": "disabled"}  # without the tokens that Ray makes for clusters of its own
CLUSTER = """
import sys, ray
ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)

@ray.remote(num_cpus=2)
class Other:
    def here(self):
        pass

other = Other.remote()
ray.get(other.here.remote())
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.readline()
ray.kill(other)
sys.stdin.readline()
"""


@dataclass
class BusyCluster:
    """A cluster of two CPUs, all in use until they are freed."""

    process: "subprocess.Popen[str]"
    address: str

    def free(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture(scope="module")
def cluster(runs: Runs) -> Iterator[BusyCluster]:
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        env=runs.environment(OPEN),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        started = BusyCluster(process, process.stdout.readline().strip())
        yield started
        process.kill()


@needs_ray
def test_a_cluster_is_waited_for_and_a_worker_that_is_killed_changes_no_record(
    runs: Runs, local: bytes, cluster: BusyCluster
) -> None:
    (runs.folder / "deadly").touch()
    driver = runs.on_ray("workers", cluster.address)
    assert driver.stderr is not None
    said = ""
    while "all CPUs of the cluster are in use: waiting for a place" not in said:
        line = driver.stderr.readline()
        assert line, said
        said += line
    cluster.free()
    said = runs.ended(driver)
    assert (runs.folder / "died").exists()
    assert said.count("a worker ended while it worked on base") == 1
    store = runs.store("workers")
    assert store.run.status == "complete"
    assert identity(store) == identity(runs.store("local"))
    assert content(store) == local
    wait_until(lambda: not runs.workers())


@needs_ray
def test_a_run_that_was_killed_goes_on_with_what_is_missing(runs: Runs, local: bytes, cluster: BusyCluster) -> None:
    (runs.folder / "calls").unlink()
    said = runs.ended(runs.on_ray("driver", cluster.address))
    assert "there already" in said
    assert (runs.folder / "calls").stat().st_size == 2 * LAYERS
    assert runs.store("driver").run.status == "complete"
    assert content(runs.store("driver")) == local


@needs_ray
def test_an_address_where_nobody_listens_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # closed again: nobody listens there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    line = refused(["--executor", "ray", "--address", address], capsys)
    assert f"no Ray cluster can be used at {address} (" in line
    assert "Connection refused" in line


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["run", "--tasks", "base", "--policies", "knorm", *arguments]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
    assert line.startswith("error: ")
    return line


def test_without_ray_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'kvbench[ray]'" in refused(["--executor", "ray"], capsys)


@needs_ray
@pytest.mark.parametrize("form", ["127.0.0.1:{}", "localhost:{}"])
def test_no_cluster_at_the_address_is_one_line(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        address = form.format(bound.getsockname()[1])
        said = refused(["--executor", "ray", "--address", address], capsys)
    assert f"no Ray cluster can be used at {address} (" in said
    assert "ray start --head" in said


@needs_ray
@pytest.mark.parametrize("address", ["nowhere", "http://127.0.0.1:1", "127.0.0.1:port"])
def test_what_is_no_address_is_one_line(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(["--executor", "ray", "--address", address], capsys)
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
def test_options_that_cannot_be_meant_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(arguments, capsys)


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


@pytest.mark.parametrize(
    ("free", "gpus", "taken"),
    [({"CPU": 2.0}, 0, None), ({"CPU": 0.5}, 0, "CPUs"), ({}, 0, "CPUs"), ({"CPU": 1, "GPU": 1}, 2, "GPUs")],
)
def test_a_cluster_without_a_free_place_is_seen(free: dict[str, float], gpus: float, taken: str | None) -> None:
    assert busy_resource(free, 1.0, gpus) == taken


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
    assert whole.startswith("at most 500 MB of keys and values at once; ")
    assert half.startswith("at most 250 MB of keys and values at once in each of 2 processes; ")


def test_a_worker_that_would_write_another_run_refuses(toy_folder: Path) -> None:
    """Other packages or weights on one of the machines would mix two runs in one store."""
    worker = Worker(job("cpu", model=str(toy_folder)), ROOT, 1)
    ready = worker.prepare()
    with pytest.raises(KVBenchError, match=r"would write another run \(model_fingerprint: \w+ instead of another\)"):
        worker.work(None, ready.identity.model_copy(update={"model_fingerprint": "another"}))  # type: ignore[arg-type]
    with pytest.raises(KVBenchError, match="there is no model at /nowhere"):
        Worker(job("cpu", model="/nowhere"), ROOT, 1).prepare()
