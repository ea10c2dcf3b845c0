"""Declares presses of kvpress that sketch the keys at random, with the same sketch in every run."""

from dataclasses import dataclass

from kvpress import CompactorPress, LeverageScorePress

from policies.declaration.draws import SeededScore


@dataclass
class SeededLeveragePress(SeededScore, LeverageScorePress):
    """Its sketch of the keys is drawn at random."""


@dataclass
class SeededCompactorPress(SeededScore, CompactorPress):
    """Its sketch of the keys is drawn at random."""
