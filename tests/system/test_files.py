"""Files are whole or not there, also behind Ctrl-C and kill; folders that cannot be used are
refused in one line."""

import os
import platform
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kvbench.system.errors import KVBenchError
from kvbench.system.files import (
    check_writable,
    make_folder,
    working_in,
    write_atomically,
    write_text_atomically,
)
from kvbench.system.process import answer_interrupts
from tests.support.models.processes import Copy


def test_a_write_is_ended_before_its_interrupt(tmp_path: Path) -> None:
    file = tmp_path / "file"

    def press_within(partial: Path) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        partial.write_text("all of it")

    def work() -> None:
        answer_interrupts()
        with suppress(KeyboardInterrupt):
            write_atomically(file, press_within)
            print("no interrupt", file=sys.stderr)
        write_atomically(
            tmp_path / "other", lambda partial: partial.write_text("no interrupt is left")
        )

    with Copy.of(work) as process:
        assert process.ended() == (0, "")
    assert file.read_text() == "all of it"


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


def test_a_folder_is_worked_in_by_one_process_at_a_time_and_a_dead_one_keeps_nothing(
    tmp_path: Path,
) -> None:
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


def test_a_local_folder_that_takes_no_file_is_one_line_and_none_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file/runs/deep"):
        with pytest.raises(
            KVBenchError, match=r"--out .* cannot be written \(.*file: it is no folder\)"
        ):
            check_writable("--out", folder)
    check_writable("--out", tmp_path / "new/runs")
    assert not (tmp_path / "new").exists()
