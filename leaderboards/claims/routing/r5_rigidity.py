"""Claim R5: answers fail because evidence is erased, or because heads are rigid."""

from collections import Counter
from collections.abc import Mapping
from functools import partial

import numpy as np
from pandas import DataFrame

from leaderboards.claims.contexts import Contexts
from leaderboards.claims.declaration import Claim, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence, NoEvidenceError
from leaderboards.claims.routing.observed import OBSERVED, Observed
from leaderboards.claims.texts import R
from leaderboards.routing.failures import FailureClass
from leaderboards.studies.routing.classes import (
    CELL,
    CONTEXT,
    QUESTION,
    TABLE,
    USES,
    classify,
    telling_epsilon,
    with_routes,
)
from leaderboards.studies.routing.heads import TABLE as ATTENTION
from leaderboards.studies.routing.heads import at_answers
from policies.declaration.names import FULL

KINDS = {"erased": (FailureClass.ERASED,), "unreachable": (FailureClass.UNREACHABLE,), "reached and unused": USES}


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    observed = Observed.of(evidence)
    joined = with_routes(observed.table(TABLE), observed.records)
    heads = at_answers(observed.table(ATTENTION)).groupby(CELL, observed=True)[["consensus", "agreement"]].mean()
    answers = joined.merge(heads.reset_index(), on=CELL, validate="one_to_one")
    told = "; ".join(filter(None, (_shares_of_failures(joined), observed.left_out)))
    parts = {
        "agreement of heads, failures less successes": ("agreement", 1.0),
        "distinct top tokens over heads, successes less failures": ("consensus", -1.0),
    }
    return each_part({part: partial(_more, answers, observed.seed, told, *of) for part, of in parts.items()})


def _shares_of_failures(joined: DataFrame) -> str:
    """Says of which class the failures are, by routes that few tokens of a context have."""
    epsilon = telling_epsilon(joined)
    lost = joined[~joined["right"] & joined["right_with_full"] & joined["unobserved"].isna()]
    counts = Counter(classify(lost, epsilon))
    shares = (f"{sum(counts[one] for one in of) / max(1, len(lost)):.0%} {name}" for name, of in KINDS.items())
    return f"of {len(lost)} failures {', '.join(shares)}, by routes of at least {epsilon:g}"


def _more(answers: DataFrame, seed: int, note: str, column: str, sign: float) -> Statistic:
    """Measures failures with evidence alive against successes with the same question and policy, at other ratios."""
    treated = answers[(answers["policy"] != FULL) & answers["right_with_full"]]
    failures = treated[~treated["right"] & treated["answer_alive"].eq(True)]
    pair = [*QUESTION, CONTEXT, "policy"]
    means = [group.groupby(pair, observed=True)[column].mean() for group in (failures, treated[treated["right"]])]
    differences = (sign * (means[0] - means[1])).dropna()
    if differences.empty:
        raise NoEvidenceError(
            "no question is answered rightly at one ratio and wrongly, with evidence alive, at another"
        )
    contexts = Contexts.of(differences.index.get_level_values(CONTEXT).to_numpy(dtype=str), seed, OBSERVED.name)
    values = contexts.mean(differences.to_numpy(dtype=np.float64))
    return Statistic(values, contexts.count, note=f"{len(differences)} pairs; {note}")


CLAIM = Claim(
    identifier="R5",
    text=R,
    words="Answers fail by erasure, or by rigidity: heads that all look at one token.",
    reported="instances of both",
    statistic="how much more heads agree at the first token of the answer, mean over layers, where the answer is wrong "
    "though evidence is alive than where it is right, of the same question and policy at other ratios; the shares of "
    "the failures stand beside it",
    side="above",
    threshold=0.0,
    experiments=(OBSERVED,),
    measure=_measure,
    remark="The text's consensus, distinct tokens over heads, is low where heads agree: the second part turns its "
    "sign.",
    because="In these models heads agree more where the answer is right. In layers 0 to 3, which read the context "
    "first, "
    "0.4 of the heads of `reference` look at one token where the answer is right, and 0.10 to 0.15 fewer "
    "where it is wrong though evidence is alive (`reference-qwen`, layers 1 to 3: 0.4, and 0.10 to 0.20 "
    "fewer): they scatter once the rows that they look for are gone. In a single later layer they agree "
    "more, by 0.09 in layer 5 and by 0.13 in layer 7.",
)
