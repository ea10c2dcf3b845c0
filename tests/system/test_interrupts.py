"""Ctrl-C is answered once, and not in the middle of a write."""

import fcntl
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

import pytest

import kvbench.system.files
from kvbench.system.errors import KVBenchError
from kvbench.system.files import make_folder, write_atomically, write_text_atomically
from kvbench.system.lock import working_in
from kvbench.system.signals import PATIENCE, Interrupts
from tests.support.models.processes import Copy


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that it is: the test turns the clock."""
    clock = [100.0]
    monkeypatch.setattr("kvbench.system.signals.time.monotonic", lambda: clock[0])
    return clock


def test_a_second_press_counts_only_when_the_first_was_lost(now: list[float]) -> None:
    interrupts = Interrupts()
    with pytest.raises(KeyboardInterrupt):
        interrupts.interrupt()
    now[0] += PATIENCE / 2
    interrupts.interrupt()
    now[0] += PATIENCE
    with pytest.raises(KeyboardInterrupt):
        interrupts.interrupt()


def test_a_write_is_ended_before_its_interrupt(
    tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts = Interrupts()
    monkeypatch.setattr(kvbench.system.files, "INTERRUPTS", interrupts)

    def write(partial: Path) -> None:
        interrupts.interrupt()
        partial.write_text("all of it")

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", write)
    assert (tmp_path / "file").read_text() == "all of it"
    now[0] += 2 * PATIENCE
    write_atomically(tmp_path / "other", lambda partial: partial.write_text("no interrupt is left"))


def test_what_a_killed_process_left_of_a_file_goes_at_the_next_start(tmp_path: Path) -> None:
    page = tmp_path / "[index].html"

    def stop_within(partial: Path) -> None:
        partial.write_text("half of it")
        os.kill(os.getpid(), signal.SIGKILL)

    with Copy.of(lambda: write_atomically(page, stop_within)) as killed:
        killed.ended()
        (left,) = tmp_path.iterdir()
        others = left.with_name(left.name.replace(str(killed.process.pid), str(os.getpid())))
        others.write_text("another process is at it")
        strangers = tmp_path / ".download.partial"
        strangers.touch()
        write_text_atomically(page, "all of it")
        make_folder("--site", tmp_path)
    assert set(tmp_path.iterdir()) == {page, others, strangers}


def test_a_folder_is_worked_in_by_one_process_at_a_time_and_a_dead_one_keeps_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "runs/x"

    def hold() -> None:
        with working_in(folder):
            print("held", file=sys.stderr)
            time.sleep(600)

    with Copy.of(hold) as other:
        assert other.stderr.readline() == "held\n"
        owner = f"process {other.process.pid} on {platform.node()} is at work in {folder}"
        with pytest.raises(KVBenchError, match=owner), working_in(folder):
            pass
        other.process.kill()
        other.ended()
        with working_in(folder):
            pass
    assert not list(folder.parent.iterdir())


def test_a_lock_that_was_let_go_while_it_was_taken_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its former owner removes the file after this process has opened it: the next one would lock another file."""
    path, lock = tmp_path / ".x.lock", fcntl.lockf
    opened: list[TextIO] = []

    def late(file: TextIO, how: int) -> None:
        if not opened:
            path.unlink()
        opened.append(file)
        lock(file, how)

    monkeypatch.setattr("kvbench.system.lock.fcntl.lockf", late)
    with working_in(tmp_path / "x"):
        assert len(opened) == 2
        assert path.read_text() == f"process {os.getpid()} on {platform.node()}"
    assert not path.exists()
