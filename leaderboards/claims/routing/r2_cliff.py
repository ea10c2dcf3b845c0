"""Claim R2: there is a cliff of hallucination near a ratio of 0.9."""

import numpy as np

from leaderboards.boards.cliff import slopes, steepest
from leaderboards.boards.profiles import FLAT
from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.evidence import NoEvidenceError
from leaderboards.claims.routing.routes import OVER_RATIOS, RATIOS, MasteredTasks, of_both_rates
from leaderboards.claims.texts import R
from leaderboards.statistics.bootstrap import FloatArray


def _peak(routes: MasteredTasks, of: str) -> Statistic:
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
    measure=of_both_rates(_peak),
    unit="asked ratio",
    because="Where a model may fall silent, it does. In the default run `reference` hallucinates 6 % of all "
    "answers about base and long_context with the full cache and 3 % at 0.9, where 75 % are silent (mean "
    "of five policies). `reference-confident`, trained on without unanswerable questions and else alike, "
    "hallucinates 18 % with the full cache, 45 % at 0.7 and 66 % at 0.9, and under SnapKV 19 % at 0.5, 29 "
    "% at 0.7 and 74 % at 0.9: the cliff of the text.",
)
