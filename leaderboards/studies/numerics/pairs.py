"""Adds up what the table of numerics holds: teacher-forced by pair, free-running before and after the first flip."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, concat

from leaderboards.statistics.bootstrap import FloatArray, resampled_means
from leaderboards.statistics.resampling import Estimate
from leaderboards.statistics.significance import correct_p, mcnemar_p
from leaderboards.studies.numerics.alarm import Cause, cause_of

TABLE = "numerics_pairs"  # of a store (kvbench.store.numerics)
CACHE, FORCED, FREE = "cache", "teacher-forced", "free-running"
NULL = ("on again", "off again", "batch", "chunks", "threads")  # pairs of equal dtype, whose difference says nothing
DTYPES = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Forced:
    """Holds how far a pair of paths is apart, teacher-forced, over all steps of the answers of a task."""

    task: str
    dtype: str
    paths: str
    steps: int  # of all answers, where all logits are finite
    kl: Estimate | None  # mean; None where no logit is finite
    kl_999: float  # the 99.9th percentile of a step
    kl_largest: float
    js: float
    largest: float  # difference of log-probabilities
    same_top: float  # share of steps
    cause: Cause
    above_null: bool | None  # the mean KL is above all null rows' over the same questions; None of null rows


@dataclass(frozen=True)
class Free:
    """Holds what free-running paths come to in one dtype and way to choose."""

    task: str
    dtype: str
    sampling: str
    pairs: int
    differ: Estimate  # share of pairs with other tokens
    first_flip: float | None  # median over pairs that differ, counted from 0
    kl_before: float | None  # mean over the steps up to the flip, where both have the same prefix
    kl_after: float | None  # over the steps behind it, where they have not
    always: int  # questions that differ in all draws
    sometimes: int
    never: int
    completions: float  # different ones of a question, over both paths and all draws, mean
    length_on: float  # tokens of an answer, mean
    length_off: float
    right_on: float | None  # share, of cache on
    right_off: float | None  # of cache off
    only_on: int  # pairs that cache on alone has right
    only_off: int
    p_mcnemar: float | None  # of McNemar's test
    p_bonferroni: float | None
    p_bh: float | None


@dataclass(frozen=True)
class OverConfigurations:
    """Holds how far the greedy answers of a task scatter over all configurations: both paths in every dtype."""

    task: str
    configurations: int
    std_accuracy: float | None  # Std@Acc: of the shares of right answers; None where nothing is judged
    std_length: float  # of the lengths of an answer, in tokens, mean over questions


@dataclass(frozen=True)
class Mistakes:
    """Holds what the same logits give if they are averaged wrongly, in nats."""

    task: str
    dtype: str
    aligned: float  # mean KL, teacher-forced
    earlier: float  # with the ids of cache off shifted by one step
    later: float  # in the other direction
    pooled: float | None  # free-running, over all steps, with those behind the flip; None where no pair differs


def with_draws(table: DataFrame, records: DataFrame) -> DataFrame:
    """Adds to each row the context that it is about, which is resampled as a whole."""
    draws = records[["task", "question_id", "draw_id"]].drop_duplicates()
    return table.merge(draws, on=["task", "question_id"], validate="many_to_one")


def forced_of(table: DataFrame, misplaced: Collection[tuple[str, str]] = ()) -> list[Forced]:
    """Returns every pair by task and dtype, where tokens are chosen greedily: other choices walk the same paths.
    ``misplaced``: the dtypes and tasks in which rows of the cache say that tokens or positions differ, which moves
    distributions less than a shift by one."""
    rows = table[(table["regime"] == FORCED) & (table["sampling"] == "greedy")]
    found = []
    for (task, dtype), group in _groups(rows, ["task", "dtype"]):
        for pair, of_pair in group.groupby("pair", sort=False):
            above = _above_null(group) if pair == CACHE else None
            forced = _forced(str(task), str(dtype), str(pair), of_pair, above)
            is_misplaced = pair == CACHE and (dtype, task) in misplaced
            found.append(replace(forced, cause="misaligned") if is_misplaced else forced)
    return found


def _above_null(rows: DataFrame) -> bool:
    """Tells whether cache on and off are farther apart than the paths of every null row, over the same questions."""
    null = rows[rows["pair"].isin(NULL)]
    beside = rows[rows["question_id"].isin(null["question_id"])] if len(null) else rows
    means = {pair: _mean(joined(of_pair["kl"])) for pair, of_pair in beside.groupby("pair", sort=False)}
    return means[CACHE] > max((means[pair] for pair in NULL if pair in means), default=0.0)


def _groups(rows: DataFrame, by: list[str]) -> Iterator[tuple[tuple[str, ...], DataFrame]]:
    """Groups rows by task, and by dtype in their own order."""
    groups = {tuple(map(str, key)): group for key, group in rows.groupby(by, sort=False)}
    yield from sorted(groups.items(), key=lambda one: (one[0][0], DTYPES.index(one[0][1])))


def _forced(task: str, dtype: str, pair: str, rows: DataFrame, above: bool | None) -> Forced:
    kl = joined(rows["kl"])
    known = kl[np.isfinite(kl)]
    return Forced(
        task,
        dtype,
        pair,
        steps=len(known),
        kl=_mean_kl(rows),
        kl_999=float(np.quantile(known, 0.999)) if len(known) else float("nan"),
        kl_largest=float(known.max(initial=0.0)),
        js=_mean(joined(rows["js"])),
        largest=float(np.nanmax(joined(rows["largest"]), initial=0.0)),
        same_top=float(joined(rows["same_top"]).mean()),
        cause=cause_of(kl.tolist(), *(joined(rows[name]).tolist() for name in ("kl_earlier", "kl_later"))),
        above_null=above,
    )


def joined(lists: Iterable[Sequence[float] | FloatArray]) -> FloatArray:
    """Puts the numbers of all rows one behind the other."""
    return np.concatenate([np.empty(0), *(np.asarray(one, dtype=np.float64) for one in lists)])


def _mean(values: FloatArray) -> float:
    """Averages the values that are numbers; NaN where none is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _mean_kl(rows: DataFrame) -> Estimate | None:
    """Averages KL over steps, and resamples contexts."""
    sums, counts = finite_sums(rows["kl"])
    if not counts.any():
        return None
    drawn = resampled_means(sums, rows["draw_id"].to_numpy(dtype=str), 0, weights=counts)
    return Estimate.of(float(sums.sum() / counts.sum()), drawn, int(counts.sum()))


