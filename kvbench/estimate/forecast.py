"""Says in which terms a study tells what it computes beside the answers of a run.

What depends on the answers is counted twice: at least, where answers end right behind their golds,
both paths choose the same and policies lose nothing; and at most, where no answer ends, all paths
part and policies lose everything."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

# Of a row of a plain cache in a step: it is read and written to be joined with the new one, and
# read.
STEP_READS = 3


@dataclass(frozen=True)
class Passes:
    """Counts passes over a decoder that are alike."""

    dtype: str = ""  # of weights and cache; none for the model's own
    count: float = 0.0  # passes, in each of which all weights are read
    tokens: float = 0.0
    pairs: float = 0.0  # of tokens that attend to each other
    # Tokens of which keys and values are read or written, beside those that a pass makes itself.
    cached: float = 0.0
    read: float = 0.0  # bytes beside those of weights and cache
    layers: float = 0.0  # as many layers as have the calls that come on top, whatever is computed

    def times(self, number: float) -> "Passes":
        """Returns as many times these passes, of which everything is counted so often."""
        counts: dict[str, Any] = {}
        for field in fields(self):
            if field.name != "dtype":
                counts[field.name] = number * getattr(self, field.name)
        return replace(self, **counts)


@dataclass(frozen=True)
class StudyPart:
    """A part of the work of the studies on one task, at least and at most."""

    name: str
    lower: Sequence[Passes]  # at least
    upper: Sequence[Passes]  # at most
    assumption: str  # what both ends of the range stand for, as a sentence
    # Seconds of one thread, at least and at most, which no card shortens.
    host: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Forecast:
    """Declares what the tables of a study cost (``forecast.py`` of its folder)."""

    # Yields the parts of the work on a task, of its ``Load`` and ``StudyLoad``, the
    # ``NumericsOptions`` of the run, its tables, and the layers and heads of its model.
    parts: Callable[..., Iterator[StudyPart]]
    # Counts by name what the parts need to know of a few prompts of a task.
    counts: Callable[..., Mapping[str, float]] | None = None
    # Counts the tokens of all caches that the study holds at once for a context, beside that of its
    # answers, of a ``Load``, its ``StudyLoad`` and the ``NumericsOptions``.
    cache_tokens: Callable[..., float] | None = None
