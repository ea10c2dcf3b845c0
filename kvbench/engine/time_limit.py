"""A limit for the time that a press takes: a press that exceeds it has failed."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from policies.declaration.foreign_code import FOREIGN_SECONDS, time_bound

CELL_SECONDS = FOREIGN_SECONDS
TIMES = 3
# Not 0, which a timer of the system takes for no timer at all.
MOMENT = 1e-3  # seconds


class TimeLimit:
    """Limits the time that a press takes with one context.

    A press that exceeded it :data:`TIMES` times is given up: no prefill of its own is begun any
    more, and elsewhere it gets only a moment, because one that hangs would hold up a run for hours.
    Each worker process counts for itself."""

    def __init__(self, seconds: float = CELL_SECONDS) -> None:
        self.seconds = seconds
        self._exceeded: Counter[str] = Counter()  # by name of the policy

    def given_up(self, policy: str) -> str:
        """Says why a press is given up; an empty text where it is not."""
        if self._exceeded[policy] < TIMES:
            return ""
        return f"given up: {self._reason} {TIMES} times before"

    @property
    def _reason(self) -> str:
        return f"it took longer than {self.seconds:g} s (cell_seconds of --executor)"

    @contextmanager
    def for_call(self, policy: str, spent: float = 0.0) -> Iterator[None]:
        """Raises :class:`TookTooLongError` in the call inside once its time is up, less what was
        ``spent``."""
        given_up = self.given_up(policy)
        started, bound = time.monotonic(), MOMENT if given_up else max(self.seconds - spent, MOMENT)
        try:
            with time_bound(bound, given_up or self._reason):
                yield
        finally:
            # By the clock and not by the error, which a press may catch, or an operation of torch
            # delay.
            self._exceeded[policy] += time.monotonic() - started >= bound


DTYPES = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
SAMPLING = ("greedy", "top_k", "top_p")
# Which path gets parts of the other: cache on, which repairs it, or cache off, as in the text.
INTO_ON, INTO_OFF = "into_on", "into_off"
DIRECTIONS = (INTO_ON, INTO_OFF)
MOST_STEPS = 128  # as in arXiv 2604.15409
FEW_STEPS = 16
WORKED_OUT = 64  # tokens: a task that allows so many has answers with steps before the result
BY_TASK = "by task"


@dataclass(frozen=True)
class NumericsOptions:
    """The options of a run that fills the tables of numerics."""

    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")  # as torch names them
    sampling: tuple[str, ...] = SAMPLING
    repeats: int = 1  # draws where tokens are chosen at random
    steps: int | None = None  # tokens at most of an answer; None: by its task
    deterministic: bool = True  # torch takes only algorithms that give the same bits again
    directions: tuple[str, ...] = DIRECTIONS  # of patches

    def steps_on(self, longest: int) -> int:
        """Returns the tokens at most of an answer of a task, which itself allows ``longest``: an
        answer of a word or a number ends before both paths could part."""
        return self.steps or (MOST_STEPS if longest >= WORKED_OUT else FEW_STEPS)

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> Self:
        """Returns the options that an identity holds (:meth:`as_texts`), and the usual ones where
        it holds none."""
        if not texts:
            return cls()
        dtypes, sampling = (tuple(texts[name].split(",")) for name in ("dtypes", "sampling"))
        steps = None if texts["steps"] == BY_TASK else int(texts["steps"])
        is_deterministic = texts.get("deterministic") == "yes"
        directions = tuple(texts.get("directions", ",".join(DIRECTIONS)).split(","))
        return cls(dtypes, sampling, int(texts["repeats"]), steps, is_deterministic, directions)

    def as_texts(self) -> dict[str, str]:
        """Returns the options as a run's identity holds them."""
        # In the order of the tables: that in which they are asked for makes no other run.
        dtypes = ",".join(sorted(self.dtypes, key=[*DTYPES.values()].index))
        sampling = ",".join(sorted(self.sampling, key=SAMPLING.index))
        texts = {
            "dtypes": dtypes,
            "sampling": sampling,
            "repeats": str(self.repeats),
            "steps": str(self.steps or BY_TASK),
            "deterministic": "yes" if self.deterministic else "no",
        }
        if {*self.directions} != {*DIRECTIONS}:
            texts["directions"] = ",".join(self.directions)
        return texts
