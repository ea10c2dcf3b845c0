"""Turns templates into pages: one file each, with its style and its script inside, and no remote
origin."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from leaderboards.rendering.style import CONTROL_COLOUR, INK_COLOUR, SERIES_COLOURS

Range = tuple[int, int]  # characters, from the first to behind the last


@dataclass(frozen=True)
class Listing:
    """A table of texts, written by ``write_table`` of the templates."""

    title: str
    columns: tuple[str, ...]  # the first holds the name of each row
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Tile:
    """A cell of a :class:`HeatMap`."""

    text: str
    detail: str  # stands under the text
    heat: float  # 0 to 1


@dataclass(frozen=True)
class HeatMap:
    """A table that is a picture: cells are the darker the higher their value. None is a cell that
    was not run."""

    title: str
    side: str  # what the rows are
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Tile | None, ...]], ...]  # the name of each row, and its cells
    across: str = ""  # what the columns are, and what the heat is, which a page says in words
    unit: str = ""


@dataclass(frozen=True)
class Neighbours:
    """The pages of other commands that a page can lead to, by their addresses."""

    all_runs: str = ""  # the list of all runs; empty where there is none
    pages: frozenset[str] = frozenset()  # those that are there when the page is written
    # The title of the first page beside it; empty on one that is first itself, and leads to no other.
    first: str = "Results"
    has_method: bool = True  # whether a page on method, with downloads, lies beside it


ALONE = Neighbours()


def render(
    template: str,
    scripts: Sequence[str] = ("address.js", "page.js"),
    neighbours: Neighbours = ALONE,
    **values: Any,
) -> str:
    """Returns a page as text, with its scripts as one; whatever is no :class:`~markupsafe.Markup`
    is escaped. ``neighbours``: of the page, which has links to them."""
    code = "\n".join(_without_comments(_text(script)) for script in scripts)
    style = Markup(_palette() + _text("page.css"))
    # The page lets a browser run no other script than the one of this digest.
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    shared = {"style": style, "script": Markup(code), "script_digest": digest}
    page = _environment().get_template(template)
    return page.render(neighbours=neighbours, **shared, **values)


@cache  # and with it what the templates are compiled to
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("leaderboards.rendering", "templates"),
        autoescape=True,
        # A value that a page is not given is an error, and no empty text.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    return environment


def breakable(name: str) -> str:
    """Lets a name go on in the next line behind each of its parts: a long one is shown in full.

    >>> breakable("h2o_a+int8(group=32,k_axis=token)").split(chr(0x200B))
    ['h2o_', 'a+', 'int8(', 'group=32,', 'k_axis=token)']
    """
    return re.sub(r"(?:(?<=\w\w)_|[+(,])(?=\S)", "\\g<0>\u200b", name)


def as_data(content: Any) -> Markup:
    """Returns JSON that cannot close its script element: no "<", and nothing outside of ASCII."""
    text = json.dumps(content, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def as_packed_data(content: Any, numbers: bytes) -> str:
    """Returns JSON, a zero and the numbers behind it, in deflate and base64: a page would weigh
    twice as much without. Its script unpacks them."""
    text = json.dumps(content, separators=(",", ":"))
    packed = zlib.compress(text.encode() + b"\0" + numbers, 9)
    return base64.b64encode(packed).decode()


def _text(name: str) -> str:
    return files("leaderboards.rendering").joinpath("templates", name).read_text(encoding="utf-8")


def _without_comments(script: str) -> str:
    """Leaves out indents and lines of comments, a quarter of a script, which stands on every
    page."""
    lines = (line.strip() for line in script.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _palette() -> str:
    """Returns the colours of the curves as style-sheet variables, for light and for dark."""
    colours = {f"--series-{number}": pair for number, pair in enumerate(SERIES_COLOURS)}
    colours |= {"--control-curve": CONTROL_COLOUR, "--ink-curve": INK_COLOUR}
    light = dark = ""
    for name, (on_light, on_dark) in colours.items():
        light += f"{name}:{on_light};"
        dark += f"{name}:{on_dark};"
    return f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"


def excerpt(text: str, marked: Iterable[Range], around: int, longest: int) -> list[Range]:
    """Returns stretches of whole words, in order and without overlap, that hold the marked ranges
    with ``around`` characters on either side. A text of up to ``longest`` is left whole; without
    ranges its beginning is taken."""
    if len(text) <= longest:
        return [(0, len(text))]
    stretches: list[Range] = []
    for start, end in sorted(marked):
        first = text.rfind(" ", 0, max(0, start - around)) + 1
        last = text.find(" ", min(len(text), end + around))
        if last < 0:
            last = len(text)
        if stretches and first <= stretches[-1][1]:
            first, last_before = stretches.pop()
            last = max(last_before, last)
        stretches.append((first, last))
    return stretches or [(0, longest)]
