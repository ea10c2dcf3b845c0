"""Scale-out on Ray: what it stores is what one machine stores, also when a worker or the run itself is killed."""

import importlib.util
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

import pyarrow as pa
import pytest

from datasets_gen import TASKS
from kvbench.cli.program import main
from kvbench.prompts.prompt import build_prompts
from kvbench.store.run_file import PROVENANCE
from kvbench.store.store import Store
from tests.support.models.processes import Copy, is_running, wait_until
from tests.support.models.runs import timeless
from tests.support.models.toy import toy_tokenizer

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

    def words(self, name: str, *more: str) -> list[str]:
        """The command of a run."""
        grid = ["--tasks", "base", "--limit", str(CONTEXTS), "--ratios", "0.5", "--cell-seconds", "3600"]
        policies = ["--policies", f"{self.folder / 'press.py'}:Press"]
        out = ["--name", "x", "--out", str(self.folder / name), "--site", str(self.folder / "site")]
        return ["run", "--model", str(self.model), "--device", "cpu", *grid, *policies, *out, *more]

    def on_ray(self, name: str, address: str | None = None) -> Copy:
        """Starts a run with two workers, on the cluster at the address or on one that it starts."""
        where = [] if address is None else ["--address", address]
        words = self.words(name, "--executor", "ray", "--workers", "2", *where)
        return Copy.of_program(words, self.environment(OPEN if where else {}))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lets the press wait at the last context."""
        lengths = [tokens_of(index) for index in range(CONTEXTS)]
        assert lengths.count(lengths[-1]) == 1
        (self.folder / "hold").write_text(str(lengths[-1]))
        try:
            yield
        finally:
            (self.folder / "hold").unlink()  # the press of every later test would wait for ever

    def store(self, name: str) -> Store:
        return Store.open(self.folder / name / "x")

    def workers(self) -> list[int]:
        """The other processes that have run the press and are still there."""
        noted = {int(path.name) for path in (self.folder / "pids").glob("*")} - {os.getpid()}
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
    """The records of a run in this process."""
    assert main(runs.words("local")) == 0
    return content(runs.store("local"))


def content(store: Store) -> bytes:
    """All records in the order of their keys, times aside, to the bit."""
    frame = store.frame().sort_values(["task", "policy", "ratio", "example_index", "question_id"])
    assert set(frame["status"]) == {"ok"}
    assert not frame.duplicated(["task", "policy", "ratio", "question_id"]).any()
    table = pa.Table.from_pandas(timeless(frame), preserve_index=False)
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
@pytest.mark.slow
def test_a_run_that_is_killed_takes_its_workers_along(runs: Runs) -> None:
    """It starts a cluster of its own, as a run without an address does; all other tests share one. Two units are
    stored when it is killed, and one is held."""
    chunks = runs.folder / "driver" / "x" / "records" / "base"

    def has_two_chunks() -> bool:  # of each, the press is written last
        return {path.parent.name for path in chunks.glob("*/Press.parquet")} == {"00000", "00001"}

    with runs.held(), runs.on_ray("driver") as driver:
        wait_until(lambda: has_two_chunks() or not driver.process.is_alive())
        assert has_two_chunks(), driver.ended()
    wait_until(lambda: not runs.workers())
    assert runs.store("driver").run.status == "started"


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
    is_free: bool = False

    def free(self) -> None:
        if not self.is_free:  # a second line would end it
            assert self.process.stdin is not None
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            self.is_free = True


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
    with runs.on_ray("workers", cluster.address) as driver:
        said = ""
        while "as soon as the cluster has a place" not in said:
            line = driver.stderr.readline()
            assert line, said
            said += line
        cluster.free()
        status, said = driver.ended()
    assert status == 0, said
    assert (runs.folder / "died").exists()
    store = runs.store("workers")
    assert store.run.status == "complete"
    assert identity(store) == identity(runs.store("local"))
    assert content(store) == local
    wait_until(lambda: not runs.workers())


@needs_ray
@pytest.mark.slow
def test_sigterm_ends_a_run_on_a_cluster_as_ctrl_c_does(runs: Runs, cluster: BusyCluster) -> None:
    """Ray puts a handler of its own in place, which exits without a word and leaves the run ``started``."""
    cluster.free()
    with runs.held(), runs.on_ray("terminated", cluster.address) as driver:
        wait_until(lambda: bool(runs.workers()) or not driver.process.is_alive())
        os.kill(driver.process.pid or 0, signal.SIGTERM)
        status, said = driver.ended()
    assert status == 130, said
    assert "error: interrupted: what was finished is kept" in said
    assert "Traceback" not in said
    assert runs.store("terminated").run.reason == "interrupted"
    wait_until(lambda: not runs.workers())


@needs_ray
@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_without_ray_with_what_is_missing(
    runs: Runs, local: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs.folder / "calls").unlink()
    assert main(runs.words("driver")) == 0
    assert "there already" in capsys.readouterr().err
    assert (runs.folder / "calls").stat().st_size == 2 * LAYERS
    assert runs.store("driver").run.status == "complete"
    assert content(runs.store("driver")) == local
