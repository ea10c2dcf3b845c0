"""Counts how often answers are reached by their evidence, over the threshold of an edge and over what is kept."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pandas import DataFrame

from leaderboards.routing.independent_routes import Fit, chance_to_reach, fit
from leaderboards.routing.reach import EPSILONS
from leaderboards.statistics.bootstrap import resampled_means
from leaderboards.statistics.levels import with_levels
from leaderboards.statistics.resampling import Estimate
from leaderboards.studies.routing.classes import CONTEXT, reaches
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

FITTED_FROM = 500  # resamples
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Reached:
    """Says of a policy at a level how often answers are reached by the tokens of their gold, with edges of epsilon.

    ``chance``: how often as many tokens would, drawn from the context. ``relayed``: how often the gold is reached
    although none of its rows is left, through tokens that read it in the prefill. ``right``: the answers that are
    right. ``width``: of the widest route, ``rollout``: the gold's share of attention rollout, means over answers. All
    of questions that the full cache has right.
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
    rollout: float


@dataclass(frozen=True)
class RouteFit:
    """Fits P(reached) = 1 − (1 − p)^k to a policy on a task, where p is the share of the context that is left.

    ``expected``: by level, how often that many routes would reach an answer.
    """

    task: str
    policy: str
    epsilon: float
    fit: Fit
    answers: int
    expected: Mapping[Level, float]


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
        means = [float(group[column].astype(float).mean()) for column in ("answer_width", "answer_share")]
        for epsilon in epsilons:
            reached = reaches(group["answer_width"], epsilon)
            chance = float(chances[:, EPSILONS.index(epsilon)].mean())
            rates = [_rate(flags, contexts) for flags in (reached, reached & ~alive, right)]
            yield Reached(
                str(task), str(policy), level, epsilon, rates[0], chance, rates[1], rates[2], means[0], means[1]
            )


def _rate(flags: Flags, contexts: npt.NDArray[np.str_]) -> Estimate:
    values = flags.astype(np.float64)
    return Estimate.of(float(values.mean()), resampled_means(values, contexts, 0), len(values))


def fitted_routes(joined: DataFrame, epsilon: float) -> Iterator[RouteFit]:
    """Yields the number of independent routes by task and policy."""
    treated = mastered(joined)
    treated = treated[(treated["policy"] != FULL) & (treated["level"] != UNTREATED) & treated["ratio"].notna()]
    for (task, policy), group in treated.groupby(["task", "policy"], observed=True):
        reached = reaches(group["answer_width"], epsilon).tolist()
        left = 1 - group["ratio"].astype(float)
        found = fit(left.tolist(), reached, group[CONTEXT].tolist(), 0, FITTED_FROM)
        chances = chance_to_reach(left.to_numpy(), found.routes)
        expected = dict(zip(group["level"], chances.tolist(), strict=True))
        yield RouteFit(str(task), str(policy), epsilon, found, len(group), expected)
