"""Claim R6: in which layers heads agree differs by architecture."""

from collections.abc import Mapping

import numpy as np

from leaderboards.claims.contexts import Contexts
from leaderboards.claims.declaration import BESIDE, Claim, Statistic
from leaderboards.claims.evidence import Evidence, NoEvidenceError
from leaderboards.claims.routing.observed import OBSERVED, Observed
from leaderboards.claims.texts import R
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.routing.heads import TABLE, at_answers, slopes, with_questions
from policies.declaration.names import FULL


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    (own, contexts), (other, others) = (_slope(evidence, OBSERVED.name + which) for which in ("", BESIDE))
    note = f"slope {own[0]:z.2f} of this model, {other[0]:z.2f} of the one beside it"
    return [Statistic(own * other, min(contexts, others), note=note)]


def _slope(evidence: Mapping[str, Evidence], name: str) -> tuple[FloatArray, int]:
    observed = Observed.of(evidence, name)
    table = observed.table(TABLE)
    full = with_questions(table[table["policy"] == FULL], observed.records)
    values, names = slopes(at_answers(full))
    known = ~np.isnan(values)
    if not known.any():
        raise NoEvidenceError("a model of one layer has no depth")
    contexts = Contexts.of(names[known], observed.seed, OBSERVED.name)
    return contexts.mean(values[known]), contexts.count


CLAIM = Claim(
    identifier="R6",
    text=R,
    words="The depth at which heads agree differs between Llama and Qwen.",
    reported="Llama: early consensus, late diversity; Qwen the reverse",
    statistic="slope of consensus over depth (distinct top tokens over heads in the late half of the layers less the "
    "early half, full cache, first token of the answer), times the same of a model of the other architecture: below 0 "
    "if their signs differ",
    side="below",
    threshold=0.0,
    experiments=(OBSERVED,),
    measure=_measure,
    two_architectures=True,
    because="In both models heads agree a little more in the early half of the layers than in the last three. With "
    "the full cache, consensus is 0.56 to 0.70 in "
    "`reference` and 0.60 to 0.67 in `reference-qwen`, and in the last three layers 0.77 "
    "to 0.84 and 0.79 to 0.82. The weights of `reference` go on from those of `reference-qwen`, so that "
    "the two share more than two models of other makers do.",
)
