"""Adds up the tables of drift, of patches and of groups: where in a model a difference of both paths comes from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pandas import DataFrame

from leaderboards.statistics.bootstrap import FloatArray, resampled_means
from leaderboards.statistics.resampling import Estimate
from leaderboards.statistics.significance import correct_p
from leaderboards.studies.numerics.pairs import DTYPES
from policies.declaration.lazy import LazyModule

stats = LazyModule("scipy.stats")  # its import takes half a second, and few sites need it
DRIFT, PATCHES, GROUPS = (f"numerics_{name}" for name in ("drift", "patches", "groups"))
ALL = -1  # stands for all layers
APART = 0.05  # relative: rows of the first layer differ by less, in 16 bits too, where tokens and positions are equal
Misplaced = Literal["other tokens", "other positions"]


@dataclass(frozen=True)
class Drift:
    """Holds how far a layer of cache on is from the same of cache off, over the steps at which cache on read a token by
    itself. All is relative but what says something else."""

    task: str
    dtype: str
    layer: int
    keys_prompt: float  # mean over the rows of the prompt
    keys_answer: float  # over those that were written token by token
    values_prompt: float
    values_answer: float
    hidden: Estimate  # of the residual stream
    hidden_cosine: float
    hidden_l2: float  # root mean square of the distance
    predicted_l2: float  # the same, if each layer's own part were added to those before as independent errors are
    attention_kl: float  # mean over heads, in nats
    growth: Estimate | None  # rank correlation of step and drift of the keys written then; None where none drifts
    p_layer: (
        float | None
    )  # of Mann and Whitney: contexts in this layer against the same in the first; None of the first
    p_layer_bh: float | None


@dataclass(frozen=True)
class Recovery:
    """Holds what of a divergence goes if a part of cache on is cache off's."""

    dtype: str
    at_flip: bool
    patched: str  # which part
    layer: int  # ALL: of all
    cases: int
    recovered: Estimate  # 1 - KL patched / KL
    median: float


@dataclass(frozen=True)
class Group:
    """Holds drift where so many query heads share a head of keys and values, in models of equal function."""

    dtype: str
    whose: str
    size: int
    after_first: Estimate  # relative drift of the residual stream, mean over the layers after the first
    last_layer: Estimate
    amplified: Estimate  # ratio of the drift after the first layer to that with one query head to a head


@dataclass(frozen=True)
class Product:
    """Holds the error of a dot product of so many numbers, over the lengths of both vectors."""

    dtype: str
    length: int
    product_error: float  # root mean square


def estimate_of(values: FloatArray, draws: Sequence[str], weights: FloatArray | None = None) -> Estimate:
    """Averages a number of each row, and resamples contexts; ``weights``: over their sum instead, NaN where that is
    0."""
    drawn = resampled_means(values, np.array(draws, dtype=str), 0, weights=weights)
    counts = np.ones(len(values)) if weights is None else weights
    mean = values.sum() / counts.sum() if counts.any() else np.nan
    return Estimate.of(float(mean), drawn, len(values))


def _sorted_groups(table: DataFrame, *columns: str) -> Iterator[tuple[tuple[str, ...], DataFrame]]:
    groups = {tuple(map(str, key)): group for key, group in table.groupby(list(columns), sort=False)}
    yield from sorted(groups.items(), key=lambda one: (DTYPES.index(one[0][0]), one[0][1:]))


def misplaced(table: DataFrame) -> dict[tuple[str, str], Misplaced]:
    """Names what cache on was given otherwise than cache off, by dtype and task: the alarm of cache rows.

    Values of the first layer follow from the token alone, and keys from token and position: what moves both is
    another token, and what moves keys alone another position.
    """
    found: dict[tuple[str, str], Misplaced] = {}
    for key, rows in table[table["layer"] == 0].groupby(["dtype", "task"]):
        keys, values = (max(map(max, rows[name])) for name in ("keys", "values"))
        if max(keys, values) > APART:
            found[str(key[0]), str(key[1])] = "other tokens" if values > APART else "other positions"
    return found


def drift_of(table: DataFrame) -> list[Drift]:
    """Returns every layer by task and dtype, of answers with a step at which cache on read a token by itself; p-values
    are corrected over all of them."""
    alone = table[table["hidden"].map(len) > 1]
    groups = dict(_sorted_groups(alone, "dtype", "task"))
    tests = {
        (*key, layer): _differs(rows, layer)
        for key, rows in groups.items()
        for layer in sorted(set(rows["layer"]) - {0})
    }
    corrected = correct_p(tests, "numerics drift", "fdr_bh").p
    found = []
    for (dtype, task), rows in groups.items():
        added = 0.0
        for layer in sorted(set(rows["layer"])):
            of_layer = rows[rows["layer"] == layer]
            added += _mean_square(of_layer["added_l2"])
            names = dtype, task, layer
            found.append(_drift(names, of_layer, np.sqrt(added), tests.get(names), corrected.get(names)))
    return found


