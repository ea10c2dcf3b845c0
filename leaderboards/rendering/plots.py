"""Puts a drawing on a page, whose points tell their numbers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from leaderboards.aggregate.row import SummaryRow
from leaderboards.metrics import Measure
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.printed import USUAL, Paper
from leaderboards.rendering.templating import as_data
from leaderboards.statistics.text import interval_text

INTERVAL = "95 % interval "


@dataclass(frozen=True)
class Spot:
    """A point of a plot that tells its numbers."""

    index: int  # of the line style of its policy
    x: float  # in the units of the axes
    y: float
    level: str  # what was asked there
    lines: tuple[str, ...]  # the numbers, to be read below one another


@dataclass(frozen=True)
class Plot:
    """A drawing with the numbers of its points."""

    drawing: Drawing
    heading: str  # over the drawing in print
    spots: tuple[Spot, ...]
    names: Mapping[int, str]  # by the index of a line style, the policy
    note: str = ""  # what has to be known to read it

    def svg(self) -> Markup:
        return Markup(self.drawing.svg())

    def data(self) -> Markup:
        """Returns the points for the page's script; places are those of the drawing's ``viewBox``. A text of several
        points is told once, and by its number at each; :data:`INTERVAL` is a tab."""
        places = self.drawing.places([(spot.x, spot.y) for spot in self.spots])
        counts = Counter(text for spot in self.spots for text in (spot.level, *spot.lines))
        numbers = {text: number for number, text in enumerate(text for text in counts if counts[text] > 1)}
        return as_data(
            {
                "names": {str(index): name for index, name in self.names.items()},
                "texts": [text.replace(INTERVAL, "\t") for text in numbers],
                "spots": [
                    [
                        *(spot.index, round(x, 1), round(y, 1)),
                        *(numbers.get(text, text.replace(INTERVAL, "\t")) for text in (spot.level, *spot.lines)),
                    ]
                    for spot, (x, y) in zip(self.spots, places, strict=True)
                ],
            }
        )

    def save(self, path: Path, paper: Paper = USUAL) -> None:
        self.drawing.save(path, self.heading, paper)


def numbers(measure: Measure, row: SummaryRow) -> tuple[str, ...]:
    """Returns the value of a row and its interval, if it has one."""
    interval = measure.interval(row)
    text = measure.text(measure.value(row))
    if interval is None:
        return (text,)
    return text, f"{INTERVAL}{interval_text(interval, measure.factor, measure.digits)}"
