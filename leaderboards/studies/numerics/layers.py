"""Adds up the tables of drift and of patches: where in a model a difference of both paths comes from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.significance import correct_p
from leaderboards.studies.numerics.pairs import DTYPES, estimate_of, joined, sorted_groups, stats

DRIFT, PATCHES = "numerics_drift", "numerics_patches"
ALL = -1  # stands for all layers


@dataclass(frozen=True)
class Drift:
    """Holds how far a layer of cache on is from the same of cache off, relative to cache off, over the steps at which
    cache on read a token by itself."""

    task: str
    dtype: str
    layer: int
    keys_prompt: float  # mean over the rows of the prompt
    keys_answer: float  # over those that were written token by token
    values_prompt: float
    values_answer: float
    hidden: Estimate  # of the residual stream
    p_layer: float | None  # of Mann and Whitney: contexts in this layer against the first; None of the first
    p_layer_bh: float | None  # corrected over all rows


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


def drift_of(table: DataFrame) -> list[Drift]:
    """Returns every layer by task and dtype, of answers with a step at which cache on read a token by itself: at the
    first it reads the prompt at once, as cache off does."""
    rows = table[table["hidden"].map(len) > 1]
    rows = rows.assign(alone=rows["hidden"].map(lambda steps: float(np.mean(steps[1:]))))
    groups = {
        (task, dtype, int(layer)): of_layer
        for (task, dtype), group in sorted_groups(rows, "task", "dtype")
        for layer, of_layer in group.groupby("layer")
    }
    drifts = {names: of_layer["alone"].to_numpy(dtype=np.float64) for names, of_layer in groups.items()}
    tests = {
        (task, dtype, layer): float(stats.mannwhitneyu(drifts[task, dtype, 0], drift).pvalue)
        for (task, dtype, layer), drift in drifts.items()
        if layer > 0
    }
    corrected = correct_p(tests, "numerics drift", "fdr_bh").p
    found = []
    for names, of_layer in groups.items():
        keys, values = (_means(of_layer[rows], of_layer["hidden"]) for rows in ("keys", "values"))
        hidden = estimate_of(drifts[names], of_layer)
        found.append(Drift(*names, *keys, *values, hidden, tests.get(names), corrected.get(names)))
    return found


def _means(rows: Iterable[Sequence[float]], steps: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Averages the rows of prompts, and those that were written token by token."""
    parts = [np.split(one, [1 - len(own)]) for one, own in zip(rows, steps, strict=True)]
    prompt, answer = (float(joined(part).mean()) for part in zip(*parts, strict=True))
    return prompt, answer


def recoveries_of(table: DataFrame) -> list[Recovery]:
    """Returns what each patch recovers, by dtype, apart for steps at which both choose different tokens and others."""
    rows = table.assign(recovered=1 - table["kl_patched"] / table["kl"])
    found = []
    for (dtype, at_flip, patched, layer), group in rows.groupby(["dtype", "at_flip", "rows", "layer"]):
        values = group["recovered"].to_numpy(dtype=np.float64)
        estimate, median = estimate_of(values, group), float(np.median(values))
        found.append(Recovery(dtype, bool(at_flip), patched, int(layer), len(group), estimate, median))
    return sorted(found, key=lambda one: DTYPES.index(one.dtype))
