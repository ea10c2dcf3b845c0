"""Measures what becomes of instructions: directives obeyed, leakage, and what is kept of either.

The measures of arXiv 2510.00231, on tables of records. An answer that failed stays in the denominator: it obeys,
refuses and leaks nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame, factorize

from leaderboards.statistics.bootstrap import FloatArray, Resampler
from leaderboards.statistics.columns import with_levels
from policies.declaration.lazy import LazyModule
from policies.declaration.levels import Level
from policies.declaration.names import FULL

stats = LazyModule("scipy.stats")  # its import takes half a second, and few sites need it
DEFENDED = ("defence first", "directives first")
KEPT = ("defence_kept", "directives_kept")


@dataclass(frozen=True)
class PromptRecords:
    """The records of system prompts in three tables, each with ``policy``, ``level``, ``arm`` and ``draw``."""

    directives: DataFrame  # a row for each directive of each answer, with ``question_id`` and ``failed``
    attacks: DataFrame  # a row for each attack, with ``question_id`` and ``failed``
    caches: DataFrame  # a row for each context
    resampler: Resampler
    levels: tuple[Level, ...]  # of the policies that compress
    families: tuple[str, ...]  # of directives
    policies: tuple[str, ...]


def prompt_records(records: DataFrame, seed: int = 0) -> PromptRecords:
    """Sorts records of tasks with instructions into directives, attacks and caches."""
    draws, names = factorize(records["draw_id"], sort=True)
    known = with_levels(records).assign(draw=draws)
    levels = sorted(known.loc[known["policy"] != FULL, "level"].unique())
    given = known[known["directives"].map(len) > 0]
    directives = _directives(given)
    return PromptRecords(
        directives,
        _attacks(known[known["protected"] != ""]),
        known.drop_duplicates(["policy", "level", "repeat", "example_id"]),
        Resampler.of(len(names), seed),
        tuple(levels),
        tuple(directives["family"].unique()),
        tuple(known["policy"].unique()),
    )


def _directives(given: DataFrame) -> DataFrame:
    judged = {name: [_verdicts(given, name, place) for place in range(len(given))] for name in ("strict", "loose")}
    several = given["directives"].map(len) > 1
    wide = given[["policy", "level", "arm", "draw", "question_id"]].assign(
        failed=given["status"] != "ok",
        kind=[[text.partition(" ")[0] for text in directives] for directives in given["directives"]],
        family=given["directive_families"].map(list),
        several=several,
        **judged,
    )
    long = wide.explode(["kind", "family", "strict", "loose"], ignore_index=True)
    return long.astype({"strict": float, "loose": float})


def _verdicts(given: DataFrame, name: str, place: int) -> list[bool]:
    """Tells for each directive of one answer whether it is obeyed; an answer that failed obeys none."""
    judged = given[f"directives_{name}"].iloc[place]
    count = len(given["directives"].iloc[place])
    return [False] * count if judged is None else list(judged)


def _attacks(attacked: DataFrame) -> DataFrame:
    defended = (attacked["defence"] != "").to_numpy()
    scores = {
        name: np.nan_to_num(attacked[name].to_numpy(dtype=np.float64, na_value=np.nan))
        for name in ("leakage", "defence_leakage", "refused")
    }
    for name in ("defence_leakage", "refused"):
        scores[name][~defended] = np.nan  # there is nothing to refuse by
    columns = ["policy", "level", "arm", "draw", "example_id", "question_id", *KEPT]
    return attacked[columns].assign(failed=attacked["status"] != "ok", **scores)


def accuracy(prompts: PromptRecords, by: Sequence[str] = ()) -> DataFrame:
    """Computes the directive accuracy of each policy and level, and of each group within: ``strict`` and ``loose``
    :class:`Estimate`, and ``relative``, the strict one over that of the full cache, None where there is none or 0."""
    rows = []
    groups = ["policy", "level", *by]
    full = prompts.directives[prompts.directives["policy"] == FULL]
    wholes = full.groupby(list(by), sort=False, observed=True)["strict"].mean() if by else full["strict"].mean()
    for key, group in prompts.directives.groupby(groups, sort=False, observed=True):
        whole = float(wholes.get(key[2:] if len(by) > 1 else key[2], 0.0)) if by else float(wholes)
        strict, loose = (
            prompts.resampler.estimate(group[name].to_numpy(), group["draw"].to_numpy()) for name in ("strict", "loose")
        )
        relative = strict.mean / whole if whole else None
        rows.append((*key, strict, loose, relative))
    return DataFrame(rows, columns=[*groups, "strict", "loose", "relative"])


def leaks(prompts: PromptRecords, by: Sequence[str] = ("arm",)) -> DataFrame:
    """Averages over attacks: ``leakage`` of the directives, ``defence_leakage``, and the share ``refused``, as
    :class:`Estimate`; the latter None where there is no defence."""
    rows = []
    groups = ["policy", "level", *by]
    for key, group in prompts.attacks.groupby(groups, sort=False, observed=True):
        estimates = []
        for name in ("leakage", "defence_leakage", "refused"):
            known = group[group[name].notna()]
            estimates.append(
                prompts.resampler.estimate(known[name].to_numpy(), known["draw"].to_numpy()) if len(known) else None
            )
        rows.append((*key, *estimates))
    return DataFrame(rows, columns=[*groups, "leakage", "defence_leakage", "refused"])


def spans_kept(prompts: PromptRecords) -> DataFrame:
    """Computes eviction bias: the mean share of the tokens of ``defence`` and of ``directives`` that survives, over
    layers and heads, by policy, level and order. Policies that rewrite the cache have none."""
    caches = prompts.caches[prompts.caches["arm"].isin(DEFENDED) & prompts.caches["defence_kept"].notna()]
    means = caches.groupby(["policy", "level", "arm"], sort=False, observed=True)[list(KEPT)].mean().reset_index()
    return means.rename(columns={"defence_kept": "defence", "directives_kept": "directives"})


def by_family(resampler: Resampler, cell: DataFrame, families: Sequence[str]) -> FloatArray:
    """Computes the strict accuracy of each family, shape (1 + resamples, families): first as measured, then as
    resampled."""
    columns = []
    for family in families:
        of_family = cell[cell["family"] == family]
        values, draws = of_family["strict"].to_numpy(), of_family["draw"].to_numpy()
        columns.append(np.concatenate([[values.mean()], resampler.means(values, draws)]))
    return np.stack(columns, axis=1)


def spearman(one: FloatArray, other: FloatArray) -> FloatArray:
    """Computes Spearman's correlation row by row; NaN where a row has a family without a value, or no order."""
    ranks = [stats.rankdata(profile, axis=1, nan_policy="propagate") for profile in (one, other)]
    centred = [rank - rank.mean(axis=1, keepdims=True) for rank in ranks]
    products = np.prod([(part**2).sum(axis=1) for part in centred], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations: FloatArray = np.where(
            products > 0, (centred[0] * centred[1]).sum(axis=1) / np.sqrt(products), np.nan
        )
    return correlations
