"""Pages of results, and what stands on a page."""

import base64
import io
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from pandas import DataFrame
from rich.console import Console, RenderableType

from leaderboards.aggregate.summary import summarise
from leaderboards.metrics import TABLES, Over
from leaderboards.pages.front import FRONT, page_renderers
from leaderboards.pages.results import Results
from leaderboards.rendering.drawing import Plot

# Measures that every task with questions has a table of; others concern directives alone.
OF_EVERY_TASK = [measure for measure in TABLES if measure.over is not Over.CONCERNED]
PACKED = "application/zlib;base64"  # of a script element
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
# It ends a script, loads something from elsewhere, gives itself away in the title of the page, and
# talks to a terminal.
HOSTILE_IN_A_BROWSER = "</script><img src=https://example.invalid/x onerror=\"document.title='owned'\">\u2028\u202e\x1b[31m:&=#%"


def results_of(
    records: DataFrame,
    model: str = "toy",
    run: Mapping[str, Any] | None = None,
    folder: str = "run",
    **more: Any,
) -> Results:
    """All that a site shows of the records of a run."""
    return Results.of(records, summarise(records), {folder: run or {}}, model, **more)


def build_pages(results: Sequence[Results]) -> dict[str, str]:
    """The pages as texts by their file names, the front page first."""
    return {name: render_page() for name, render_page in page_renderers(results).items()}


def write_pages(folder: Path, *results: Results) -> Path:
    """Writes the pages of results; returns that of the front."""
    for name, page in build_pages(results).items():
        (folder / name).write_text(page, encoding="utf-8")
    return folder / FRONT


class Elements(HTMLParser):
    """All start tags with their attributes, the text outside of scripts and styles, the rows of
    tables as texts, and the headings of columns."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self.headings: list[str] = []
        self._open: list[list[str]] = []
        self._hidden = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._hidden = tag in ("script", "style")
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self._open = [self.rows[-1]]
            if tag == "th" and dict(attrs).get("scope") == "col":
                self._open.append(self.headings)
            for texts in self._open:
                texts.append("")
        elif tag == "small":  # what a heading is of follows it in small print
            self._open = [texts for texts in self._open if texts is not self.headings]

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False
        if tag in ("td", "th"):
            self._open = []

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text += data
            for texts in self._open:
                texts[-1] += data

    def values(self, attribute: str) -> list[str]:
        return [value for _, attributes in self.found if (value := attributes.get(attribute))]


def assert_inert(page: str, least: int) -> None:
    """Hostile text is there at least so often, as text."""
    elements = Elements(page)
    scripts = [attributes.get("type") for tag, attributes in elements.found if tag == "script"]
    assert scripts.count(None) == 1
    assert set(scripts) <= {None, "application/json", PACKED}
    assert "img" not in {tag for tag, _ in elements.found}
    assert not [
        name for _, attributes in elements.found for name in attributes if name.startswith("on")
    ]
    assert elements.text.count(HOSTILE) >= least


def examples_in(page: str) -> dict[str, Any]:
    """Unpacks what a page of examples draws."""
    (packed,) = re.findall(f'<script type="{PACKED}" id="data">(.*?)</script>', page, re.DOTALL)
    text, _, _ = zlib.decompress(base64.b64decode(packed)).partition(b"\0")
    data: dict[str, Any] = json.loads(text)
    return data


def told_by(plot: Plot) -> dict[str, Any]:
    """The names of its lines, and its spots, each with its policy, place, level and lines as they
    are shown."""
    data: dict[str, Any] = json.loads(plot.data())

    def text(part: str | int) -> str:
        return str(data["texts"][part] if isinstance(part, int) else part).replace(
            "\t", "95 % interval "
        )

    return data | {"spots": [[*spot[:3], *map(text, spot[3:])] for spot in data["spots"]]}


def printed(*shown: RenderableType, width: int = 80) -> str:
    """Returns what is printed, in lines of that width and without colours."""
    file = io.StringIO()
    Console(width=width, file=file).print(*shown)
    return file.getvalue()
