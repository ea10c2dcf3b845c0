"""Profiles as a run would have them, worked out by hand."""

from typing import Any

import numpy as np

from leaderboards.boards.profiles import LeadByContext, Profile
from leaderboards.statistics.bootstrap import Blank, FloatArray
from policies import Level

RATIOS = (0.25, 0.5, 0.75)
CONTEXTS = 12


def table(rows: Any) -> FloatArray:
    return np.atleast_2d(np.asarray(rows, dtype=np.float64))


def lead(heights: FloatArray) -> LeadByContext:
    """A measure that each context has in percent, shape (contexts, 1 + levels), of one question
    each."""
    shares = heights.T / 100
    lost = shares[0] - shares
    return LeadByContext(
        heights.T, np.maximum(lost, 0), np.maximum(-lost, 0), np.ones(len(heights), dtype=bool)
    )


def profile(
    percent_right: Any = (100, 80, 60, 0),
    realised: Any = (0.0, 0.25, 0.5, 0.75),
    levels: tuple[Level, ...] | None = None,
    policy: str = "snapkv",
    leads: tuple[Any, ...] | None = None,
) -> Profile:
    """A curve of one task, the same in each of twelve contexts, or of a context for each row.
    ``leads``: what leads the task, or else what is right."""
    compressed = RATIOS[: np.shape(percent_right)[-1] - 1]
    asked = levels or (Level("ratio", 0.0), *(Level("ratio", ratio) for ratio in compressed))
    measures = [table(array) for array in ((percent_right,) if leads is None else leads)]
    contexts = max(map(len, measures)) if max(map(len, measures)) > 1 else CONTEXTS
    leading = tuple(lead(np.broadcast_to(array, (contexts, len(asked)))) for array in measures)
    places = np.asarray(realised, dtype=np.float64)
    return Profile(policy, asked, places, (leading,), questions=8, contexts=contexts)


def value(found: Any) -> Any:
    """What is there, and neither blank nor missing."""
    assert found is not None
    assert not isinstance(found, Blank), found
    return found
