"""Several workers do what one does."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from datasets_gen import TASKS
from kvbench.execution.local import Workers
from kvbench.experiments.catalogue import choose_policies
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel
from kvbench.system.errors import KVBenchError
from policies import at_ratios
from tests.support.models.processes import is_running, wait_until
from tests.support.models.runs import timeless


def test_three_workers_write_the_records_of_one(llama: LoadedModel) -> None:
    """Presses leave attributes on modules, and the engine hooks: none may reach the context of
    another worker."""
    task = TASKS["hops"]
    grid = Grid([(task, 3)], choose_policies(None, [task], "agnostic"), at_ratios((0.6,)))
    examples = list(task.generate(0, 3))

    def frame(workers: Workers) -> pd.DataFrame:
        with workers.map(lambda model, one: collect(model, task, [one], grid), examples) as work:
            rows = [record.model_dump() for of_context in work for record in of_context.records]
        return timeless(pd.DataFrame(rows))

    alone = frame(Workers(llama, 3, 1))
    assert set(alone.status) == {"ok"}
    assert alone.output_text.nunique() > 1
    pd.testing.assert_frame_equal(frame(Workers(llama, 3, 3)), alone)


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

    with (
        pytest.raises(KVBenchError, match="item 1 is broken"),
        Workers(llama, 200, count).map(work, range(200)) as found,
    ):
        results.extend(found)
    assert results == [0]
    assert len(list(tmp_path.iterdir())) < 100


def test_a_killed_worker_is_one_clear_line_that_names_what_it_had(llama: LoadedModel) -> None:
    names = [f"item {number}" for number in range(9)]
    with (
        pytest.raises(
            KVBenchError, match=r"a worker process was killed over item \d( or item \d)?, most"
        ) as refusal,
        Workers(llama, 9, 2).map(
            lambda _, name: os.kill(os.getpid(), signal.SIGKILL) if name == "item 6" else name,
            names,
        ) as results,
    ):
        list(results)
    assert "item 6" in str(refusal.value)
    assert "\n" not in str(refusal.value)


class OddError(Exception):
    """Pickled, but not unpickled."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(one + other)


def odd(_: LoadedModel, __: int) -> None:
    raise OddError("this is", " odd\nand long")


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (odd, r"unexpected OddError: this is odd \(.*test_workers.py:\d+\)$"),
        (lambda *_: sys.exit(0), "SystemExit: 0"),
    ],
    ids=["odd", "exit"],
)
def test_whatever_a_worker_raises_is_one_clear_line(
    llama: LoadedModel, work: Callable[[LoadedModel, int], None], said: str
) -> None:
    with (
        pytest.raises(KVBenchError, match=said),
        Workers(llama, 2, 2).map(work, range(2)) as results,
    ):
        list(results)


def test_workers_die_with_a_process_that_is_killed(llama: LoadedModel, tmp_path: Path) -> None:
    def work(_: LoadedModel, __: int) -> None:
        (tmp_path / str(os.getpid())).touch()
        time.sleep(1000)  # longer than the test waits

    def run() -> None:
        with Workers(llama, 2, 2).map(work, range(2)) as results:
            list(results)

    started = multiprocessing.get_context("fork").Process(target=run)
    started.start()
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    started.kill()
    started.join()
    workers = [int(path.name) for path in tmp_path.iterdir()]
    wait_until(lambda: not any(is_running(worker) for worker in workers))
    assert len(set(workers)) == 2
    assert not any(is_running(worker) for worker in workers)
