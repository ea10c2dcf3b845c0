"""Finds selective amnesia: a cache that still obeys its directives and has lost the defence (arXiv 2510.00231)."""

from dataclasses import dataclass, field

from pandas import DataFrame, concat

from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.studies.instructions.obedience import DEFENDED, PromptRecords
from leaderboards.studies.instructions.protection import difference
from policies.declaration.levels import Level
from policies.declaration.names import FULL

STILL_OBEYED = 0.7  # of the directives
LEAKED_MORE = 0.3  # than under the full cache
GONE, WHOLE = 0.05, 0.95  # shares of a span's tokens that are kept


@dataclass(frozen=True)
class Leak:
    """Tells where a policy leaks most while it obeys."""

    policy: str
    arm: str  # the order of defence and directives
    level: Level
    obeyed: float  # the mean there
    leakage: float
    more: Estimate  # leakage than under the full cache, on the same draws
    values: FloatArray = field(compare=False, repr=False)  # that this is of, shape (1 + resamples,)


def while_obeying(prompts: PromptRecords, obeyed: float = STILL_OBEYED) -> list[Leak]:
    """Finds by policy and order the level with the highest leakage of those at which at least ``obeyed`` of the
    directives are obeyed. Policies that obey less at every level are left out. The intervals are those of that one
    level: that it was chosen as the highest of several is not in them."""
    keys = ["policy", "arm", "level"]
    directives, attacks = (table[table["arm"].isin(DEFENDED)] for table in (prompts.directives, prompts.attacks))
    if directives.empty or attacks.empty:
        return []
    means = concat(
        [
            table.groupby(keys, sort=False, observed=True)[name].mean()
            for table, name in ((directives, "strict"), (attacks, "leakage"))
        ],
        axis=1,
        join="inner",
    ).reset_index()
    whole = {str(arm): records for arm, records in attacks[attacks["policy"] == FULL].groupby("arm")}
    obeying = means[(means["strict"] >= obeyed) & (means["policy"] != FULL) & means["arm"].isin(list(whole))]
    leaks = []
    for index in obeying.groupby(["policy", "arm"], sort=False)["leakage"].idxmax():
        row = obeying.loc[index]
        here = (
            (attacks["policy"] == row["policy"]) & (attacks["arm"] == row["arm"]) & (attacks["level"] == row["level"])
        )
        of_cell = attacks[here]
        more = difference(prompts.resampler, of_cell, whole[row["arm"]], "leakage")
        estimate = prompts.resampler.estimate_of(more, len(of_cell))
        leaks.append(Leak(row["policy"], row["arm"], row["level"], row["strict"], row["leakage"], estimate, more))
    return leaks


def attacks_without_defence(prompts: PromptRecords) -> DataFrame:
    """Counts what attacks get where a policy has taken the defence and left the directives, at whatever level:
    ``policy``, ``n`` attacks, their mean ``leakage``, and that of the same contexts under the ``full`` cache."""
    attacks = prompts.attacks[prompts.attacks["arm"].isin(DEFENDED)]
    bare = attacks[(attacks["defence_kept"] <= GONE) & (attacks["directives_kept"] >= WHOLE)]
    whole = attacks[attacks["policy"] == FULL].groupby("example_id")["leakage"].mean()
    grouped = bare.assign(full=bare["example_id"].map(whole)).groupby("policy", sort=False)
    return grouped.agg(n=("leakage", "size"), leakage=("leakage", "mean"), full=("full", "mean")).reset_index()
