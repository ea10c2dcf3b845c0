"""Freed memory is given back once keeping it has made a process grow, and not before."""

import platform
import subprocess
import sys

import pytest

# In a process of its own, whose memory no other test has cut into pieces. Blocks that stay lie
# between those that are freed, so that nothing is given back by itself.
GROWS = """
import numpy
from kvbench.system.process import MEMORY, FreedMemory, settle

def held():
    return int(MEMORY.read_text().split()[1]) * 4096 / 1e6

settle()
freed = FreedMemory(growth=200 * 10**6)
assert not freed.give_back_growth()
before = held()
blocks = [numpy.ones(10**6, dtype=numpy.uint8) for _ in range(600)]
staying = blocks[::100]
del blocks
grown = held()
assert grown > before + 400, (before, grown)
assert freed.give_back_growth()
assert held() < before + 200, (before, held())
# What it holds now is what it may hold: a little more is kept.
assert not freed.give_back_growth()
blocks = [numpy.ones(10**6, dtype=numpy.uint8) for _ in range(100)]
del blocks
assert not freed.give_back_growth()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory is kept with glibc alone")
def test_growth_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", GROWS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
