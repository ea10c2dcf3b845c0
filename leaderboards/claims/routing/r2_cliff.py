"""Claim R2: there is a cliff of hallucination near a ratio of 0.9."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from leaderboards.boards.cliff import slopes, steepest
from leaderboards.boards.profiles import FLAT
from leaderboards.claims.declaration import Claim, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence, NoEvidenceError
from leaderboards.claims.routing.routes import OVER_RATIOS, RATIOS, Routes
from leaderboards.claims.texts import R
from leaderboards.statistics.bootstrap import FloatArray


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    routes = Routes.of(evidence)
    return each_part(
        {
            "hallucinated, of all answers": partial(_peak, routes, ""),
            "hallucinated, of those that state something": partial(_peak, routes, "answered"),
        }
    )


def _peak(routes: Routes, of: str) -> Statistic:
    rates = routes.over_ratios("hallucinated")
    if of:
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = rates / routes.over_ratios(of)
    middles, rises = slopes(np.array([0.0, *RATIOS]), rates)
    known = ~np.isnan(rises).any(axis=1)
    places = steepest(np.nan_to_num(rises, nan=-np.inf))
    peaks: FloatArray = np.where(known & (rises[np.arange(len(rises)), places] > FLAT), middles[places], np.nan)
    if np.isnan(peaks[0]):
        raise NoEvidenceError("the rate rises nowhere")
    note = f"the rate is {rates[0, 0]:.2f} with the full cache, {rates[0, -1]:.2f} at {RATIOS[-1]:g}"
    return Statistic(peaks, routes.contexts, note="; ".join(filter(None, (note, routes.left_out))))


CLAIM = Claim(
    identifier="R2",
    text=R,
    words="Hallucination has a cliff near a ratio of 0.9.",
    reported="a spike near 0.9 in all models",
    statistic="the ratio at which the hallucination rate rises fastest: the middle of two neighbouring tenths, mean "
    "over tasks and policies",
    side="at least",
    threshold=0.8,
    experiments=(OVER_RATIOS,),
    measure=_measure,
    unit="asked ratio",
)
