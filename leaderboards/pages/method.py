"""The page on method: every definition, every task with an example, every policy with its paper,
and what this run is.

What tasks and policies there are is told by who knows them: here they are plain data.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from leaderboards.downloads.sheets import Sheet
from leaderboards.pages.definitions import chapters
from leaderboards.pages.results import distinct, spread
from leaderboards.rendering.templating import ALONE, Neighbours, Range, excerpt, render

LONGEST = 700  # characters of a context that are shown whole
AROUND = 60  # characters on either side of the evidence, of a longer one
ELLIPSIS = "…"
# What a run says of itself: its name on pages, the field, and how many letters of it are shown.
PROVENANCE = (
    ("Numbers in", "dtype", 40),  # the same model answers otherwise in another type of numbers
    ("Began", "created", 16),
    ("Commit", "git_revision", 10),
    ("Machine", "device", 40),
)


@dataclass(frozen=True)
class MarkedText:
    text: str
    kind: str = ""  # answer, evidence or nothing


@dataclass(frozen=True)
class TaskExample:
    context: str
    question: str
    gold: str
    perfect_output: str = ""  # what a perfect output is, where that is not the gold
    evidence: tuple[Range, ...] = ()  # characters of the context
    answers: tuple[Range, ...] = ()

    @property
    def excerpt(self) -> tuple[MarkedText, ...]:
        """Returns the context with what answers the question marked; of a long one, what is around
        that."""
        context = self.context
        kinds = self._kinds_of_letters()
        pieces, end = [], 0
        # From here on a piece for each run of letters of one kind, and one for each gap.
        for start, last in excerpt(context, (*self.evidence, *self.answers), AROUND, LONGEST):
            if start > end:
                pieces.append(MarkedText(ELLIPSIS))
            for kind, places in groupby(range(start, last), kinds.__getitem__):
                letters = [context[place] for place in places]
                pieces.append(MarkedText("".join(letters), kind))
            end = last
        if end < len(context):
            pieces.append(MarkedText(ELLIPSIS))
        return tuple(pieces)

    def _kinds_of_letters(self) -> list[str]:
        kinds = [""] * len(self.context)
        # Answers last, as they stand within the evidence.
        for kind, ranges in (("evidence", self.evidence), ("answer", self.answers)):
            for first, last in ranges:
                kinds[first:last] = [kind] * (min(last, len(kinds)) - first)
        return kinds


@dataclass(frozen=True)
class TaskEntry:
    name: str
    version: str
    description: str
    source: str  # the paper that has such a task
    chance: str
    instruction: str
    contexts: int  # of the run
    example: TaskExample | None
    # By model, the first prompt as it was sent.
    prompts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PolicyEntry:
    name: str
    description: str
    paper: str
    title: str  # of the paper
    runs: str  # its family, and what it needs
    budget: str
    arguments: str  # that its press ran with, by task


@dataclass(frozen=True)
class RunEntry:
    name: str
    command: str  # makes the run again
    unknown: tuple[str, ...]  # what the command does not make again
    typed: str  # the command that started it
    content: Mapping[str, Any]  # what ``run.json`` holds; all of it is shown

    @property
    def facts(self) -> str:
        """Writes what ``run.json`` holds, indented."""
        return json.dumps(self.content, indent=1, ensure_ascii=False)


@dataclass(frozen=True)
class Method:
    models: tuple[str, ...]
    tasks: tuple[TaskEntry, ...]
    policies: tuple[PolicyEntry, ...]
    runs: tuple[RunEntry, ...]
    citation: str = ""  # BibTeX of kvbench with these runs


def build_method(
    method: Method,
    sheets: Sequence[Sheet] = (),
    records: str = "",
    answers: int = 0,
    neighbours: Neighbours = ALONE,
) -> str:
    """Returns the page as text; the same input gives the same bytes. ``sheets``, and the file of
    all ``records`` with so many ``answers``: what lies in ``data`` beside it."""
    beside: dict[str, Any] = {"sheets": sheets, "records": records, "answers": answers}
    beside["neighbours"] = neighbours
    return render("method.html.j2", method=method, chapters=chapters(), **beside)


def provenance_facts(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Tells when some runs began, by which commit and on which machine, as far as they know."""
    facts = list(map(spread, runs))
    provenance = []
    for name, key, longest in PROVENANCE:
        values = []
        for of_run in facts:
            if not of_run.get(key):
                continue
            text = str(of_run[key])[:longest]
            if key == "created":
                text = text.replace("T", " ")  # of a date alone: a card may be a "Tesla T4"
            values.append(text)
        if values:
            provenance.append((name, ", ".join(distinct(values))))
    return provenance
