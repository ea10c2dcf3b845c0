"""Counts how often answers are reached by their evidence, over the threshold of an edge and over what is kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pandas import DataFrame

from leaderboards.routing.reach import EPSILONS
from leaderboards.statistics.bootstrap import Estimate, resampled_means
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.routing.classes import CONTEXT, reaches
from policies.declaration.levels import Level

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Reached:
    """Says of a policy at a level how often answers are reached by the tokens of their gold, with edges of epsilon.

    ``chance``: how often as many tokens would, drawn from the context. ``relayed``: how often the gold is reached
    although none of its rows is left, through tokens that read it in the prefill. ``right``: the answers that are
    right. ``width``: of the widest route, mean over answers. All of questions that the full cache has right.
    """

    task: str
    policy: str
    level: Level
    epsilon: float
    reached: Estimate
    chance: float
    relayed: Estimate
    right: Estimate
    width: float


def mastered(joined: DataFrame) -> DataFrame:
    """Keeps what was observed of questions that the full cache has right. ``joined``: as of
    :func:`~leaderboards.studies.routing.classes.with_routes`."""
    return with_levels(joined[joined["unobserved"].isna() & joined["right_with_full"]])


def reach_curves(joined: DataFrame, epsilons: Sequence[float] = EPSILONS) -> Iterator[Reached]:
    """Yields how often answers are reached, by task, policy, level and epsilon."""
    for (task, policy, level), group in mastered(joined).groupby(["task", "policy", "level"], observed=True):
        chances = 1 - (1 - np.stack(group["chance"].to_list())) ** group["answer_tokens"].to_numpy()[:, None]
        right, contexts = group["right"].to_numpy(), group[CONTEXT].to_numpy(dtype=str)
        alive = group["answer_alive"].eq(True).to_numpy()
        width = float(group["answer_width"].astype(float).mean())
        for epsilon in epsilons:
            reached = reaches(group["answer_width"], epsilon)
            chance = float(chances[:, EPSILONS.index(epsilon)].mean())
            rates = [_rate(flags, contexts) for flags in (reached, reached & ~alive, right)]
            yield Reached(str(task), str(policy), level, epsilon, rates[0], chance, rates[1], rates[2], width)


def _rate(flags: Flags, contexts: npt.NDArray[np.str_]) -> Estimate:
    values = flags.astype(np.float64)
    return Estimate.of(float(values.mean()), resampled_means(values, contexts, 0), len(values))
