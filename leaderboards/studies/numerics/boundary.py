"""Adds up how near answers stand to another token: margins, and what noise of the cache changes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.statistics.resampling import Estimate
from leaderboards.studies.numerics.layers import estimate_of, stats
from leaderboards.studies.numerics.pairs import CACHE, DTYPES, FORCED, FREE, flip_of, joined

NOISE = re.compile(r"multiplicative_normal\(std=([^)]*)\)")
THIRDS = 3
LEAST = 4  # flips of which a partial correlation is told: with three it is 1 or -1


@dataclass(frozen=True)
class Boundary:
    """Holds where greedy answers of cache on and cache off part, in all tasks together."""

    dtype: str
    pairs: int
    flips: int  # at which both paths still write
    margin_at_flip: float | None  # median of cache on's, its largest logit less its next
    margin: float | None  # median over all steps behind the same tokens
    margin_least: float | None  # of these
    apart: float | None  # the largest difference of log-probabilities at any step behind the same tokens
    kl_early: float | None  # mean at the flips of the first third, by their step
    kl_late: float | None  # at those of the last third
    p_welch: float | None
    pearson: float | None  # of the step of the flip and KL there
    spearman: float | None
    partial: float | None  # of the same, without what both share with the margin


@dataclass(frozen=True)
class Susceptibility:
    """Holds how many answers change with noise of the cache."""

    task: str
    amplitude: float  # every number is multiplied by 1 + an error of this spread
    changed: Estimate  # share of answers with other tokens than the full cache's


def boundaries_of(table: DataFrame) -> list[Boundary]:
    """Returns every dtype, of answers that are chosen greedily."""
    rows = table[(table["pair"] == CACHE) & (table["sampling"] == "greedy")]
    return [_boundary(dtype, rows[rows["dtype"] == dtype]) for dtype in DTYPES if dtype in set(rows["dtype"])]


def _boundary(dtype: str, rows: DataFrame) -> Boundary:
    forced, free = (rows[rows["regime"] == regime] for regime in (FORCED, FREE))
    margins, apart = (joined(forced[name]) for name in ("margin", "largest"))
    margins, apart = margins[np.isfinite(margins)], apart[np.isfinite(apart)]
    steps = [flip_of(*pair) for pair in zip(free["tokens"], free["other_tokens"], strict=True)]
    flips = [
        (step, kl[step], margin[step])
        for step, kl, margin in zip(steps, free["kl"], free["margin"], strict=True)
        if step is not None and step < len(kl) and np.isfinite(kl[step])
    ]
    at, kl, margin = np.array(flips, dtype=np.float64).reshape(-1, 3).T
    early, late, p = _thirds(at, kl)
    return Boundary(
        dtype,
        len(free),
        len(flips),
        float(np.median(margin)) if flips else None,
        float(np.median(margins)) if len(margins) else None,
        float(margins.min()) if len(margins) else None,
        float(apart.max()) if len(apart) else None,
        early,
        late,
        p,
        _correlation(at, kl),
        _correlation(stats.rankdata(at), stats.rankdata(kl)) if flips else None,
        partial_correlation(at, kl, margin),
    )


def _thirds(steps: FloatArray, kl: FloatArray) -> tuple[float | None, float | None, float | None]:
    """Returns the mean KL at early and at late flips, and the p of Welch's test; nothing where they are too few."""
    if len(steps) < THIRDS:
        return None, None, None
    first, last = steps <= np.quantile(steps, 1 / THIRDS), steps >= np.quantile(steps, 1 - 1 / THIRDS)
    if (first & last).any():
        return None, None, None
    known = min(first.sum(), last.sum()) > 1 and kl[first].std() + kl[last].std() > 0
    p = float(stats.ttest_ind(kl[first], kl[last], equal_var=False).pvalue) if known else None
    return float(kl[first].mean()), float(kl[last].mean()), p


def _correlation(one: FloatArray, other: FloatArray) -> float | None:
    if len(one) < THIRDS or not (np.ptp(one) and np.ptp(other)):
        return None
    return float(np.corrcoef(one, other)[0, 1])


def partial_correlation(one: FloatArray, other: FloatArray, given: FloatArray) -> float | None:
    """Correlates what a line through a third variable leaves of each of two; None where nothing is left, or of fewer
    than four values."""
    if len(one) < LEAST or np.ptp(given) == 0:
        return None
    left = [values - np.polyval(np.polyfit(given, values, 1), given) for values in (one, other)]
    if min(rest.std() / (values.std() or 1.0) for rest, values in zip(left, (one, other), strict=True)) < 1e-9:
        return None
    return _correlation(*left)


def susceptibilities_of(records: DataFrame) -> list[Susceptibility]:
    """Returns every amplitude of noise in order, by task; answers that failed are left out."""
    policies = {name: float(match[1]) for name in records["policy"].unique() if (match := NOISE.fullmatch(name))}
    rows = records[records["policy"].isin([*policies]) & records["masked"].notna()]
    found = []
    for (task, policy), group in rows.groupby(["task", "policy"], observed=True):
        changed = 1 - group["masked"].to_numpy(dtype=np.float64)
        found.append(Susceptibility(str(task), policies[str(policy)], estimate_of(changed, _draws(group))))
    return sorted(found, key=lambda one: (one.task, one.amplitude))


def _draws(rows: DataFrame) -> Sequence[str]:
    draws: list[str] = rows["draw_id"].tolist()
    return draws
