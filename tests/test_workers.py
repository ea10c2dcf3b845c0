"""Several workers do what one does."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch

from datasets_gen import TASKS
from kvbench.collect import collect
from kvbench.errors import KVBenchError
from kvbench.models import LoadedModel
from kvbench.setting import Setting
from kvbench.workers import Workers
from policies import POLICIES


def test_three_workers_write_the_records_of_one(llama: LoadedModel) -> None:
    """Presses leave attributes on modules, and the engine hooks: none may reach the context of another worker."""
    setting = Setting(list(POLICIES.values()), (0.0, 0.4, 0.8))
    examples = list(TASKS["hops"].generate(0, 6))

    def frame(workers: Workers) -> pd.DataFrame:
        work = workers.map(lambda model, one: collect(model, TASKS["hops"], [one], setting), examples)
        found = pd.DataFrame([r.model_dump() for records in work for of_policy in records.values() for r in of_policy])
        return found.drop(columns=[column for column in found.columns if column.endswith("_seconds")])

    alone = frame(Workers(llama, 1))
    assert set(alone.status) == {"ok"}
    assert alone.output_text.nunique() > 1
    pd.testing.assert_frame_equal(frame(Workers(llama, 3)), alone)


def threads_after_a_while(_: LoadedModel, __: int) -> tuple[int, int]:
    time.sleep(0.1)
    return os.getpid(), torch.get_num_threads()


def test_workers_are_processes_of_one_thread(llama: LoadedModel) -> None:
    found = list(Workers(llama, 2).map(threads_after_a_while, range(4)))
    assert len({process for process, _ in found}) == 2
    assert os.getpid() not in dict(found)
    assert {threads for _, threads in found} == {1}


@pytest.mark.parametrize("count", [1, 2])
def test_a_failure_reaches_the_caller_and_drops_what_was_not_begun(
    llama: LoadedModel, count: int, tmp_path: Path
) -> None:
    results: list[int] = []

    def work(_: LoadedModel, item: int) -> int:
        (tmp_path / str(item)).touch()
        if item == 1:
            raise KVBenchError("item 1 is broken")
        time.sleep(0.02)
        return item

    with pytest.raises(KVBenchError, match="item 1 is broken"):
        results.extend(Workers(llama, count).map(work, range(200)))
    assert results == [0]
    assert len(list(tmp_path.iterdir())) < 100


def test_a_killed_worker_is_one_clear_line(llama: LoadedModel) -> None:
    with pytest.raises(KVBenchError, match="a worker process was killed") as refusal:
        list(Workers(llama, 2).map(lambda _, __: os.kill(os.getpid(), signal.SIGKILL), range(2)))
    assert "\n" not in str(refusal.value)


def test_workers_die_with_a_process_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import os, pathlib, time
from kvbench.workers import Workers
from toy import toy_model

def work(_, item):
    (pathlib.Path({str(tmp_path)!r}) / str(os.getpid())).touch()
    time.sleep(100)

list(Workers(toy_model(), 2).map(work, range(2)))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    started = subprocess.Popen([sys.executable, "-c", code], env=environment)
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    started.kill()
    started.wait()
    workers = [int(path.name) for path in tmp_path.iterdir()]
    wait_until(lambda: not any(is_running(worker) for worker in workers))


def wait_until(condition: Callable[[], bool]) -> None:
    """However slow the machine: a minute means that it never comes."""
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("waited for a minute")


def is_running(process: int) -> bool:
    """Whether it is there and no zombie, which only waits for whoever adopted it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_large_model_keeps_all_threads_for_itself(llama: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert Workers(llama).count == 4
    monkeypatch.setattr("kvbench.workers.SMALL", 10)
    assert Workers(llama).count == 1
