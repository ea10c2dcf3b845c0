"""Shows which families of directives go first, and how much of their order under the full cache is
left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.rendering.style import named_styles, policy_styles
from leaderboards.statistics.bootstrap import DIGITS, Estimate, FloatArray
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.instructions.prompts import (
    PromptRecords,
    accuracy,
    estimates_by_cell,
    forms_by_policy,
    percent_table,
    plain_policies,
)
from leaderboards.studies.parts import NONE, in_numbers, level_table, over_levels
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

FEWEST_FAMILIES = 4  # of three, chance alone has one order in six
TOO_FEW = f"fewer than {FEWEST_FAMILIES} families"
ALIKE = "all families are obeyed alike, which is no order"
# By the word of the download, the prompts of a correlation and the title of its picture.
PROMPTS_OF: Mapping[str, str] = {
    "any": "All prompts",
    "one": "Prompts with one directive",
    "several": "Prompts with several directives",
}


@dataclass(frozen=True)
class RankCorrelation:
    """Says how much of the order of the families under the full cache is left."""

    policy: str
    level: Level
    directives: str  # of the prompts: any number, one or several
    families: int
    correlation: Estimate | None  # Spearman's; contexts are resampled
    reason: str  # why there is none


def rank_correlations(prompts: PromptRecords) -> list[RankCorrelation]:
    """Correlates the shares of directives obeyed by family with those of the full cache, by policy
    and level."""
    cell = ["policy", "level"]
    correlations = []
    for number, table in _by_number(prompts.directives).items():
        families = sorted(set(table["family"]))
        whole = family_means(prompts, table[table["policy"] == FULL], families)
        treated = table[table["policy"] != FULL]
        for (policy, level), of_level in treated.groupby(cell, sort=False, observed=True):
            shares = family_means(prompts, of_level, families)
            in_both = ~np.isnan(shares[:, 0]) & ~np.isnan(whole[:, 0])
            count = int(in_both.sum())
            values = rank_correlation(shares, whole)
            estimate, reason = None, ""
            if count < FEWEST_FAMILIES:
                reason = TOO_FEW
            elif np.isnan(values[0]):
                reason = ALIKE
            else:
                estimate = prompts.resampler.make_estimate(values, count)
            result = RankCorrelation(str(policy), level, number, count, estimate, reason)
            correlations.append(result)
    return correlations


def _by_number(directives: DataFrame) -> dict[str, DataFrame]:
    numbers = directives["number"]
    tables = {
        "any": directives,
        "one": directives[numbers == 1],
        "several": directives[numbers > 1],
    }
    return {name: table for name, table in tables.items() if len(table)}


def family_means(prompts: PromptRecords, rows: DataFrame, families: Sequence[str]) -> FloatArray:
    """Averages what is obeyed of each family, as measured and in each resample of contexts: shape
    (families, 1 + resamples), NaN where none of its directives is drawn."""
    numbers = {name: number for number, name in enumerate(families)}
    places = rows["family"].map(numbers).to_numpy(dtype=np.intp)
    draws = rows["draw"].to_numpy(dtype=np.intp)
    sums = np.zeros((2, len(families), prompts.resampler.count))
    # Not ``+=``, which adds once where a family and draw come several times.
    np.add.at(sums[0], (places, draws), rows["strict"].to_numpy(dtype=np.float64))
    np.add.at(sums[1], (places, draws), 1.0)
    obeyed, judged = sums @ prompts.resampler.weights.T
    with np.errstate(invalid="ignore"):
        means: FloatArray = np.round(obeyed / judged, DIGITS)  # shares that are equal are ties
    return means


def rank_correlation(first: FloatArray, second: FloatArray) -> FloatArray:
    """Computes Spearman's correlation of two tables of shape (families, samples) by sample, with
    midranks for ties. What is NaN in either leaves the sample; NaN where all that is left is alike
    in one of them."""
    in_both = ~(np.isnan(first) | np.isnan(second))
    ranks = _centred_ranks(np.where(in_both, first, np.nan))
    other_ranks = _centred_ranks(np.where(in_both, second, np.nan))
    products = (ranks * other_ranks).sum(axis=0)
    with np.errstate(invalid="ignore"):
        spread = np.sqrt((ranks**2).sum(axis=0) * (other_ranks**2).sum(axis=0))
        correlation: FloatArray = products / spread
    return correlation


def _centred_ranks(values: FloatArray) -> FloatArray:
    """Counts for each value how many others are lower, less how many are higher: twice its midrank
    less the mean. Shape (families, samples), as that of the values."""
    # A family that is missing from a sample is NaN beside every other, and counts for none of them.
    signs = np.sign(values[:, None] - values[None])
    ranks: FloatArray = np.nansum(signs, axis=1)
    return ranks


def families_section(prompts: PromptRecords) -> StudySection:
    """Draws what is obeyed of each family of directives under each plain policy."""
    table = accuracy(prompts, by=("family",))
    styles = named_styles(prompts.families)
    of_families = {}
    for family, rows in table.groupby("family", sort=False):
        of_families[str(family)] = estimates_by_cell(rows, "strict")
    pictures: list[Picture] = []
    for base in forms_by_policy(prompts.policies):
        cells = {}
        for family, by_cell in of_families.items():
            for (policy, level), estimate in by_cell.items():
                # A line starts at the policy's own untreated cache, or else at the full cache.
                starts = policy == FULL and (base, UNTREATED) not in by_cell
                if policy == base or starts:
                    cells[family, level] = estimate
        pictures += over_levels(cells, styles, base, "share of a family obeyed", f"family/{base}")
    tables = []
    for family, by_cell in of_families.items():
        tables.append(percent_table(f"Family {family}: obeyed, strict, percent", by_cell))
    return StudySection(
        "families",
        "Which directives go first",
        "The directives of all contexts by family; bands are 95 % intervals.",
        tuple(styles.values()),
        tuple(pictures),
        details=tuple(tables),
    )


def ranks_section(correlations: Sequence[RankCorrelation]) -> StudySection:
    """Draws the rank correlations of plain policies, and lists those of all."""
    policies = [result.policy for result in correlations]
    styles = policy_styles(plain_policies(policies) or policies)
    pictures: list[Picture] = []
    tables = []
    for number, title in PROMPTS_OF.items():
        cells: dict[tuple[str, Level], Estimate] = {}
        texts = {}
        families = 0
        for result in correlations:
            if result.directives != number:
                continue
            cell = (result.policy, result.level)
            families = max(families, result.families)
            texts[cell] = NONE if result.reason else in_numbers(result.correlation)
            if result.correlation is not None:
                cells[cell] = result.correlation
        if cells:
            whole = {(FULL, UNTREATED): Estimate(1.0, 1.0, 1.0, families)}  # with itself
            note = "Spearman’s correlation"
            pictures += over_levels(whole | cells, styles, title, note, f"ranks/{number}")
        tables.append(level_table(f"{title}: Spearman’s correlation", texts))
    text = (
        "Spearman’s rank correlation of the shares obeyed, family by family, with those of the "
        "full cache: 1 where the families stand in its order. Text P reports that it falls, and "
        "faster where several directives are asked. A dash stands where there are "
        f"{TOO_FEW}, or {ALIKE}."
    )
    return StudySection(
        "ranks",
        "Is the order of the families kept?",
        text,
        tuple(styles.values()) if pictures else (),
        tuple(pictures),
        listings=tuple(tables[:1]),  # also where it says of each that there is none
        details=tuple(tables[1:]),
    )
