"""Claim R4: representations degrade before accuracy does."""

from collections.abc import Mapping
from functools import partial

import numpy as np
from pandas import DataFrame

from leaderboards.claims.contexts import Contexts
from leaderboards.claims.declaration import Claim, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence, NoEvidenceError
from leaderboards.claims.routing.observed import OBSERVED, Observed
from leaderboards.claims.texts import R
from leaderboards.routing.probe import probe
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.routing.classes import CONTEXT
from leaderboards.studies.routing.probes import (
    LETTER,
    STATE,
    TABLE,
    TELLING,
    TYPE,
    VALUES,
    features_of,
    learnable,
    with_labels,
)
from policies.declaration.names import FULL

LOST = 0.1
# The type of an answer can be read off its question, and so off the state of the question's last token.
PARTS = {
    "first letter, in the question’s last token": (STATE, LETTER),
    "first letter, in the values left of the answer": (VALUES, LETTER),
    "type, in the values left of the answer": (VALUES, TYPE),
}


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    observed = Observed.of(evidence)
    labelled = with_labels(observed.table(TABLE), observed.records)
    return each_part({part: partial(_earlier, observed, labelled, *of) for part, of in PARTS.items()})


def _earlier(observed: Observed, labelled: DataFrame, of: str, label: str) -> Statistic:
    """Measures how much earlier a probe loses a tenth than F1 does, mean over policies."""
    known = labelled[labelled[of].notna()]
    answers = learnable(known[(known["layer"] == known["layer"].max()) & (known["repeat"] == 0)], label)
    contexts = np.unique(answers[CONTEXT].to_numpy(dtype=str))
    whole = _scores(answers[answers["policy"] == FULL], of, label, observed.seed, least=TELLING)
    ratios = sorted({level.value for level in answers[answers["policy"] != FULL]["level"].unique()})
    differences, places = [], []
    for _, of_policy in answers[answers["policy"] != FULL].groupby("policy", observed=True):
        at_levels = [
            _scores(of_policy[[level.value == ratio for level in of_policy["level"]]], of, label, observed.seed)
            for ratio in ratios
        ]
        probed, f1 = (np.stack([one[number] for one in (whole, *at_levels)], axis=1) for number in (0, 1))
        lost = [first_loss([0.0, *ratios], scores) for scores in (probed, f1)]
        differences.append(lost[1] - lost[0])
        places.append([float(one[0]) for one in lost])
    of_probe, of_f1 = np.mean(places, axis=0)
    note = f"a tenth is lost at {of_probe:.2f} by the probe, at {of_f1:.2f} by F1"
    return Statistic(
        np.mean(differences, axis=0), len(contexts), note="; ".join(filter(None, (note, observed.left_out)))
    )


def _scores(group: DataFrame, of: str, label: str, seed: int, least: float = -1.0) -> tuple[FloatArray, FloatArray]:
    """Returns the macro-F1 of a probe and F1 of the same answers, each of shape (1 + resamples,). ``least``: by how
    much the probe has to be better than on shuffled labels."""
    labels = group[label].to_numpy(dtype=str)
    contexts = Contexts.of(group[CONTEXT].to_numpy(dtype=str), seed, OBSERVED.name)
    try:
        score = probe(features_of(group, of), labels.tolist(), group[CONTEXT].tolist(), shuffles=1)
    except ValueError as error:
        raise NoEvidenceError(str(error)) from error
    if score.selectivity < least:
        raise NoEvidenceError(
            f"with the full cache a probe reaches {score.macro_f1:.2f}, and {score.control:.2f} on shuffled labels: "
            "there is nothing to lose"
        )
    return _macro_f1(labels, score.predictions, contexts), contexts.mean(group["f1"].to_numpy(dtype=np.float64))


def _macro_f1(
    labels: "np.ndarray[tuple[int], np.dtype[np.str_]]", predictions: object, contexts: Contexts
) -> FloatArray:
    """Averages F1 over the labels that are there in each resample."""
    scores = []
    for label in np.unique(labels):
        true, predicted = (np.asarray(one == label, dtype=np.float64) for one in (labels, predictions))
        both, count = contexts.sums(true * predicted), contexts.sums(true)
        with np.errstate(invalid="ignore"):
            scores.append(np.where(count > 0, 2 * both / (count + contexts.sums(predicted)), np.nan))
    mean: FloatArray = np.nanmean(scores, axis=0)
    return mean


def first_loss(ratios: list[float], scores: FloatArray) -> FloatArray:
    """Returns the ratio at which a score has first lost a tenth of what it is at the first ratio, on the line between
    two ratios, and the last ratio where it never does. ``scores``: shape (1 + resamples, ratios)."""
    floor = (1 - LOST) * scores[:, :1]
    lost = scores <= floor
    lost[:, 0] = False
    place = np.where(lost.any(axis=1), lost.argmax(axis=1), len(ratios) - 1)
    rows, at = np.arange(len(scores)), np.array(ratios)
    before, after = scores[rows, place - 1], scores[rows, place]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(lost.any(axis=1), (before - floor[:, 0]) / (before - after), 1.0)
    crossed: FloatArray = at[place - 1] + share * (at[place] - at[place - 1])
    return crossed


CLAIM = Claim(
    identifier="R4",
    text=R,
    words="Representations degrade before accuracy does.",
    reported="at moderate ratios, without one figure",
    statistic="the ratio at which F1 has lost a tenth of the full cache's, less that at which the macro-F1 of a probe "
    "for the first letter of the answer, or for its type, has (of the last layer; with the full cache it has to reach "
    "0.1 more than on shuffled labels), mean over policies",
    side="above",
    threshold=0.0,
    experiments=(OBSERVED,),
    measure=_measure,
    unit="asked ratio",
)
