"""Declares and finds studies: an experiment with a page of its own, the ``STUDY`` of
``leaderboards/studies/<name>/study.py``. The site then has its page and its downloads, the front
page leads to it, and the page of method holds its definitions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from markupsafe import Markup
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.errors import LeaderboardError
from leaderboards.metrics.declaration import Chapter
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.style import LineStyle
from leaderboards.rendering.templating import ALONE, HeatMap, Listing, Neighbours, render
from policies.declaration.names import by_name


@dataclass(frozen=True)
class StudyInput:
    """Holds what a study is made from: the results of one model in one setting."""

    model: str
    records: DataFrame
    runs: Sequence[Mapping[str, Any]] = ()  # what ``run.json`` of each run holds
    # Those that the study reads, as far as runs have any.
    tables: Mapping[str, DataFrame] = field(default_factory=dict)
    # Of other models on the same site, with what the study needs.
    beside: Sequence["StudyInput"] = ()
    number: int = 1  # of these results on their site, as in the names of their pages
    # Of the whole site in the order of its front page, where lines go by their places.
    policies: Sequence[str] = ()
    modes: Sequence["StudyInput"] = ()  # of the same model in other modes on the same site

    @property
    def mode(self) -> str:
        """Returns when presses saw the question; results of one setting have one mode."""
        return str(self.records["mode"].iloc[0])


@dataclass(frozen=True)
class Picture:
    title: str
    note: str  # stands beside the title
    drawing: Drawing  # a page has it as SVG, print by seaborn


@dataclass(frozen=True)
class StudySection:
    """A section of a study's page. Listings without rows are left out."""

    identifier: str
    title: str
    text: str | Markup
    styles: tuple[LineStyle, ...] = ()  # of the lines of the pictures
    pictures: tuple[Picture, ...] = ()
    listings: tuple[Listing, ...] = ()
    details: tuple[Listing, ...] = ()  # stand behind a summary that opens them
    maps: tuple[HeatMap, ...] = ()  # stand before the listings

    @property
    def printable(self) -> Iterator[tuple[str, Drawing | HeatMap]]:
        """Yields what goes to paper, with its heading: the page has the note of a picture above it,
        paper at its axis."""
        for picture in self.pictures:
            frame = picture.drawing.frame
            vertical = replace(frame.vertical, title=frame.vertical.title or picture.note)
            drawing = replace(picture.drawing, frame=replace(frame, vertical=vertical))
            yield f"{self.title} – {picture.title}", drawing
        for heat_map in self.maps:
            yield f"{self.title} – {heat_map.title}", heat_map


@dataclass(frozen=True)
class StudyContent:
    parts: Sequence[StudySection]
    facts: Sequence[tuple[str, str]] = ()  # name and text, at the top of the page
    sheets: Sequence[Sheet] = ()  # its downloads


@dataclass(frozen=True)
class Study:
    name: str  # of its page ``<name>.html``, if it has one
    title: str  # of its page, and of the link on the front page
    lead: str  # says under the title what the study asks
    # Tells whether results have what the study needs; others have no such page.
    takes: Callable[[StudyInput], bool]
    find: Callable[[StudyInput], StudyContent]
    chapter: Chapter  # its definitions
    # The tables of its own that it reads (kvbench.store.tables.register).
    tables: tuple[str, ...] = ()
    is_on_front: bool = (
        False  # whether its sections stand on the front page, and it has no page of its own
    )

    def file_name(self, number: int = 1) -> str:
        if number == 1:
            return f"{self.name}.html"
        return f"{self.name}.{number}.html"


def build_study(
    study: Study, study_input: StudyInput, neighbours: Neighbours = ALONE
) -> tuple[str, StudyContent]:
    """Returns the page as text and what it holds; the same input gives the same bytes."""
    content = study.find(study_input)
    identities = [run.get("identity", {}) for run in study_input.runs]
    dtypes = dict.fromkeys(str(identity["dtype"]) for identity in identities if "dtype" in identity)
    facts = list(content.facts)
    if dtypes:
        facts.insert(0, ("Numbers in", ", ".join(dtypes)))
    shown: dict[str, Any] = {"facts": facts, "parts": content.parts, "sheets": content.sheets}
    shown |= {"study": study, "model": study_input.model, "neighbours": neighbours}
    return render("study.html.j2", **shown), content


@cache
def studies() -> Mapping[str, Study]:
    """Returns all studies by name; a name taken twice raises :class:`LeaderboardError`."""
    declared: list[Study] = []
    # A study is found by its file, so that none is named in a list here.
    for path in sorted(Path(__file__).parent.glob("*/study.py")):
        module = import_module(f"leaderboards.studies.{path.parent.name}.study")
        declared.append(module.STUDY)
    in_order = sorted(declared, key=lambda study: study.name)
    return by_name("studies", in_order, LeaderboardError)


def list_studies(results: StudyInput) -> list[Study]:
    """Lists the studies that have a page of these results. They take complete runs alone: their
    numbers are paired."""
    if any(run["status"] != "complete" for run in results.runs):
        return []
    return [study for study in studies().values() if study.takes(results)]
