"""The paper that a figure for print is drawn on: how wide it is, and whether it has a heading."""

import re
import textwrap
from dataclasses import dataclass
from typing import Self

from leaderboards.errors import LeaderboardError

INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}
WIDTHS = (1.5, 30.0)  # inches, between which a figure can be read
LETTERS = 11.5  # of a heading, in an inch
ENTRY = 1.5  # inches that an entry of a legend needs


@dataclass(frozen=True)
class Paper:
    """The width in inches, and whether a heading stands above the figure."""

    width: float = 6.0
    headed: bool = True

    @classmethod
    def parse(cls, width: str, headed: bool = True) -> Self:
        """Reads a width such as ``3.25in``, ``8cm`` or ``82mm``; raises :class:`LeaderboardError` for anything else."""
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(in|cm|mm)\s*", width)
        inches = float(match[1]) * INCHES[match[2]] if match else 0.0
        if not WIDTHS[0] <= inches <= WIDTHS[1]:
            raise LeaderboardError(f"'{width}' is no width of a figure: give one such as 3.25in, 8cm or 82mm")
        return cls(inches, headed)

    @property
    def legend_columns(self) -> int:
        return max(1, int(self.width / ENTRY))

    def heading(self, text: str) -> str:
        """Returns a heading in lines that are no wider than the figure, or nothing."""
        return self.below(text) if self.headed else ""

    def below(self, text: str) -> str:
        """Returns the label of the lower axis in lines that are no wider than the figure."""
        return textwrap.fill(text, int(self.width * LETTERS))

    @staticmethod
    def beside(text: str, height: float) -> str:
        """Returns the label of an upright axis in lines that are no longer than ``height``, in inches."""
        return textwrap.fill(text, max(1, int(height * LETTERS)))


USUAL = Paper()
