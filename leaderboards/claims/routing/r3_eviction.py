"""Claim R3: what is evicted everywhere goes with what is made up."""

from collections.abc import Mapping

import numpy as np

from leaderboards.boards.profiles import FLAT
from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.evidence import NoEvidenceError, TaskEvidence
from leaderboards.claims.routing.routes import OVER_RATIOS, POLICIES, RATIOS, MasteredTasks, of_both_rates
from leaderboards.claims.texts import R
from leaderboards.statistics.bootstrap import FloatArray


def _correlation(routes: MasteredTasks, of: str) -> Statistic:
    where = {"answerable": True, of: True} if of else {"answerable": True}
    products = [
        _products(task, policy, ratio, where) for task in routes.tasks for policy in POLICIES for ratio in RATIOS
    ]
    evicted, rates, both = np.sum(products, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        vary = (evicted > FLAT) & (rates > FLAT)  # and are not the noise of sums alone
        values: FloatArray = np.where(vary, both / np.sqrt(evicted * rates), np.nan)
    if np.isnan(values[0]):
        raise NoEvidenceError("within a ratio GER is the same for all contexts, or the rate is")
    return Statistic(values, routes.contexts, note=routes.left_out)


def _products(task: TaskEvidence, policy: str, ratio: float, where: Mapping[str, bool]) -> FloatArray:
    """Returns three sums over the contexts of one policy at one ratio, shape (3, 1 + resamples): the squares of GER
    and of the rate, each about its mean there, and their products."""
    evicted, rate = (task.by_context(policy, ratio, column, **where) for column in ("ger", "hallucinated"))
    known = ~(np.isnan(evicted) | np.isnan(rate))
    x, y = (np.where(known, values, 0.0) for values in (evicted, rate))
    weights = task.weights
    count, of_x, of_y = weights @ known, weights @ x, weights @ y
    with np.errstate(invalid="ignore", divide="ignore"):
        products = [
            weights @ (a * b) - np.where(count > 0, of_a * of_b / count, 0.0)
            for a, b, of_a, of_b in ((x, x, of_x, of_x), (y, y, of_y, of_y), (x, y, of_x, of_y))
        ]
    return np.stack(products)


CLAIM = Claim(
    identifier="R3",
    text=R,
    words="The Global Eviction Ratio goes with hallucination.",
    reported="correlations of 0.79 to 0.93 over ratios",
    statistic="partial correlation of GER with the hallucination rate over contexts, given policy and ratio: of what "
    "either is above its mean over the contexts of the same task, policy and ratio; questions with an answer in the "
    "context",
    side="above",
    threshold=0.0,
    experiments=(OVER_RATIOS,),
    measure=of_both_rates(_correlation),
    unit="correlation",
    remark="Over ratios anything that compression makes worse goes with anything that it removes: such a correlation "
    "is high for any two curves that rise. Given the ratio, GER has to tell which contexts fail.",
)
