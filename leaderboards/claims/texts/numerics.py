"""The claims of text N: every answer with the cache and without it, in several types of numbers."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from pandas import DataFrame

from leaderboards.aggregate.evidence import Contexts, Evidence, NoEvidenceError, table_of
from leaderboards.claims.declaration import Claim, Experiment, Measured, NoStatistic, Statistic, Text, each_part
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.statistics.significance import highest_unseen_share, mcnemar_p
from leaderboards.statistics.text import p_text
from leaderboards.studies.numerics.pairs import (
    ALL,
    CACHE,
    FORCED,
    FREE,
    PATCHES,
    TABLE,
    finite_sums,
    flip_of,
    joined,
    with_draws,
)

N = Text("N", "arXiv 2604.15409 (decoding with and without the cache)", "Llama 2 7B, Mistral 7B and Gemma 2 2B, GSM8K")
HALF = "float16"  # which the text is about
THIRDS = 3
# Of two tasks, so that 60 contexts are walked: where none of them differs, fewer than one in twenty does.
WALKED = Experiment(name="walks", tasks="base,prose", policies="full", levels=(), contexts=30, suite="numerics")


def pairs_of(evidence: Mapping[str, Evidence], regime: str, dtype: str, sampling: str | None = "greedy") -> DataFrame:
    """Returns the pairs of cache on and cache off in a type of numbers, with the context of each, and the step at which
    free-running answers part, or NaN; :class:`NoEvidenceError` where there are none. ``sampling``: None for all."""
    rows = rows_of(evidence, TABLE, dtype)
    rows = rows[(rows["pair"] == CACHE) & (rows["regime"] == regime)]
    if sampling is not None:
        rows = rows[rows["sampling"] == sampling]
    if rows.empty:
        raise NoEvidenceError(f"nothing was walked in {dtype}")
    flips = [flip_of(*tokens) for tokens in zip(rows["tokens"], rows["other_tokens"], strict=True)]
    return rows.assign(flip=[np.nan if flip is None else float(flip) for flip in flips])


def rows_of(evidence: Mapping[str, Evidence], table: str, dtype: str) -> DataFrame:
    """Returns the rows of a table of numerics in a type of numbers, with the context of each;
    :class:`NoEvidenceError` where there are none."""
    given = evidence[WALKED.name]
    rows = table_of(given.tables, table, "walked")
    rows = rows[rows["dtype"] == dtype]
    if rows.empty:
        raise NoEvidenceError(f"nothing was walked in {dtype}")
    return with_draws(rows, given.records)


def contexts_of(evidence: Mapping[str, Evidence], rows: DataFrame) -> Contexts:
    names = rows["draw_id"].to_numpy(dtype=str)
    return Contexts.of(names, evidence[WALKED.name].seed, WALKED.name)


def statistic_of(
    evidence: Mapping[str, Evidence], rows: DataFrame, values: Sequence[float] | FloatArray, note: str
) -> Statistic:
    """Averages a number of each row, and resamples their contexts."""
    contexts = contexts_of(evidence, rows)
    return Statistic(contexts.mean(np.asarray(values, dtype=np.float64)), contexts.count, note=note)


def flipped(evidence: Mapping[str, Evidence], dtype: str) -> DataFrame:
    """Returns the free-running pairs that differ, greedy; :class:`NoEvidenceError` where none does."""
    rows = pairs_of(evidence, FREE, dtype)
    parted = rows[rows["flip"].notna()]
    if parted.empty:
        raise NoEvidenceError(f"none of {len(rows)} pairs of answers differs: there is no flip")
    return parted


def _measure_n1(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    rows, other = (pairs_of(evidence, FREE, dtype) for dtype in (HALF, "bfloat16"))
    differs, also = rows["flip"].notna(), other["flip"].notna()
    note = f"{differs.sum()} of {len(rows)} pairs; in bfloat16 {also.mean():.2f} of {len(other)}"
    return [statistic_of(evidence, rows, differs, note)]


N1 = Claim(
    identifier="N1",
    text=N,
    words="In 16 bits, decoding with the cache gives other tokens than without it, always.",
    reported="in 100 % of cases, in FP16; another text (arXiv 2603.19664) reports none",
    statistic="share of the answers in float16 that have another token with the cache than without it, each going on "
    "from its own tokens, greedy",
    side="at least",
    threshold=0.95,
    experiments=(WALKED,),
    measure=_measure_n1,
    because="Rounding is small beside the distance between the first and the second token. Behind the same tokens, "
    "float16 moves the distribution by 4e-10 nats on `base` and by 4e-6 on running text, 6e-5 at most (N3). "
    "None of 60 answers of `reference` parts; in bfloat16, whose steps are eight times as wide, 5 % part, all of them "
    "on running text. Answers of a few tokens that are nearly certain have no boundary near.",
)


NEVER = 0.05


def _measure_n2(evidence: Mapping[str, Evidence]) -> Measured:
    rows = pairs_of(evidence, FREE, "float32")
    differs, contexts = rows["flip"].notna(), rows["draw_id"].nunique()
    # Resamples of pairs that are all equal do not vary, which shows nothing of contexts that were not asked.
    if not differs.any() and (highest := highest_unseen_share(contexts)) > NEVER:
        reason = f"none of {len(rows)} pairs of {contexts} contexts differs, which leaves up to {highest:.2f} possible"
        return [NoStatistic("", reason)]
    return [statistic_of(evidence, rows, differs, f"{differs.sum()} of {len(rows)} pairs")]


N2 = Claim(
    identifier="N2",
    text=N,
    words="In 32 bits, decoding with the cache gives the tokens that it gives without it.",
    reported="in 0 % of cases other tokens, in FP32",
    statistic="share of the answers in float32 that have another token with the cache than without it, each going on "
    "from its own tokens, greedy; where none has, it takes so many contexts that a share above the threshold would "
    "have been seen",
    side="at most",
    threshold=NEVER,
    experiments=(WALKED,),
    measure=_measure_n2,
)


def _measure_n3(evidence: Mapping[str, Evidence]) -> Measured:
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


N3 = Claim(
    identifier="N3",
    text=N,
    words="With and without the cache, the distributions of the next token are far apart in 16 bits.",
    reported='10.7 to 12.8 nats "mean KL"; others, behind the same tokens, 1e-4 to 6e-3',
    statistic="mean KL divergence of the distribution with the cache from that without it, in float16, over the whole "
    "vocabulary, at every step behind the same tokens, by task",
    side="at least",
    threshold=1.0,
    experiments=(WALKED,),
    measure=_measure_n3,
    unit="nats",
    because="In `reference`, distributions with the cache and without it differ by rounding, at most 6e-5 nats at any "
    "step in float16.",
    remark="ln(32,000) = 10.37 is what a distribution that knows nothing is from one that is certain, so that means of "
    "10.7 to 12.8 nats are of distributions behind different tokens.",
)


def _measure_n4(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    rows = pairs_of(evidence, FREE, HALF, sampling=None)
    rows = rows[rows["right"].notna()]
    if rows.empty:
        raise NoEvidenceError("no task that was walked has answers that are right or wrong")
    on, off = (rows[name].to_numpy(dtype=np.float64) for name in ("right", "other_right"))
    only_on, only_off = int((on > off).sum()), int((off > on).sum())
    if not only_on + only_off:
        raise NoEvidenceError(f"all {len(rows)} pairs of answers are right, or wrong, together")
    note = (
        f"{only_on} right with the cache alone, {only_off} without it alone, p {p_text(mcnemar_p(only_on, only_off))}"
    )
    return [statistic_of(evidence, rows, on - off, f"{note} (McNemar)")]


N4 = Claim(
    identifier="N4",
    text=N,
    words="With the cache more answers are right than without it.",
    reported="cache on is better in 8 of 9 settings",
    statistic="share of the answers that are right with the cache less the share without it, in float16, over all ways "
    "to choose tokens, each path going on from its own",
    side="above",
    threshold=0.0,
    experiments=(WALKED,),
    measure=_measure_n4,
)


def _measure_n6(evidence: Mapping[str, Evidence]) -> Measured:
    return each_part({"margin": partial(_margin, evidence), "early flips": partial(_early, evidence)})


def _margin(evidence: Mapping[str, Evidence]) -> Statistic:
    """Counts the flips at which the margin is below the median margin of all steps behind the same tokens."""
    parted, forced = flipped(evidence, HALF), pairs_of(evidence, FORCED, HALF)
    median = float(np.nanmedian(joined(forced["margin"])))
    margins = _at_flip(parted, "margin")
    rows, known = parted[~np.isnan(margins)], margins[~np.isnan(margins)]
    if not len(known):
        raise NoEvidenceError("all answers that differ part where one has ended: no margin is known there")
    note = f"{len(known)} flips; median margin {np.median(known):.2g} there and {median:.2g} at all steps"
    return statistic_of(evidence, rows, (known < median) - 0.5, note)


def _early(evidence: Mapping[str, Evidence]) -> Statistic:
    """Compares KL at the flips of the first third with that at those of the last third, by their step."""
    parted = flipped(evidence, HALF)
    kl = _at_flip(parted, "kl")
    rows, kl = parted[np.isfinite(kl)], kl[np.isfinite(kl)]
    if len(rows) < THIRDS:
        raise NoEvidenceError(f"{len(rows)} flips have no first and last third")
    contexts, flips = contexts_of(evidence, rows), rows["flip"].to_numpy(dtype=np.float64)
    first, last = flips <= np.quantile(flips, 1 / THIRDS), flips >= np.quantile(flips, 1 - 1 / THIRDS)
    if (first & last).any():
        raise NoEvidenceError(f"{len(rows)} flips are at too few different steps to have a first and a last third")
    with np.errstate(invalid="ignore"):
        means = [contexts.sums(kl * part) / contexts.sums(part.astype(np.float64)) for part in (first, last)]
    return Statistic(means[0] - means[1], contexts.count, note=f"{len(rows)} flips")


def _at_flip(rows: DataFrame, column: str) -> FloatArray:
    """Returns what each row has at its flip; NaN where an answer has ended there, so that nothing was compared."""
    lists = zip(rows[column], rows["flip"].astype(int), strict=True)
    return np.array([one[step] if step < len(one) else np.nan for one, step in lists], dtype=np.float64)


N6 = Claim(
    identifier="N6",
    text=N,
    words="Answers part at the decision boundary, and early partings have the larger divergence.",
    reported="in 8 of 9 settings",
    statistic="of the answers in float16 that differ, greedy: share of the first differing steps at which the margin "
    "between the two largest logits is below its median over all steps, less one half; mean KL at the third that part "
    "first less that at the third that part last",
    side="above",
    threshold=0.0,
    experiments=(WALKED,),
    measure=_measure_n6,
)


def _measure_n7(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    """Averages over flips the recovery by all rows less that by the stream of one layer, mean over all but the last:
    behind that the stream is all that logits are computed from."""
    patches = rows_of(evidence, PATCHES, HALF)
    flips = patches[patches["at_flip"].astype(bool)]
    if flips.empty:
        answers = patches["question_id"].nunique()
        raise NoEvidenceError(f"none of {answers} answers that were patched has a flip: there is nothing to localise")
    flips = flips.assign(recovered=1 - flips["kl_patched"] / flips["kl"])
    of_stream = flips[(flips["rows"] == "residual") & (flips["layer"] != ALL)]
    of_stream = of_stream[of_stream["layer"] < of_stream["layer"].max()]
    if of_stream.empty:
        raise NoEvidenceError("a model of one layer has no stream but that which logits are computed from")
    stream = of_stream.groupby("question_id")["recovered"].mean()
    rows = flips[(flips["rows"] == "keys and values") & (flips["layer"] == ALL)].drop_duplicates("question_id")
    by_stream = stream[rows["question_id"]].to_numpy(dtype=np.float64)
    by_rows = rows["recovered"].to_numpy(dtype=np.float64)
    note = f"{len(rows)} flips; median {np.median(by_rows):.2f} by rows and {np.median(by_stream):.2f} by the stream"
    return [statistic_of(evidence, rows, by_rows - by_stream, note)]


N7 = Claim(
    identifier="N7",
    text=N,
    words="At a flip, patching the residual stream recovers nothing, and patching keys and values does.",
    reported="patching the stream: median below 1 %; patching keys and values is named as a missing experiment",
    statistic="at the first token that differs, in float16, greedy: share of the divergence that goes with keys and "
    "values of all layers from cache off, less the share that goes with the residual stream behind one layer, mean "
    "over all layers but the last",
    side="at least",
    threshold=0.5,
    experiments=(WALKED,),
    measure=_measure_n7,
)


CLAIMS = (N1, N2, N3, N4, N6, N7)
