"""Ctrl-C is answered once, and not in the middle of a write."""

from pathlib import Path

import pytest

import kvbench.system.files
from kvbench.system.files import write_atomically
from kvbench.system.signals import PATIENCE, Interrupts


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
