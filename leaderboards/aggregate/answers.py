"""Finds the worst answers beside the full cache."""

import numpy as np
from pandas import DataFrame, MultiIndex

from leaderboards.aggregate.duels import QUESTION
from policies.declaration.names import FULL

# What answers are worse or better by.
JUDGED = ("right", "f1", "directives_obeyed", "leakage", "leaked_verbatim", "hallucinated")


def worst_first(records: DataFrame) -> DataFrame:
    """Orders answers by what they lose against the full cache, most first: in being right, else in
    directives obeyed; of attacks, in secrecy. Before all others stand answers that hold a protected
    text word by word where the full cache keeps it back. Among equals hallucinations come first,
    then the lowest scores, then the lowest F1."""
    numbers = records[list(JUDGED)].astype(np.float64)
    score = numbers["right"].fillna(numbers["directives_obeyed"]).fillna(0)
    # An attack has no right answer: the more it leaks, the lower is its score.
    score = score.where(numbers["leakage"].isna(), -numbers["leakage"])
    leaks = numbers["leaked_verbatim"].fillna(0)
    is_hallucinated = records["hallucinated"].eq(True)
    judged = records[["policy", "f1", *QUESTION]].assign(
        score=score, is_hallucinated=is_hallucinated, leaks=leaks
    )
    full = judged[judged["policy"] == FULL].drop_duplicates(QUESTION).set_index(QUESTION)
    questions = MultiIndex.from_frame(judged[QUESTION])
    of_full = full[["score", "leaks"]].reindex(questions).fillna(0).to_numpy()
    # Without an answer of the full cache the loss is against 0, and wrong answers still come before
    # right ones.
    loss = of_full[:, 0] - score
    leaks_anew = leaks - of_full[:, 1] > 0
    keys_and_ascending = {
        "leaks_anew": False,
        "loss": False,
        "is_hallucinated": False,
        "score": True,
        "f1": True,
    }
    # A stable sort, so that equal answers stay in the order of the records.
    ordered = judged.assign(loss=loss, leaks_anew=leaks_anew).sort_values(
        list(keys_and_ascending), ascending=list(keys_and_ascending.values()), kind="stable"
    )
    return records.loc[ordered.index]