def _differs(rows: DataFrame, layer: int) -> float:
    """Tests whether contexts drift as much in a layer as in the first one; steps of one context are averaged."""
    sides = [rows[rows["layer"] == one]["hidden"].map(_mean_alone).to_numpy() for one in (0, layer)]
    return float(stats.mannwhitneyu(*sides).pvalue)


def _mean_alone(steps: Sequence[float]) -> float:
    """Averages over the steps at which cache on read a token by itself: at the first it read the prompt at once."""
    return float(np.mean(steps[1:]))


def _mean_square(lists: Sequence[Sequence[float]]) -> float:
    return float(np.mean(np.square(np.concatenate([steps[1:] for steps in lists]))))


def _drift(
    names: tuple[str, str, int], rows: DataFrame, predicted: float, p: float | None, p_bh: float | None
) -> Drift:
    dtype, task, layer = names
    written = rows["hidden"].map(len) - 1
    parts = {
        f"{name}_{part}": np.concatenate([
            np.asarray(one)[:-count] if part == "prompt" else np.asarray(one)[-count:]
            for one, count in zip(rows[name], written, strict=True)
        ])
        for name in ("keys", "values")
        for part in ("prompt", "answer")
    }  # fmt: skip
    draws = rows["draw_id"].tolist()
    return Drift(
        task,
        dtype,
        layer,
        **{name: float(values.mean()) for name, values in parts.items()},
        hidden=estimate_of(rows["hidden"].map(_mean_alone).to_numpy(dtype=np.float64), draws),
        hidden_cosine=float(np.mean([_mean_alone(one) for one in rows["hidden_cosine"]])),
        hidden_l2=float(np.sqrt(_mean_square(rows["hidden_l2"]))),
        predicted_l2=float(predicted),
        attention_kl=float(np.mean([np.mean(one) for one in rows["attention_kl"]])),
        growth=_growth(rows),
        p_layer=p,
        p_layer_bh=p_bh,
    )


def _growth(rows: DataFrame) -> Estimate | None:
    """Correlates step and drift in each answer with three steps or more whose drift is not always the same."""
    found, draws = [], []
    for steps, draw in zip(rows["keys_written"], rows["draw_id"], strict=True):
        if len(set(steps[1:])) > 2:
            found.append(float(stats.spearmanr(np.arange(len(steps) - 1), steps[1:]).statistic))
            draws.append(draw)
    return estimate_of(np.array(found), draws) if found else None


def recoveries_of(table: DataFrame) -> list[Recovery]:
    """Returns what each patch recovers, by dtype, apart for steps at which both choose different tokens and others."""
    found = []
    rows = table.assign(recovered=1 - table["kl_patched"] / table["kl"])
    for (dtype, at_flip, patch, layer), group in _sorted_groups(rows, "dtype", "at_flip", "rows", "layer"):
        values = group["recovered"].to_numpy(dtype=np.float64)
        estimate = estimate_of(values, group["draw_id"].tolist())
        found.append(
            Recovery(dtype, at_flip == "True", patch, int(layer), len(group), estimate, float(np.median(values)))
        )
    return found


def groups_of(table: DataFrame) -> list[Group]:
    """Returns drift by how many query heads share a head, each beside the same contexts with one to a head."""
    found = []
    for (dtype, whose), rows in _sorted_groups(table, "dtype", "whose"):
        rows = rows.assign(drift=rows["hidden"].map(after_first), last=rows["hidden"].map(lambda one: one[-1]))
        sizes = rows.pivot(index=["question_id", "draw_id"], columns="size", values="drift").dropna()
        alone, draws = sizes[1].to_numpy(dtype=np.float64), sizes.index.get_level_values("draw_id").tolist()
        for size in sizes.columns:
            drift = sizes[size].to_numpy(dtype=np.float64)
            last = rows[rows["size"] == size]
            ratio = estimate_of(drift, draws, weights=alone)
            found.append(
                Group(
                    dtype,
                    whose,
                    int(size),
                    estimate_of(drift, draws),
                    estimate_of(last["last"].to_numpy(dtype=np.float64), last["draw_id"].tolist()),
                    ratio,
                )
            )
    return found


def after_first(by_layer: Sequence[float]) -> float:
    """Averages drift over the layers after the first: in it, rows of one token are as exact as those of many."""
    return float(np.mean(by_layer[1:]))


def products_of(table: DataFrame) -> list[Product]:
    """Averages the errors of dot products over layers and answers, by dtype and length."""
    found = []
    for (dtype,), rows in _sorted_groups(table, "dtype"):
        by_length: dict[int, list[float]] = {}
        for lengths, errors in zip(rows["lengths"], rows["product_error"], strict=True):
            for length, error in zip(lengths, errors, strict=True):
                by_length.setdefault(int(length), []).append(float(error) ** 2)
        found += [Product(dtype, length, float(np.sqrt(np.mean(one)))) for length, one in sorted(by_length.items())]
    return found
