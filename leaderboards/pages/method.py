"""The page on method: every definition, every task with an example, every policy with its paper, and what this run is.

What tasks and policies there are is told by who knows them: here they are plain data.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboards.downloads.sheets import Sheet
from leaderboards.pages.definitions import chapters
from leaderboards.pages.entries import Entry, entries_of
from leaderboards.rendering.templating import render

LONGEST = 700  # characters of a context that are shown
AROUND = 220  # characters on either side of the evidence, of a longer one
ELLIPSIS = "…"

Range = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """A stretch of a context. ``kind``: ``answer``, ``evidence`` or nothing."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class TaskExample:
    """A question of a task. ``evidence`` and ``answers``: characters of the context, from the first to behind the
    last. ``written``: what a perfect output is, where that is not the gold."""

    context: str
    question: str
    gold: str
    written: str = ""
    evidence: tuple[Range, ...] = ()
    answers: tuple[Range, ...] = ()

    @property
    def excerpt(self) -> tuple[Piece, ...]:
        """The context with what answers the question marked; of a long one, what is around that."""
        return tuple(_pieces(self))


@dataclass(frozen=True)
class TaskEntry:
    """``contexts``: of the run, 0 if it is no part of it. ``source``: the paper that has such a task."""

    name: str
    version: str
    description: str
    source: str
    chance: str
    instruction: str
    contexts: int
    example: TaskExample | None


@dataclass(frozen=True)
class PolicyEntry:
    """``runs``: its family, and what it needs. ``arguments``: of its press in the run, as text; ``in_run``: whether it
    is a part of it."""

    name: str
    description: str
    paper: str
    title: str
    runs: str
    budget: str
    arguments: str
    in_run: bool


@dataclass(frozen=True)
class RunEntry:
    """``command``: makes the run again, but for what ``unknown`` names. ``typed``: as it was started. ``content``: what
    ``run.json`` holds; all of it is shown."""

    name: str
    command: str
    unknown: tuple[str, ...]
    typed: str
    content: Mapping[str, Any]

    @property
    def entries(self) -> tuple[Entry, ...]:
        return entries_of(self.content)


@dataclass(frozen=True)
class Method:
    models: tuple[str, ...]
    tasks: tuple[TaskEntry, ...]
    policies: tuple[PolicyEntry, ...]
    runs: tuple[RunEntry, ...]


@dataclass(frozen=True)
class Downloads:
    """Names what lies in the folder ``data`` beside the pages. ``records``: the name of the file of all records, and
    ``answers`` how many these are."""

    sheets: Sequence[Sheet] = ()
    records: str = ""
    answers: int = 0


def build_method(method: Method, downloads: Downloads | None = None) -> str:
    """The page as text; the same input gives the same bytes."""
    return render(
        "method.html.j2",
        method=method,
        chapters=chapters(),
        in_run=[policy for policy in method.policies if policy.in_run],
        others=[policy for policy in method.policies if not policy.in_run],
        downloads=downloads or Downloads(),
    )


def _pieces(example: TaskExample) -> Iterator[Piece]:
    context = example.context
    start, end = _window(context, (*example.evidence, *example.answers))
    kinds = [""] * len(context)
    for kind, ranges in (("evidence", example.evidence), ("answer", example.answers)):
        for first, last in ranges:
            kinds[first:last] = [kind] * (min(last, len(context)) - first)
    yield from [Piece(ELLIPSIS)] if start else []
    place = start
    while place < end:
        until = next((i for i in range(place, end) if kinds[i] != kinds[place]), end)
        yield Piece(context[place:until], kinds[place])
        place = until
    yield from [Piece(ELLIPSIS)] if end < len(context) else []


def _window(context: str, marked: Iterable[Range]) -> Range:
    """A stretch of whole words that holds what is marked, as far as there is room."""
    if len(context) <= LONGEST:
        return 0, len(context)
    ranges = sorted(marked)
    first = max(0, ranges[0][0] - AROUND) if ranges else 0
    last = min(len(context), first + LONGEST)
    start = context.find(" ", first) + 1 if first else 0
    end = context.rfind(" ", start, last) if last < len(context) else last
    return start, end if end > start else last
