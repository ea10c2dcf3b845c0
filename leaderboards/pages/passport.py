"""The page of a passport: which formats the cache of a model stands, and what its rows are like."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leaderboards.rendering.templating import ALONE, render

PASSPORT = "passport.html"
CELL = 6  # pixels of a channel in the picture, across and up
# By class of channels, the steps of q4_0 from which on a channel varies, and what it is called.
CLASSES = (
    ("lost", 0.0, "varies by less than a step: lost"),
    ("coarse", 1.0, "by 1 to 2 steps"),
    ("told", 2.0, "by 2 steps and more"),
)


@dataclass(frozen=True)
class FormatRow:
    """Holds what a page says of one format."""

    name: str
    percent: str  # of the bytes of a cache in 16 bits
    breaks: bool  # as is foretold
    moved: str  # percent of the attention
    layers: str
    key_error: str  # percent
    mends: Sequence[str]
    right: str = ""  # percent; empty where no question was asked, as the next ones
    lost: str = ""
    perplexity: str = ""
    broke: bool | None = None


@dataclass(frozen=True)
class LayerRow:
    """Holds what a page says of one layer, as texts by the titles of its columns."""

    name: str
    cells: Sequence[str]
    channels: Sequence[float]  # by how many steps of q4_0 each varies


def build_passport(
    model: str,
    verdict: str,
    score: str,
    questions: str,
    formats: Sequence[FormatRow],
    columns: Mapping[str, str],
    layers: Sequence[LayerRow],
    most_moved: float,
    most_lost: float,
) -> str:
    """Builds the page as text. ``questions``: what was asked; empty where nothing was.
    ``columns``: of the table of layers, with what each means. ``most_moved``: share of the
    attention, and ``most_lost``: points, beyond which a format breaks the model."""
    return render(
        "passport.html.j2",
        model=model,
        verdict=verdict,
        score=score,
        questions=questions,
        formats=formats,
        columns=columns,
        layers=layers,
        classes=CLASSES,
        picture=draw_channels(layers),
        most_moved=most_moved,
        most_lost=most_lost,
        neighbours=ALONE,
    )


def draw_channels(layers: Sequence[LayerRow]) -> Markup:
    """Draws a row for each layer and a square for each key channel of its heads, by its class."""
    squares: dict[str, list[str]] = {name: [] for name, _, _ in CLASSES}
    for row, layer in enumerate(layers):
        for column, steps in enumerate(layer.channels):
            # Classes ascend: the last whose bound is reached.
            name = [name for name, least, _ in CLASSES if steps >= least][-1]
            place = f"M{column * CELL} {row * CELL}"
            squares[name].append(f"{place}h{CELL - 1}v{CELL - 1}h{1 - CELL}z")
    width = CELL * max((len(layer.channels) for layer in layers), default=0)
    height = CELL * len(layers)
    paths = []
    for name, places in squares.items():
        paths.append(f'<path class="{name}" d="{"".join(places)}"/>')
    label = "Key channels by layer: how many steps of q4_0 each varies by"
    attributes = f'viewBox="0 0 {width} {height}" role="img" aria-label="{label}"'
    return Markup(f'<svg class="channels" {attributes}>{"".join(paths)}</svg>')