def finite_sums(lists: Iterable[Sequence[float] | FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Adds up the finite numbers of each row, and counts them: two arrays of shape (rows,)."""
    values = [np.asarray(one, dtype=np.float64) for one in lists]
    finite = [one[np.isfinite(one)] for one in values]
    return np.array([one.sum() for one in finite]), np.array([float(len(one)) for one in finite])


def flip_of(tokens: Sequence[int], other: Sequence[int]) -> int | None:
    """Returns the first step at which two answers differ, also where one has ended (``Div_Index``); None where they are
    equal.

    >>> flip_of([4, 5, 6], [4, 7]), flip_of([4, 5], [4]), flip_of([4], [4])
    (1, 1, None)
    """
    shorter = min(len(tokens), len(other))
    differing = (step for step in range(shorter) if tokens[step] != other[step])
    return next(differing, None if len(tokens) == len(other) else shorter)


def free_of(table: DataFrame) -> list[Free]:
    """Returns every task, dtype and way to choose; p-values are corrected over all of them that are tested."""
    rows = table[(table["regime"] == FREE) & (table["pair"] == CACHE)]
    groups = dict(_groups(rows, ["task", "dtype", "sampling"]))
    tests = {key: p for key, group in groups.items() if (p := _mcnemar(group)) is not None}
    corrected = correct_p(tests, "numerics", "fdr_bh").p
    return [_free(key, group, tests.get(key), len(tests), corrected.get(key)) for key, group in groups.items()]


def _only(rows: DataFrame) -> tuple[int, int]:
    """Counts the pairs that cache on alone, and that cache off alone, has right."""
    judged = rows[rows["right"].notna()]
    on, off = (judged[name].astype(bool) for name in ("right", "other_right"))
    return int((on & ~off).sum()), int((off & ~on).sum())


def _mcnemar(rows: DataFrame) -> float | None:
    return mcnemar_p(*_only(rows)) if rows["right"].notna().any() else None


def _free(key: tuple[str, ...], rows: DataFrame, p: float | None, tests: int, p_bh: float | None) -> Free:
    flips = [flip_of(one, other) for one, other in zip(rows["tokens"], rows["other_tokens"], strict=True)]
    differ = np.array([flip is not None for flip in flips], dtype=np.float64)
    sides = [_split(kl, flip) for kl, flip in zip(rows["kl"], flips, strict=True)]
    before, after = (joined([side[part] for side in sides]) for part in (0, 1))
    shares = rows.assign(differs=differ).groupby("question_id")["differs"].mean()
    task, dtype, sampling = key
    return Free(
        task,
        dtype,
        sampling,
        pairs=len(rows),
        differ=Estimate.of(
            float(differ.mean()), resampled_means(differ, rows["draw_id"].to_numpy(dtype=str), 0), len(rows)
        ),
        first_flip=float(np.median([flip for flip in flips if flip is not None])) if differ.any() else None,
        kl_before=_mean(before) if len(before) else None,
        kl_after=_mean(after) if len(after) else None,
        always=int((shares == 1).sum()),
        sometimes=int(((shares > 0) & (shares < 1)).sum()),
        never=int((shares == 0).sum()),
        completions=_completions(rows),
        length_on=float(rows["tokens"].map(len).mean()),
        length_off=float(rows["other_tokens"].map(len).mean()),
        right_on=_share(rows["right"]),
        right_off=_share(rows["other_right"]),
        only_on=_only(rows)[0],
        only_off=_only(rows)[1],
        p_mcnemar=p,
        p_bonferroni=None if p is None else min(1.0, tests * p),
        p_bh=p_bh,
    )


def _split(kl: FloatArray, flip: int | None) -> tuple[FloatArray, FloatArray]:
    """Parts the steps whose prefix both paths share, the flip among them, from those behind it."""
    values = np.asarray(kl, dtype=np.float64)
    end = len(values) if flip is None else flip + 1
    return values[:end], values[end:]


def _share(right: Iterable[bool | None]) -> float | None:
    known: NDArray[np.float64] = np.array([one for one in right if one is not None], dtype=np.float64)
    return float(known.mean()) if len(known) else None


def _completions(rows: DataFrame) -> float:
    counts = [
        len({tuple(one) for name in ("tokens", "other_tokens") for one in of_question[name]})
        for _, of_question in rows.groupby("question_id")
    ]
    return float(np.mean(counts))


def scatter_of(table: DataFrame) -> list[OverConfigurations]:
    """Returns every task: standard deviations of a sample, as arXiv 2506.09501 has them."""
    rows = table[(table["regime"] == FREE) & (table["pair"] == CACHE) & (table["sampling"] == "greedy")]
    sides = [rows.assign(path="on"), rows.assign(path="off", right=rows["other_right"], tokens=rows["other_tokens"])]
    answers = concat(sides, ignore_index=True)
    answers["length"] = answers["tokens"].map(len)
    found = []
    for task, group in answers.groupby("task"):
        accuracies = group[group["right"].notna()].astype({"right": float}).groupby(["dtype", "path"])["right"].mean()
        std = float(accuracies.std()) if len(accuracies) else None
        lengths = float(group.groupby("question_id")["length"].std().mean())
        found.append(OverConfigurations(str(task), group.groupby(["dtype", "path"]).ngroups, std, lengths))
    return found


def mistakes_of(table: DataFrame) -> list[Mistakes]:
    """Returns what the mistakes would give that a text is likely to have made."""
    rows = table[(table["pair"] == CACHE) & (table["sampling"] == "greedy")]
    found = []
    for (task, dtype), group in _groups(rows, ["task", "dtype"]):
        forced, free = (group[group["regime"] == regime] for regime in (FORCED, FREE))
        flipped = any(flip_of(*pair) is not None for pair in zip(free["tokens"], free["other_tokens"], strict=True))
        aligned, earlier, later = (_mean(joined(forced[name])) for name in ("kl", "kl_earlier", "kl_later"))
        found.append(Mistakes(task, dtype, aligned, earlier, later, _mean(joined(free["kl"])) if flipped else None))
    return found
