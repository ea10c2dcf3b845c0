"""Two functions at the same time: their results, their errors, and a process that cannot be copied."""

import subprocess
import sys

import pytest

from kvbench.system.side_by_side import side_by_side

SCRIPT = """
import os
from kvbench.system.side_by_side import side_by_side

shared = [1, 2, 3]
here, beside = side_by_side(os.getpid, lambda: (os.getpid(), sum(shared)))
assert here == os.getpid() and beside[1] == 6
assert (beside[0] != here) == (len(os.sched_getaffinity(0)) > 1)


def fail():
    raise ValueError("no such cell")


for functions in ((lambda: 1, fail), (fail, lambda: 1)):
    try:
        side_by_side(*functions)
    except ValueError as error:
        print(error)
"""


def test_an_error_of_either_is_raised_and_memory_is_shared() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "no such cell\nno such cell\n"


def test_where_torch_is_loaded_both_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    order: list[str] = []
    assert side_by_side(lambda: order.append("here"), lambda: order.append("beside")) == (None, None)
    assert order == ["here", "beside"]
