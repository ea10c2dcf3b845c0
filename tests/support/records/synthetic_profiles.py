"""Profiles as a run would have them, worked out by hand."""

from typing import Any

import numpy as np

from leaderboards.boards.profiles import Profile
from leaderboards.statistics.bootstrap import Blank, FloatArray
from policies import Level

RATIOS = (0.25, 0.5, 0.75)


def table(rows: Any) -> FloatArray:
    return np.atleast_2d(np.asarray(rows, dtype=np.float64))


def profile(
    percent_right: Any = (100, 80, 60, 0),
    realised: Any = (0.0, 0.25, 0.5, 0.75),
    levels: tuple[Level, ...] | None = None,
    policy: str = "snapkv",
    leads: tuple[Any, ...] | None = None,
) -> Profile:
    """A measured curve, and resamples of it where rows are given; what is measured once is the same in all of them.
    ``leads``: what leads the task, or else what is right."""
    compressed = RATIOS[: np.shape(percent_right)[-1] - 1]
    asked = levels or (Level("ratio", 0.0), *(Level("ratio", ratio) for ratio in compressed))
    measures = (realised, *((percent_right,) if leads is None else leads))
    rows = max(len(table(array)) for array in measures)
    places, *leading = (np.broadcast_to(table(array), (rows, len(asked))) for array in measures)
    return Profile(policy, asked, places, tuple(leading), questions=8, contexts=12)


def value(found: Any) -> Any:
    """What is there, and neither blank nor missing."""
    assert found is not None
    assert not isinstance(found, Blank), found
    return found
