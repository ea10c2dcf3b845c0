"""What a command did that was given something bad, and how many of each there are."""

import re
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from typing import Literal

from kvbench.cli.program import main

Outcome = Literal["well", "unclear", "hang", "traceback", "lost", "falsified"]
OUTCOMES: tuple[Outcome, ...] = ("well", "unclear", "hang", "traceback", "lost", "falsified")
SECONDS = 60.0  # of processor time, after which a command hangs
PATIENCE = 300.0  # seconds, after which a process hangs that was to end
LONGEST = 2600  # characters of an error that is still read
UNEXPECTED = re.compile(r"unexpected [A-Z]\w+: ")
STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class HangError(BaseException):
    """A command did not end."""


@dataclass
class Board:
    """Counts outcomes by kind of attack, and keeps what makes each bad one again."""

    counts: dict[str, Counter[Outcome]] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)

    def add(self, kind: str, seed: int, outcome: Outcome, what: str) -> None:
        self.counts.setdefault(kind, Counter())[outcome] += 1
        if outcome != "well":
            self.bad.append(f"{outcome}: {kind}, seed {seed}: {what}")

    @property
    def is_sound(self) -> bool:
        """Whether nothing was lost or falsified, nothing hung or showed a traceback, and few errors
        were unclear."""
        total = sum(map(Counter.total, self.counts.values()))
        together = sum(self.counts.values(), Counter[Outcome]())
        return set(together) <= {"well", "unclear"} and together["unclear"] <= total / 100


@contextmanager
def ended_after(seconds: float, timer: int = signal.ITIMER_VIRTUAL) -> Iterator[None]:
    """Raises :class:`HangError` in a body that takes more processor time, or time by
    ``signal.ITIMER_REAL``."""

    def end(*_: object) -> None:
        raise HangError

    sent = signal.SIGALRM if timer == signal.ITIMER_REAL else signal.SIGVTALRM
    before = signal.signal(sent, end)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(sent, before)


def shows_a_fault(text: str) -> bool:
    """Tells whether what a command said is a fault of ours and no answer."""
    return bool(UNEXPECTED.search(text)) or "Traceback" in text or "Exception ignored" in text


def call(words: Iterable[str]) -> tuple[Outcome, str]:
    """Runs a command in this process; returns its outcome with the end of what it said."""
    said, out = StringIO(), StringIO()
    try:  # the console writes to whatever standard error is
        with ended_after(SECONDS), redirect_stdout(out), redirect_stderr(said):
            status = main(list(words))
    except HangError:
        return "hang", ""
    except BaseException as error:
        return "traceback", repr(error)[:300]
    text = said.getvalue()
    last = next((line for line in reversed(text.splitlines()) if line.startswith("error: ")), "")
    if shows_a_fault(text):
        return "traceback", last[:300]
    unclear = (
        STRANGE.search(text + out.getvalue()) or len(last) > LONGEST or (status != 0 and not last)
    )
    return ("unclear" if unclear else "well"), last[:300]
