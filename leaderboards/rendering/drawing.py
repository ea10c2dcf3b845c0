"""Drawings: a frame with marks on it, for a page or for print. The same values give the same bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from leaderboards.rendering.frames import Frame
from leaderboards.rendering.marks import Mark, Place
from leaderboards.rendering.paper import USUAL, Paper
from leaderboards.rendering.printed import save
from leaderboards.rendering.svg import part_of_a_page, pixel_of


@dataclass(frozen=True)
class Drawing:
    """A drawing and its name."""

    frame: Frame
    marks: tuple[Mark, ...]  # those of one depth in the order in which they are drawn
    title: str
    salt: str  # of ids, different for each drawing of a page

    def svg(self) -> str:
        """Returns it as a part of a page, which has the legend."""
        return part_of_a_page(self.frame, self.marks, self.title, self.salt)

    def places(self, points: Sequence[Place]) -> list[Place]:
        """Returns where points of the frame are in the ``viewBox`` of :meth:`svg`, from its upper left corner."""
        return [pixel_of(self.frame, point) for point in points]

    def save(self, path: Path, heading: str, paper: Paper = USUAL, caption: str = "") -> None:
        """Draws it for print, with a legend; the format is that of the suffix: svg, png or pdf. The file holds the
        caption as its description."""
        save(self.frame, self.marks, self.salt, path, heading, paper, caption)
