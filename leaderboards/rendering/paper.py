"""The paper that a figure for print is drawn on: how wide it is, and whether it has a heading."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from leaderboards.errors import LeaderboardError

INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}
WIDTHS = (1.5, 30.0)  # inches, between which a figure can be read
LETTERS = 11.5  # of a heading, in an inch
SWATCH = 0.5  # inches beside a name in a legend
LEGEND_LETTERS = 14  # of a legend, in an inch
MOST_COLUMNS = 4


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

    def legend_columns(self, labels: Sequence[str]) -> int:
        """Returns in how many columns a legend is no wider than the figure; matplotlib fills one after the other."""
        for count in range(min(MOST_COLUMNS, len(labels)), 1, -1):
            columns = np.array_split(np.array(labels), count)
            if sum(SWATCH + max(map(len, column.tolist())) / LEGEND_LETTERS for column in columns) <= self.width:
                return count
        return 1

    def heading(self, text: str) -> str:
        """Returns a heading in lines that are no wider than the figure, or nothing."""
        return self.lower_label(text) if self.headed else ""

    def lower_label(self, text: str) -> str:
        """Returns the label of the lower axis in lines that are no wider than the figure."""
        return textwrap.fill(text, int(self.width * LETTERS))

    @staticmethod
    def upright_label(text: str, height: float) -> str:
        """Returns the label of an upright axis in lines that are no longer than ``height``, in inches."""
        return textwrap.fill(text, max(1, int(height * LETTERS)))


USUAL = Paper()
