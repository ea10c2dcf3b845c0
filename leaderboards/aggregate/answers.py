"""Tells in which ways two policies answer, and finds the worst answers beside the full cache."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame, MultiIndex, Series

from leaderboards.aggregate.duels import CELL, QUESTION, sound_cells
from policies.declaration.names import FULL

SIDES = ("_one", "_other")
JUDGED = ("right", "f1", "directives_obeyed", "leakage", "hallucinated")  # what answers are worse or better by
KINDS = ("right", "abstained", "confused", "fabricated", "empty")


@dataclass(frozen=True)
class AnswerKind:
    """How often two policies give answers of one kind."""

    policy: str
    other: str
    kind: str
    answers: int  # to questions that both answered
    rate: float
    other_rate: float


def worst_first(records: DataFrame) -> DataFrame:
    """Orders answers by what they lose against the full cache, most first.

    That is whether they are right; directives obeyed, where there is no gold; and of attacks, what is kept secret.
    Among equals hallucinations come first, then the lowest scores, then the lowest F1.

    ``records`` hold the full cache too, with the columns of :data:`JUDGED`.
    """
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


def answer_kinds(records: DataFrame, policy: str, others: Sequence[str]) -> list[AnswerKind]:
    """Counts the kinds of answers of a policy and of each of the others, over all tasks and levels that both have
    without a failed answer. Of a random policy its first draw counts; attacks, which ask for no answer, do not."""
    kinds = []
    for other in others:
        sound = sound_cells(records[records["policy"].isin((policy, other)) & records["leakage"].isna()])
        sound = sound[sound["repeat"] == 0]
        one, two = (sound[sound["policy"] == name] for name in (policy, other))
        pairs = one.merge(two, on=[*CELL, *QUESTION], suffixes=SIDES)
        if not pairs.empty:
            answers = [_kinds(pairs, side) for side in SIDES]
            rates = [[float((of_side == kind).mean()) for of_side in answers] for kind in KINDS]
            kinds += [AnswerKind(policy, other, kind, len(pairs), *of) for kind, of in zip(KINDS, rates, strict=True)]
    return kinds


def _kinds(pairs: DataFrame, side: str) -> Series:
    """Returns the kind of each answer, one of :data:`KINDS`."""
    kinds = pairs[f"hallucination_kind{side}"].fillna(KINDS[-1]).astype(object)
    kinds[pairs[f"abstained{side}"].astype(bool)] = "abstained"
    kinds[pairs[f"right{side}"].to_numpy(dtype=np.float64, na_value=np.nan) > 0] = "right"
    return kinds
