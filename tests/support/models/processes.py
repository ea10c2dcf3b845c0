"""Other processes that tests start: copies of this one, whether they run, and how to wait for
them."""

import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType
from typing import Self, TextIO

from kvbench.cli.program import program


@dataclass
class Copy:
    """A copy of this process, which has imported all that it needs: a process that imports it anew
    takes seconds. ``stderr``: what it says, until it ends."""

    process: BaseProcess
    stderr: TextIO

    @classmethod
    def of(
        cls, action: Callable[[], None], environment: Mapping[str, str] = MappingProxyType({})
    ) -> Self:
        """Starts a copy that does this, in a process group of its own, as in a terminal."""
        reading, writing = os.pipe()

        def act() -> None:
            os.setsid()
            os.environ.update(environment)
            os.dup2(writing, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            # And not what pytest reads.
            sys.stdout, sys.stderr = (
                os.fdopen(1, "w"),
                os.fdopen(2, "w", buffering=1),
            )
            action()

        process = multiprocessing.get_context("fork").Process(target=act)
        with warnings.catch_warnings():  # Python 3.12 warns of forks beside threads
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        os.close(writing)
        return cls(process, os.fdopen(reading))

    @classmethod
    def of_program(
        cls,
        words: Sequence[str],
        environment: Mapping[str, str] = MappingProxyType({}),
        before: Callable[[], None] = lambda: None,
    ) -> Self:
        """Starts a copy that is ``kvbench`` with these words. ``before``: what it does first."""

        def act() -> None:
            before()
            sys.argv = ["kvbench", *words]
            program()

        return cls.of(act, environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.join()
        self.process.close()
        self.stderr.close()

    def ended(self) -> tuple[int | None, str]:
        """Waits for its end; returns the exit status and what it said since it was last read."""
        said = self.stderr.read()
        self.process.join()
        return self.process.exitcode, said


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for it on a slow machine too: five minutes mean that it never comes."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited for five minutes")


def is_running(process: int) -> bool:
    """Whether it is there and no zombie, which only waits for whoever adopted it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
