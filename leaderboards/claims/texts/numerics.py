"""The claims of text N: every answer with the cache and without it, in several types of numbers."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from pandas import DataFrame

from leaderboards.aggregate.evidence import (
    FEWEST_CONTEXTS,
    Contexts,
    Evidence,
    NoEvidenceError,
    PreconditionError,
    TooFewError,
    table_of,
)
from leaderboards.claims.declaration import Claim, Experiment, Measured, Statistic, Text, each_part
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.numerics import patches as patched
from leaderboards.studies.numerics import walked

N = Text(
    "N",
    "arXiv 2604.15409 (decoding with and without the cache)",
    "Llama 2 7B, Mistral 7B and Gemma 2 2B, GSM8K",
)
HALF = "float16"  # which the text is about
NEVER = 0.05
SHARE = (0.0, 1.0)
THIRDS = 3
AMPLIFIED = 1.1
# Of two tasks, so that 60 contexts are walked: where none of them differs, fewer than one in twenty
# does.
WALKED = Experiment(
    name="walks", tasks="base,prose", policies="full", levels=(), contexts=30, suite="numerics"
)

GROUPS = "groups"  # a table of a store (kvbench.store.groups)
SHARED = Experiment(
    name="groups", tasks="base", policies="full", levels=(), contexts=12, observe=GROUPS
)


def _pairs(
    evidence: Evidence, regime: str, dtype: str, sampling: str | None = "greedy"
) -> DataFrame:
    """Returns the pairs of cache on and cache off in a type of numbers, with the context of each,
    whether its answers differ and at which step; :class:`NoEvidenceError` where there are none.
    ``sampling``: None for all ways."""
    rows = table_of(evidence.tables, walked.TABLE, "walked")
    rows = rows[
        (rows["dtype"] == dtype) & (rows["pair"] == walked.CACHE) & (rows["regime"] == regime)
    ]
    rows = rows[rows["sampling"] == sampling] if sampling else rows
    if rows.empty:
        raise NoEvidenceError(f"nothing was walked in {dtype}")
    answers, rows = len(rows), walked.finite_of(rows)
    if rows.empty:
        raise PreconditionError(f"in {dtype} the model overflows in all of {answers} answers")
    flips = np.array(
        list(map(walked.flip_of, rows["tokens"], rows["other_tokens"])), dtype=np.float64
    )
    return walked.with_draws(rows.assign(flip=flips, differs=~np.isnan(flips)), evidence.records)


def _contexts(evidence: Evidence, rows: DataFrame) -> Contexts:
    return Contexts(rows["draw_id"].to_numpy(dtype=str), evidence, WALKED.name)


def _statistic(
    evidence: Evidence,
    rows: DataFrame,
    values: Sequence[float] | FloatArray,
    note: str,
    bounds: tuple[float, float] | None = None,
) -> Statistic:
    """Averages a number of each row, which may have ``bounds``, and resamples their contexts."""
    contexts = _contexts(evidence, rows)
    return Statistic(
        contexts.mean(np.asarray(values, dtype=np.float64), bounds), contexts.count, note=note
    )


def _differ(dtype: str, evidence: Evidence) -> Measured:
    rows = _pairs(evidence, walked.FREE, dtype)
    return [
        _statistic(
            evidence,
            rows,
            rows["differs"],
            f"{rows['differs'].sum()} of {len(rows)} pairs differ",
            SHARE,
        )
    ]


def _mean_kl(task: str, evidence: Evidence) -> Statistic:
    rows = _pairs(evidence, walked.FORCED, HALF)
    rows = rows[rows["task"] == task]
    if rows.empty:
        raise PreconditionError(f"in {HALF} the model overflows in all answers of {task}")
    sums, counts = walked.finite_sums(rows["kl"])
    contexts = _contexts(evidence, rows)
    mean = contexts.sums(sums) / contexts.sums(counts)
    return Statistic(mean, contexts.count, note=f"{counts.sum():.0f} steps")


def _right(evidence: Evidence) -> list[Statistic]:
    rows = _pairs(evidence, walked.FREE, HALF, sampling=None)
    rows = rows[rows["right"].notna()]
    if rows.empty:
        raise NoEvidenceError("no task that was walked has answers that are right or wrong")
    on, off = (rows[name].to_numpy(dtype=np.float64) for name in ("right", "other_right"))
    note = f"{(on > off).sum()} right with the cache alone, {(off > on).sum()} without it alone"
    return [_statistic(evidence, rows, on - off, f"{note}, of {len(rows)} pairs", (-1.0, 1.0))]


def _flips(evidence: Evidence) -> DataFrame:
    """Returns the free-running pairs in float16 that differ; :class:`NoEvidenceError` where none
    does."""
    rows = _pairs(evidence, walked.FREE, HALF)
    if not rows["differs"].any():
        raise NoEvidenceError(f"none of {len(rows)} pairs of answers differs: there is no flip")
    return rows[rows["differs"]]


def _margin(evidence: Evidence) -> Statistic:
    """Counts the flips at which the margin is below the median margin of all steps behind the same
    tokens."""
    parted, forced = _flips(evidence), _pairs(evidence, walked.FORCED, HALF)
    median = float(np.nanmedian(walked.joined(forced["margin"])))
    margins = _at_flip(parted, "margin")
    rows, known = parted[~np.isnan(margins)], margins[~np.isnan(margins)]
    if not len(known):
        raise NoEvidenceError(
            "all answers that differ part where one has ended: no margin is known there"
        )
    note = f"{len(known)} flips; median margin {np.median(known):.2g} there and {median:.2g} at all steps"
    return _statistic(evidence, rows, (known < median) - 0.5, note, (-0.5, 0.5))


def _early(evidence: Evidence) -> Statistic:
    """Compares KL at the flips of the first third with that at those of the last third, by their
    step."""
    parted = _flips(evidence)
    kl = _at_flip(parted, "kl")
    rows, kl = parted[np.isfinite(kl)], kl[np.isfinite(kl)]
    if not len(rows):
        raise NoEvidenceError(
            "all answers that differ part where one has ended: no divergence is known there"
        )
    if len(rows) < THIRDS:
        raise TooFewError(
            f"{len(rows)} flips have no first and last third", FEWEST_CONTEXTS / len(rows)
        )
    contexts, flips = _contexts(evidence, rows), rows["flip"].to_numpy(dtype=np.float64)
    first, last = (
        flips <= np.quantile(flips, 1 / THIRDS),
        flips >= np.quantile(flips, 1 - 1 / THIRDS),
    )
    if (first & last).any():
        raise NoEvidenceError(
            f"{len(rows)} flips are at too few different steps to have a first and a last third"
        )
    means = [
        contexts.sums(kl * part) / contexts.sums(part.astype(np.float64)) for part in (first, last)
    ]
    return Statistic(means[0] - means[1], contexts.count, note=f"{len(rows)} flips")


def _at_flip(rows: DataFrame, column: str) -> FloatArray:
    """Returns what each row has at its flip; NaN where an answer has ended there, so that nothing
    was compared."""
    lists = zip(rows[column], rows["flip"].astype(int), strict=True)
    return np.array(
        [one[step] if step < len(one) else np.nan for one, step in lists], dtype=np.float64
    )


def _amplified(evidence: Evidence) -> Statistic:
    """Divides the drift behind the layers after the first with the most query heads to a head by
    that with one."""
    rows = walked.with_draws(table_of(evidence.tables, GROUPS, "measured"), evidence.records)
    largest = int(rows["size"].max())
    if largest == 1:
        raise PreconditionError(
            "each query head has a head of keys and values of its own: nothing is shared"
        )
    by_size = {int(size): group.sort_values("question_id") for size, group in rows.groupby("size")}
    # In the first layer the rows of one token are as exact as those of many.
    drift = {
        size: np.array([np.mean(one[1:]) for one in group["hidden"]])
        for size, group in by_size.items()
    }
    contexts = _contexts(evidence, by_size[1])
    sums = {size: contexts.sums(of_size) for size, of_size in drift.items()}
    if not np.isfinite(sums[1][0]) or not sums[1][0]:
        raise PreconditionError(f"in {HALF} the model overflows, or nothing drifts")
    ratios = ", ".join(
        f"{values[0] / sums[1][0]:.2f} with {size}" for size, values in sorted(sums.items())
    )
    note = f"drift by query heads to a head, of that with 1: {ratios}"
    return Statistic(sums[largest] / sums[1], contexts.count, note=note)


def _localised(evidence: Evidence) -> list[Statistic]:
    """Averages over flips the recovery by all rows less that by the stream of one layer, mean over
    all but the last."""
    tables = {
        name: evidence.tables[name]
        for name in (patched.TABLE, patched.EARLIER)
        if name in evidence.tables
    }
    patches = patched.patches_of(tables)
    if patches is None:
        raise NoEvidenceError("nothing was patched")
    patches = patches[(patches["dtype"] == HALF) & (patches["direction"] == patched.INTO_ON)]
    patches = walked.with_draws(patches[patches["layers"] != patched.UP_TO], evidence.records)
    flips = patches[patches["place"] == "flip"]
    if flips.empty:
        answers = patches["question_id"].nunique()
        raise NoEvidenceError(
            f"none of {answers} answers that were patched has a flip: there is nothing to localise"
        )
    flips = flips.assign(recovered=1 - flips["kl_patched"] / flips["kl"])
    stream = flips[(flips["rows"] == "residual") & (flips["layer"] != walked.ALL)]
    stream = stream[stream["layer"] < stream["layer"].max()]
    if stream.empty:
        raise PreconditionError(
            "a model of one layer has no stream but that which logits are computed from"
        )
    rows = flips[
        (flips["rows"] == "keys and values") & (flips["layer"] == walked.ALL)
    ].drop_duplicates("question_id")
    by_stream = (
        stream.groupby("question_id")["recovered"]
        .mean()[rows["question_id"]]
        .to_numpy(dtype=np.float64)
    )
    by_rows = rows["recovered"].to_numpy(dtype=np.float64)
    note = f"{len(rows)} flips; median {np.median(by_rows):.2f} by rows and {np.median(by_stream):.2f} by the stream"
    return [_statistic(evidence, rows, by_rows - by_stream, note)]


claim = partial(Claim, text=N, experiments=(WALKED,))
CLAIMS = (
    claim(
        identifier="N1",
        words="In 16 bits, decoding with the cache gives other tokens than without it, always.",
        reported="in 100 % of cases, in FP16; another text (arXiv 2603.19664) reports none",
        statistic="share of the answers in float16 that have another token with the cache than "
        "without it, each going on from its own tokens, greedy",
        holds=("at least", 0.95),
        measure=partial(_differ, HALF),
    ),
    claim(
        identifier="N2",
        words="In 32 bits, decoding with the cache gives the tokens that it gives without it.",
        reported="in 0 % of cases other tokens, in FP32",
        statistic="share of the answers in float32 that have another token with the cache than "
        "without it, each going on from its own tokens, greedy",
        holds=("at most", NEVER),
        measure=partial(_differ, "float32"),
    ),
    claim(
        identifier="N3",
        words="With and without the cache, the distributions of the next token are far apart in 16 "
        "bits.",
        reported='10.7 to 12.8 nats "mean KL"; others, behind the same tokens, 1e-4 to 6e-3',
        statistic="mean KL divergence of the distribution with the cache from that without it, in "
        "float16, over the whole vocabulary, at every step behind the same tokens, by task",
        holds=("at least", 1.0),
        measure=lambda evidence: each_part(
            {task: partial(_mean_kl, task) for task in evidence.tasks}, evidence
        ),
        unit="nats",
    ),
    claim(
        identifier="N4",
        words="With the cache more answers are right than without it.",
        reported="cache on is better in 8 of 9 settings",
        statistic="share of the answers that are right with the cache less the share without it, "
        "in float16, over all ways to choose tokens, each path going on from its own",
        holds=("above", 0.0),
        measure=_right,
    ),
    claim(
        identifier="N5",
        words="Sharing heads of keys and values among query heads amplifies the drift.",
        reported="Mistral, which shares, drifts more than Llama 2, which does not",
        statistic="relative drift of the residual stream of cache on from cache off, mean over the "
        "layers after the first, in float16, over that of the model of equal function in which "
        "each query head has its own head",
        holds=("at least", AMPLIFIED),
        experiments=(SHARED,),
        measure=partial(each_part, {"": _amplified}),
        unit="times",
    ),
    claim(
        identifier="N6",
        words="Answers part at the decision boundary, and early partings have the larger "
        "divergence.",
        reported="in 8 of 9 settings",
        statistic="of the answers in float16 that differ, greedy: share of the first differing "
        "steps at which the margin between the two largest logits is below its median over all "
        "steps, less one half; mean KL at the third that part first less that at the third that "
        "part last",
        holds=("above", 0.0),
        measure=partial(each_part, {"margin": _margin, "early": _early}),
    ),
    claim(
        identifier="N7",
        words="At a flip, patching the residual stream recovers nothing, and patching keys and "
        "values does.",
        reported="patching the stream: median below 1 %; patching keys and values is named as a "
        "missing experiment",
        statistic="at the first token that differs, in float16, greedy: share of the divergence "
        "that goes with keys and values of all layers from cache off, less the share that goes "
        "with the residual stream behind one layer, mean over all layers but the last",
        holds=("at least", 0.5),
        measure=_localised,
    ),
)
