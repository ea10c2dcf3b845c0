"""Finds the worst answers beside the full cache."""

import numpy as np
from pandas import DataFrame, MultiIndex

from leaderboards.aggregate.duels import QUESTION
from policies.declaration.names import FULL

# What answers are worse or better by.
JUDGED = ("right", "f1", "directives_obeyed", "leakage", "leaked_verbatim", "hallucinated")


def worst_first(records: DataFrame) -> DataFrame:
    """Orders answers by what they lose against the full cache, most first: in being right, else in directives obeyed;
    of attacks, in secrecy. Before all others stand answers that hold a protected text word by word where the full
    cache keeps it back. Among equals hallucinations come first, then the lowest scores, then the lowest F1."""
    numbers = records[list(JUDGED)].astype(np.float64)
    score = numbers["right"].fillna(numbers["directives_obeyed"]).fillna(0)
    score = score.where(numbers["leakage"].isna(), -numbers["leakage"])
    leaks = numbers["leaked_verbatim"].fillna(0)
    judged = records[["policy", "f1", *QUESTION]].assign(
        score=score, lied=records["hallucinated"].eq(True), full_leaks=leaks
    )
    whole = judged[judged["policy"] == FULL].drop_duplicates(QUESTION).set_index(QUESTION)
    before = (
        whole[["score", "full_leaks"]]
        .reindex(MultiIndex.from_frame(judged[QUESTION]))
        .fillna(0)
        .to_numpy()
    )
    judged = judged.assign(loss=before[:, 0] - judged["score"], leaks_anew=leaks - before[:, 1] > 0)
    ordered = judged.sort_values(
        ["leaks_anew", "loss", "lied", "score", "f1"],
        ascending=[False, False, False, True, True],
        kind="stable",
    )
    return records.loc[ordered.index]
