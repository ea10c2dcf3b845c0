"""The claims of text N: every answer with the cache and without it, in several types of numbers."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from leaderboards.aggregate.evidence import (
    FEWEST_CONTEXTS,
    Contexts,
    Evidence,
    NoEvidenceError,
    PreconditionError,
    TooFewError,
    filled_table,
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
# Where answers part, and by what, does not depend on how often they do. In float16 answers of a
# small model hardly part (2 of 24 of smollm2), and some models overflow, so that these claims are
# read in bfloat16 where float16 was not walked. Its rounding is 8 times as coarse.
COARSE = "bfloat16"
NEVER = 0.05
SHARE = (0.0, 1.0)
AMPLIFIED = 1.1
# Of two tasks, so that 60 contexts are walked: where none of them differs, fewer than one in twenty
# does.
WALKED = Experiment(
    name="walks", tasks="base,prose", policies="full", levels=(), contexts=30, suite="numerics"
)

GROUPS = "groups"  # a table of a store (kvbench.studies.groups)
SHARED = Experiment(
    name="groups", tasks="base", policies="full", levels=(), contexts=12, observe=GROUPS
)


def _pairs(
    evidence: Evidence, regime: str, dtype: str, sampling: str | None = "greedy"
) -> DataFrame:
    """Returns the pairs of cache on and cache off in a type of numbers, with the context of each,
    whether its answers differ and at which step. ``sampling``: None for all ways.

    Raises :class:`NoEvidenceError` where there are none, and :class:`PreconditionError` where the
    model overflows in all."""
    rows = filled_table(evidence.tables, walked.TABLE, "walked")
    is_pair = (rows["pair"] == walked.CACHE) & (rows["regime"] == regime)
    rows = rows[is_pair & (rows["dtype"] == dtype)]
    if sampling:
        rows = rows[rows["sampling"] == sampling]
    if rows.empty:
        raise NoEvidenceError(f"nothing was walked in {dtype}")
    finite = walked.drop_overflows(rows)
    if finite.empty:
        raise PreconditionError(f"in {dtype} the model overflows in all of {len(rows)} answers")
    # None, of answers that do not differ, becomes NaN.
    steps = list(map(walked.find_flip, finite["tokens"], finite["other_tokens"]))
    flips = np.array(steps, dtype=np.float64)
    finite = finite.assign(flip=flips, differs=~np.isnan(flips))
    return walked.with_draws(finite, evidence.records)


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
    differs = rows["differs"]
    note = f"{differs.sum()} of {len(rows)} pairs differ"
    return [_statistic(evidence, rows, differs, note, SHARE)]


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
    on = rows["right"].to_numpy(dtype=np.float64)
    off = rows["other_right"].to_numpy(dtype=np.float64)
    with_cache, without = (on > off).sum(), (off > on).sum()
    alone = f"{with_cache} right with the cache alone, {without} without it alone"
    note = f"{alone}, of {len(rows)} pairs"
    return [_statistic(evidence, rows, on - off, note, (-1.0, 1.0))]


def _choose_type(rows: DataFrame) -> str:
    """Returns the type of numbers of 16 bits that partings are looked at in: float16 where rows
    have it."""
    walked_types = set(rows["dtype"])
    if HALF not in walked_types and COARSE in walked_types:
        return COARSE
    return HALF


def _walked_type(evidence: Evidence) -> str:
    """Chooses among the types that pairs were walked in. Raises :class:`NoEvidenceError` where
    nothing was walked."""
    return _choose_type(filled_table(evidence.tables, walked.TABLE, "walked"))


def _flips(evidence: Evidence) -> DataFrame:
    """Returns the free-running pairs in 16 bits that differ; :class:`NoEvidenceError` where none
    does."""
    rows = _pairs(evidence, walked.FREE, _walked_type(evidence))
    if not rows["differs"].any():
        raise NoEvidenceError(f"none of {len(rows)} pairs of answers differs: there is no flip")
    return rows[rows["differs"]]


def _margin(evidence: Evidence) -> Statistic:
    """Counts the flips at which the margin is below the median margin of all steps behind the same
    tokens."""
    dtype = _walked_type(evidence)
    parted, forced = _flips(evidence), _pairs(evidence, walked.FORCED, dtype)
    median = float(np.nanmedian(walked.joined(forced["margin"])))
    margins = _at_flip(parted, "margin")
    rows, at_flips = parted[~np.isnan(margins)], margins[~np.isnan(margins)]
    if not len(at_flips):
        raise NoEvidenceError(
            "all answers that differ part where one has ended: no margin is known there"
        )
    medians = f"{np.median(at_flips):.2g} there and {median:.2g} at all steps"
    note = f"{len(at_flips)} flips in {dtype}; median margin {medians}"
    # Less one half, which chance would give, so that the threshold is 0.
    return _statistic(evidence, rows, (at_flips < median) - 0.5, note, (-0.5, 0.5))


def _early(evidence: Evidence) -> Statistic:
    """Compares KL at the flips of the first third with that at those of the last third, by their
    step."""
    parted = _flips(evidence)
    kl = _at_flip(parted, "kl")
    rows, kl = parted[np.isfinite(kl)], kl[np.isfinite(kl)]
    if not len(rows):
        ended = "all answers that differ part where one has ended"
        raise NoEvidenceError(f"{ended}: no divergence is known there")
    if len(rows) < walked.THIRDS:
        reason = f"{len(rows)} flips have no first and last third"
        raise TooFewError(reason, FEWEST_CONTEXTS / len(rows))
    is_first, is_last = walked.thirds(rows["flip"].to_numpy(dtype=np.float64))
    if (is_first & is_last).any():
        steps = f"{len(rows)} flips are at too few different steps"
        raise NoEvidenceError(f"{steps} to have a first and a last third")
    contexts = _contexts(evidence, rows)

    def mean(third: NDArray[np.bool_]) -> FloatArray:
        return contexts.sums(kl * third) / contexts.sums(third.astype(np.float64))

    difference = mean(is_first) - mean(is_last)
    note = f"{len(rows)} flips in {_walked_type(evidence)}"
    return Statistic(difference, contexts.count, note=note)


def _at_flip(rows: DataFrame, column: str) -> FloatArray:
    """Returns what each row has at its flip, shape (rows,); NaN where an answer has ended there, so
    that nothing was compared."""
    values = []
    for of_steps, step in zip(rows[column], rows["flip"].astype(int), strict=True):
        values.append(of_steps[step] if step < len(of_steps) else np.nan)
    return np.array(values, dtype=np.float64)


def _amplified(evidence: Evidence) -> Statistic:
    """Divides the drift behind the layers after the first with the most query heads to a head by
    that with one."""
    measured = filled_table(evidence.tables, GROUPS, "measured")
    rows = walked.with_draws(measured, evidence.records)
    largest = int(rows["size"].max())
    if largest == 1:
        reason = "each query head has a head of keys and values of its own: nothing is shared"
        raise PreconditionError(reason)
    by_size = {}
    for size, group in rows.groupby("size"):
        by_size[int(size)] = group.sort_values("question_id")
    # Numbered by the answers of one size. The others are sorted in the same way, so that a row is
    # about the same context in each.
    contexts = _contexts(evidence, by_size[1])
    sums = {}
    for size, group in by_size.items():
        # In the first layer the rows of one token are as exact as those of many.
        drift = [np.mean(layers[1:]) for layers in group["hidden"]]
        sums[size] = contexts.sums(np.array(drift))
    if not np.isfinite(sums[1][0]) or not sums[1][0]:
        raise PreconditionError(f"in {HALF} the model overflows, or nothing drifts")
    ratios = []
    for size, values in sorted(sums.items()):
        ratios.append(f"{values[0] / sums[1][0]:.2f} with {size}")
    note = f"drift by query heads to a head, of that with 1: {', '.join(ratios)}"
    return Statistic(sums[largest] / sums[1], contexts.count, note=note)


def _localised(evidence: Evidence) -> list[Statistic]:
    """Averages over flips the recovery by all rows less that by the stream of one layer, mean over
    all but the last."""
    flips = _patched_flips(evidence)
    of_all_layers = flips["layer"] == walked.ALL
    stream = flips[(flips["rows"] == "residual") & ~of_all_layers]
    # Behind the last layer the stream is what logits are computed from, so that its patch recovers
    # all.
    stream = stream[stream["layer"] < stream["layer"].max()]
    if stream.empty:
        reason = "a model of one layer has no stream but that which logits are computed from"
        raise PreconditionError(reason)
    rows = flips[(flips["rows"] == "keys and values") & of_all_layers]
    rows = rows.drop_duplicates("question_id")
    means = stream.groupby("question_id")["recovered"].mean()
    by_stream = means[rows["question_id"]].to_numpy(dtype=np.float64)
    by_rows = rows["recovered"].to_numpy(dtype=np.float64)
    medians = f"{np.median(by_rows):.2f} by rows and {np.median(by_stream):.2f} by the stream"
    note = f"{len(rows)} flips in {rows['dtype'].iloc[0]}; median {medians}"
    return [_statistic(evidence, rows, by_rows - by_stream, note)]


def _patched_flips(evidence: Evidence) -> DataFrame:
    """Returns the patches at flips in 16 bits into the path with the cache, with what each
    recovered.

    Raises :class:`NoEvidenceError` where there are none."""
    names = (patched.TABLE, patched.EARLIER)
    tables = {name: evidence.tables[name] for name in names if name in evidence.tables}
    patches = patched.read_patches(tables)
    if patches is None:
        raise NoEvidenceError("nothing was patched")
    is_chosen = patches["dtype"] == _choose_type(patches)
    patches = patches[is_chosen & (patches["direction"] == patched.INTO_ON)]
    patches = patches[patches["layers"] != patched.UP_TO]
    patches = walked.with_draws(patches, evidence.records)
    flips = patches[patches["place"] == "flip"]
    if flips.empty:
        answers = f"none of {patches['question_id'].nunique()} answers that were patched"
        raise NoEvidenceError(f"{answers} has a flip: there is nothing to localise")
    return flips.assign(recovered=1 - flips["kl_patched"] / flips["kl"])


GREEDY = ("greedy",)
HALF_GREEDY = {"dtypes": (HALF,), "sampling": GREEDY}
EITHER_GREEDY = {"dtypes": (HALF, COARSE), "sampling": GREEDY}

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
        takes=HALF_GREEDY,
    ),
    claim(
        identifier="N2",
        words="In 32 bits, decoding with the cache gives the tokens that it gives without it.",
        reported="in 0 % of cases other tokens, in FP32",
        statistic="share of the answers in float32 that have another token with the cache than "
        "without it, each going on from its own tokens, greedy",
        holds=("at most", NEVER),
        measure=partial(_differ, "float32"),
        takes={"dtypes": ("float32",), "sampling": GREEDY},
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
        takes=HALF_GREEDY,
    ),
    claim(
        identifier="N4",
        words="With the cache more answers are right than without it.",
        reported="cache on is better in 8 of 9 settings",
        statistic="share of the answers that are right with the cache less the share without it, "
        "in float16, over all ways to choose tokens, each path going on from its own",
        holds=("above", 0.0),
        measure=_right,
        takes={"dtypes": (HALF,)},
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
        statistic="of the answers in float16 (else in bfloat16) that differ, greedy: share of the "
        "first differing steps at which the margin between the two largest logits is below its median over all "
        "steps, less one half; mean KL at the third that part first less that at the third that "
        "part last",
        holds=("above", 0.0),
        measure=partial(each_part, {"margin": _margin, "early": _early}),
        takes=EITHER_GREEDY,
    ),
    claim(
        identifier="N7",
        words="At a flip, patching the residual stream recovers nothing, and patching keys and "
        "values does.",
        reported="patching the stream: median below 1 %; patching keys and values is named as a "
        "missing experiment",
        statistic="at the first token that differs, in float16 (else in bfloat16), greedy: share "
        "of the divergence that goes with keys and values of all layers from cache off, less the share that goes "
        "with the residual stream behind one layer, mean over all layers but the last",
        holds=("at least", 0.5),
        measure=_localised,
        takes=EITHER_GREEDY,
    ),
)
