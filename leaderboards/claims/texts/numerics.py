"""The claims of text N: every answer with the cache and without it, in several types of numbers."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from pandas import DataFrame

from leaderboards.aggregate.evidence import Contexts, Evidence, NoEvidenceError, table_of
from leaderboards.claims.declaration import Claim, Experiment, Measured, NoStatistic, Statistic, Text, each_part
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.statistics.significance import highest_unseen_share
from leaderboards.studies.numerics.pairs import (
    CACHE,
    FORCED,
    FREE,
    TABLE,
    finite_sums,
    flip_of,
    with_draws,
)

N = Text("N", "arXiv 2604.15409 (decoding with and without the cache)", "Llama 2 7B, Mistral 7B and Gemma 2 2B, GSM8K")
HALF = "float16"  # which the text is about
NEVER = 0.05
# Of two tasks, so that 60 contexts are walked: where none of them differs, fewer than one in twenty does.
WALKED = Experiment(name="walks", tasks="base,prose", policies="full", levels=(), contexts=30, suite="numerics")
Evidences = Mapping[str, Evidence]


def _pairs(evidence: Evidences, regime: str, dtype: str, ways: Sequence[str] = ("greedy",)) -> DataFrame:
    """Returns the pairs of cache on and cache off in a type of numbers, with the context of each, and whether its
    answers differ; :class:`NoEvidenceError` where there are none. ``ways``: to choose tokens; without one, all."""
    given = evidence[WALKED.name]
    rows = table_of(given.tables, TABLE, "walked")
    rows = rows[(rows["dtype"] == dtype) & (rows["pair"] == CACHE) & (rows["regime"] == regime)]
    rows = rows[rows["sampling"].isin(list(ways))] if ways else rows
    if rows.empty:
        raise NoEvidenceError(f"nothing was walked in {dtype}")
    both = zip(rows["tokens"], rows["other_tokens"], strict=True)
    return with_draws(rows.assign(differs=[flip_of(*tokens) is not None for tokens in both]), given.records)


def _contexts(evidence: Evidences, rows: DataFrame) -> Contexts:
    return Contexts.of(rows["draw_id"].to_numpy(dtype=str), evidence[WALKED.name].seed, WALKED.name)


def _statistic(evidence: Evidences, rows: DataFrame, values: Sequence[float] | FloatArray, note: str) -> Statistic:
    """Averages a number of each row, and resamples their contexts."""
    contexts = _contexts(evidence, rows)
    return Statistic(contexts.mean(np.asarray(values, dtype=np.float64)), contexts.count, note=note)


def _differ(evidence: Evidences, dtype: str) -> Measured:
    rows = _pairs(evidence, FREE, dtype)
    note = f"{rows['differs'].sum()} of {len(rows)} pairs differ"
    # Resamples of pairs that are all equal do not vary, which shows nothing of contexts that were not asked.
    highest = highest_unseen_share(rows["draw_id"].nunique())
    if dtype == "float32" and not rows["differs"].any() and highest > NEVER:
        return [NoStatistic("", f"{note}, which leaves up to {highest:.2f} possible")]
    return [_statistic(evidence, rows, rows["differs"], note)]


def _mean_kl(evidence: Evidences, task: str) -> Statistic:
    """Averages KL over the steps at which all logits are finite."""
    rows = _pairs(evidence, FORCED, HALF)
    rows = rows[rows["task"] == task]
    sums, counts = finite_sums(rows["kl"])
    if not counts.any():
        raise NoEvidenceError(f"no step of {task} has finite logits")
    contexts = _contexts(evidence, rows)
    with np.errstate(invalid="ignore"):
        mean = contexts.sums(sums) / contexts.sums(counts)
    return Statistic(mean, contexts.count, note=f"{counts.sum():.0f} steps")


def _divergence(evidence: Evidences) -> Measured:
    tasks = evidence[WALKED.name].records["task"].unique()
    return each_part({task: partial(_mean_kl, evidence, task) for task in map(str, tasks)})


def _right(evidence: Evidences) -> list[Statistic]:
    rows = _pairs(evidence, FREE, HALF, ways=())
    rows = rows[rows["right"].notna()]
    if rows.empty:
        raise NoEvidenceError("no task that was walked has answers that are right or wrong")
    on, off = (rows[name].to_numpy(dtype=np.float64) for name in ("right", "other_right"))
    if (on == off).all():
        raise NoEvidenceError(f"all {len(rows)} pairs of answers are right, or wrong, together")
    note = f"{(on > off).sum()} right with the cache alone, {(off > on).sum()} without it alone"
    return [_statistic(evidence, rows, on - off, note)]


claim = partial(Claim, text=N, experiments=(WALKED,))
CLAIMS = (
    claim(
        identifier="N1",
        words="In 16 bits, decoding with the cache gives other tokens than without it, always.",
        reported="in 100 % of cases, in FP16; another text (arXiv 2603.19664) reports none",
        statistic="share of the answers in float16 that have another token with the cache than without it, each going "
        "on from its own tokens, greedy",
        holds=("at least", 0.95),
        measure=lambda evidence: _differ(evidence, HALF),
    ),
    claim(
        identifier="N2",
        words="In 32 bits, decoding with the cache gives the tokens that it gives without it.",
        reported="in 0 % of cases other tokens, in FP32",
        statistic="share of the answers in float32 that have another token with the cache than without it, each going "
        "on from its own tokens, greedy; where none has, it takes so many contexts that a share above the threshold "
        "would have been seen",
        holds=("at most", NEVER),
        measure=lambda evidence: _differ(evidence, "float32"),
    ),
    claim(
        identifier="N3",
        words="With and without the cache, the distributions of the next token are far apart in 16 bits.",
        reported='10.7 to 12.8 nats "mean KL"; others, behind the same tokens, 1e-4 to 6e-3',
        statistic="mean KL divergence of the distribution with the cache from that without it, in float16, over the "
        "whole vocabulary, at every step behind the same tokens, by task",
        holds=("at least", 1.0),
        measure=_divergence,
        unit="nats",
    ),
    claim(
        identifier="N4",
        words="With the cache more answers are right than without it.",
        reported="cache on is better in 8 of 9 settings",
        statistic="share of the answers that are right with the cache less the share without it, in float16, over all "
        "ways to choose tokens, each path going on from its own",
        holds=("above", 0.0),
        measure=_right,
    ),
)
