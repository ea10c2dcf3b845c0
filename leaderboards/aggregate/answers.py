"""Finds the worst answers beside the full cache."""

import numpy as np
from pandas import DataFrame, MultiIndex

from leaderboards.aggregate.duels import QUESTION
from policies.declaration.names import FULL

JUDGED = ("right", "f1", "directives_obeyed", "leakage", "hallucinated")  # what answers are worse or better by


def worst_first(records: DataFrame) -> DataFrame:
    """Orders answers by what they lose against the full cache, most first: in being right, else in directives obeyed;
    of attacks, in secrecy. Among equals hallucinations come first, then the lowest scores, then the lowest F1."""
    numbers = records[list(JUDGED)].astype(np.float64)
    score = numbers["right"].fillna(numbers["directives_obeyed"]).fillna(0)
    score = score.where(numbers["leakage"].isna(), -numbers["leakage"])
    judged = records[["policy", "f1", *QUESTION]].assign(score=score, lied=records["hallucinated"].eq(True))
    whole = judged[judged["policy"] == FULL].drop_duplicates(QUESTION).set_index(QUESTION)["score"]
    before = whole.reindex(MultiIndex.from_frame(judged[QUESTION])).fillna(0).to_numpy()
    ordered = judged.assign(loss=before - judged["score"]).sort_values(
        ["loss", "lied", "score", "f1"], ascending=[False, False, True, True], kind="stable"
    )
    return records.loc[ordered.index]
