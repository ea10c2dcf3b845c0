"""Points in the plane of bytes and answers, and which of them nothing beats in both."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.treatments.measured import MeasuredTask
from policies.composition import built_in, is_treatment
from policies.declaration.names import CONTROLS, FULL, plain_and_way
from policies.quantisation.registry import KINDS as FORMATS
from policies.treatments.options import is_one_of

EVICTION, QUANTISATION, BOTH = "eviction", "quantisation", "both"
TARGETS = (50.0, 25.0, 12.5, 6.25)  # percent of the bytes of the full cache
NEAR = 0.2  # of a target: points so near to it are compared


@dataclass(frozen=True)
class FrontierPoint:
    """A policy at a level."""

    policy: str
    family: str
    level: float
    held: float  # bytes, in percent of the full cache's
    score: FloatArray  # what leads the task, shape (1 + resamples,)


def family_of(policy: str) -> str:
    """Tells what a policy does to the full cache; empty for controls, faults, wrappers and what is not known."""
    plain, way = plain_and_way(policy)
    if policy in CONTROLS:
        return ""
    if is_one_of(policy, FORMATS):
        return QUANTISATION
    if is_one_of(way, FORMATS) and family_of(plain) == EVICTION:
        return BOTH
    known = built_in(policy)
    return EVICTION if known and not is_treatment(policy) and policy == plain and known.frees else ""


def points_of(task: MeasuredTask, policies: Sequence[str]) -> list[FrontierPoint]:
    """Returns the points of all policies that have a family."""
    full = task.evidence.mean(FULL, None, "kv_bytes")[0]
    return [
        FrontierPoint(
            policy,
            family,
            level,
            float(100 * task.evidence.mean(policy, level, "kv_bytes")[0] / full),
            task.evidence.mean(policy, level, task.column),
        )
        for policy in policies
        if (family := family_of(policy))
        for level in task.levels(policy)
    ]


def front(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """Returns the points than which none keeps more in as few bytes, by bytes; of equal ones the first."""
    found: list[FrontierPoint] = []
    for point in sorted(points, key=lambda one: (one.held, -one.score[0])):
        if not found or point.score[0] > found[-1].score[0]:
            found.append(point)
    return found


def near(points: Sequence[FrontierPoint], target: float) -> list[FrontierPoint]:
    """Returns the points whose bytes are about a target, the best first."""
    close = [point for point in points if abs(point.held - target) <= NEAR * target]
    return sorted(close, key=lambda point: -float(np.round(point.score[0], 9)))
