"""Claim N3: with and without the cache, distributions are far apart."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from leaderboards.claims.declaration import Claim, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence, NoEvidenceError
from leaderboards.claims.numerics.walked import HALF, WALKED, contexts_of, pairs_of
from leaderboards.claims.texts import N
from leaderboards.studies.numerics.pairs import FORCED, finite_sums, joined


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    tasks = evidence[WALKED.name].records["task"].unique()
    return each_part({task: partial(_mean_kl, evidence, task) for task in map(str, tasks)})


def _mean_kl(evidence: Mapping[str, Evidence], task: str) -> Statistic:
    """Averages KL over the steps at which all logits are finite."""
    rows = pairs_of(evidence, FORCED, HALF)
    rows = rows[rows["task"] == task]
    sums, counts = finite_sums(rows["kl"])
    if not counts.any():
        raise NoEvidenceError(f"no step of {task} has finite logits")
    contexts = contexts_of(evidence, rows)
    with np.errstate(invalid="ignore"):
        mean = contexts.sums(sums) / contexts.sums(counts)
    note = f"{counts.sum():.0f} steps, largest {np.nanmax(joined(rows['kl'])):.1g}"
    return Statistic(mean, contexts.count, note=note)


CLAIM = Claim(
    identifier="N3",
    text=N,
    words="With and without the cache, the distributions of the next token are far apart in 16 bits.",
    reported='10.7 to 12.8 nats "mean KL"; others, behind the same tokens, 1e-4 to 6e-3',
    statistic="mean KL divergence of the distribution with the cache from that without it, in float16, over the whole "
    "vocabulary, at every step behind the same tokens, by task",
    side="at least",
    threshold=1.0,
    experiments=(WALKED,),
    measure=_measure,
    unit="nats",
    because="In `reference`, `reference-qwen` and `reference-small`, distributions with the cache and without it "
    "differ by rounding, at most 8e-5 nats at any step in float16. The same logits, held against those of the step "
    "before or behind, give 16 to 24 nats on `base` and 8 to 10 on running text: the text's figures lie between.",
    remark="ln(32,000) = 10.37 is what a distribution that knows nothing is from one that is certain, so that means of "
    "10.7 to 12.8 nats are of distributions behind different tokens. On the page of numerics, ids shifted by one step "
    "give such figures.",
)
