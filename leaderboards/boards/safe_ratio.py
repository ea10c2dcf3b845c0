"""The safe ratio: up to which ratio can a cache be compressed?"""

from dataclasses import dataclass

from leaderboards.aggregate.summary import ONE_CONTEXT
from leaderboards.boards.cells import Cell
from leaderboards.boards.declaration import DerivedMeasure, each
from leaderboards.boards.profiles import NOT_COMPRESSED, Profile
from leaderboards.metrics.declaration.definition import Definition
from leaderboards.statistics.resampling import Blank, Estimate

TOLERATED_LOSS = 5.0  # points of F1


@dataclass(frozen=True)
class SafeRatio:
    """The highest ratio that is safe."""

    ratio: float  # 0 if none is
    losses: tuple[Estimate, ...]  # of F1, in points, against the full cache on the same questions, at each asked level


def safe_ratio(profile: Profile) -> SafeRatio | Blank:
    """The highest asked ratio up to which, at every lower one too, the loss of F1 against the full cache stays below 5
    points even at the upper end of its 95 % interval.

    The loss is paired: the same questions in the same resamples. Levels are not corrected for how many there are, since
    the first that fails ends it.
    """
    if isinstance(profile.f1, Blank):
        return profile.f1
    if len(profile.levels) < 2:
        return Blank(NOT_COMPRESSED)
    if profile.not_comparable:
        return Blank(profile.not_comparable)
    if len(profile.f1) < 2:
        return Blank(ONE_CONTEXT)
    lost = profile.f1[:, :1] - profile.f1[:, 1:]
    losses = tuple(profile.estimate(column) for column in lost.T)
    safe = 0.0
    for level, loss in zip(profile.levels[1:], losses, strict=True):
        if loss.high is None or loss.high >= TOLERATED_LOSS:
            break
        safe = level.value
    return SafeRatio(safe, losses)


SAFE_RATIO = DerivedMeasure(
    name="safe_ratio",
    unit="asked ratio",
    better="higher",
    bounds=(0, 1),
    line="up to which the loss of F1 stays below 5 points, also at the upper end of its interval",
    definition=Definition(
        "Safe ratio",
        "The highest asked ratio up to which, at every lower one too, the loss of F1 against the full cache on "
        f"the same questions stays below {TOLERATED_LOSS:g} points even at the upper end of its 95 % interval. "
        "“none”: already the lowest ratio is not safe.",
        f"safe ratio = max α such that upper(F1(full) − F1(β)) < {TOLERATED_LOSS:g} for all β ≤ α",
        chapter="board",
    ),
    of_board=each(safe_ratio),
    columns={"safe_ratio": "ratio"},
    heading="safe ratio",
    cell=lambda safe: Cell(f"{safe.ratio:g}" if safe.ratio else "none", "", safe.ratio),
)
