"""Failures: the worst answers of policies, and how and where two policies fail differently.

What compares two policies explores: it looks at all tasks and levels that were compared, with intervals that are not
corrected for how many there are. What decides is a :class:`~leaderboards.aggregate.comparison.duel.Duel`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, MultiIndex, Series

from leaderboards.aggregate.answer_tables import CELL, QUESTION, sound_cells
from leaderboards.aggregate.comparison.duel import MeanDifference
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.statistics.bootstrap import DIGITS, FloatArray, percentile_interval, resampled_means
from policies.declaration.names import FULL

Pair = tuple[FloatArray, FloatArray]  # a number of either, question by question
SIDES = ("_one", "_other")
JUDGED = ("right", "f1", "directives_obeyed", "leakage", "hallucinated")  # what answers are worse or better by
HOW = "answer"
FACETS = {"answerable": "answerable", "direction": "direction", "answer_type": "asks for", "question_type": "question"}
FEWEST = 20  # questions, below which a part is not looked at
KINDS = ("right", "abstained", "confused", "fabricated", "empty")


@dataclass(frozen=True)
class Contrast:
    """A rate of one policy beside that of another."""

    policy: str
    other: str
    part: str  # ``answer``, or a property of questions
    value: str  # the kind of answer, or the value of the property
    answers: int
    rate: float  # how often the answer is of this kind, or how often such questions are not answered exactly
    other_rate: float
    difference: MeanDifference

    @property
    def name(self) -> str:
        return f"{self.part}: {self.value}"


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


def contrasts(records: DataFrame, policy: str, other: str, seed: int = 0) -> list[Contrast]:
    """Returns the differences, those of the kinds of answers first, then the parts of the questions, the largest
    difference first."""
    # An attack asks for no answer: its leakage is told elsewhere.
    pairs = _join_pairs(records[records["leakage"].isna()], policy, other)
    if pairs.empty:
        return []
    kinds = [_kinds(pairs, side) for side in SIDES]
    how = [
        _contrast(pairs, (policy, other), (HOW, kind), _shares([one == kind for one in kinds]), seed) for kind in KINDS
    ]
    wrong = _shares([values == 0 for values in _both(pairs, "right")])
    where = [
        _contrast(pairs[mask], (policy, other), part, (wrong[0][mask], wrong[1][mask]), seed)
        for part, mask in _groups_of_questions(pairs)
    ]
    return [*how, *sorted(where, key=lambda contrast: -abs(contrast.difference.mean))]


def _join_pairs(records: DataFrame, policy: str, other: str) -> DataFrame:
    """Joins the questions that both answered, a row each with the columns of both (``_one``, ``_other``), without the
    cells in which either failed somewhere; of a random policy the answers of its first draw."""
    sound = sound_cells(records[records["policy"].isin((policy, other))])
    sound = sound[sound["repeat"] == 0]
    records_of_sides = [sound[sound["policy"] == name] for name in (policy, other)]
    return records_of_sides[0].merge(records_of_sides[1], on=[*CELL, *QUESTION], suffixes=SIDES)


def _both(pairs: DataFrame, column: str) -> Pair:
    """Returns a column of both as floats, NaN where a question has no such value, as an attack has no hallucination."""
    one, other = (pairs[f"{column}{side}"].to_numpy(dtype=np.float64, na_value=np.nan) for side in SIDES)
    return one, other


def _shares(pair: Sequence[Series | NDArray[np.bool_]]) -> Pair:
    """Returns the truth values of both as numbers."""
    one, other = (np.asarray(values, dtype=np.float64) for values in pair)
    return one, other


def _kinds(pairs: DataFrame, side: str) -> Series:
    """Returns the kind of each answer, one of :data:`KINDS`."""
    kinds = pairs[f"hallucination_kind{side}"].fillna(KINDS[-1]).astype(object)
    kinds[pairs[f"abstained{side}"].astype(bool)] = "abstained"
    kinds[_both(pairs, "right")[SIDES.index(side)] > 0] = "right"
    return kinds


def _groups_of_questions(pairs: DataFrame) -> Iterator[tuple[tuple[str, str], NDArray[np.bool_]]]:
    """Yields each value that only some of the questions have in a property, with the mask of those questions."""
    for column, title in FACETS.items():
        outcomes = pairs[f"{column}{SIDES[0]}"].astype(str)
        for value in sorted(set(outcomes)):
            mask = (outcomes == value).to_numpy()
            if FEWEST <= mask.sum() < len(pairs):
                yield (title, {"True": "yes", "False": "no"}.get(value, value)), mask


def _contrast(pairs: DataFrame, names: tuple[str, str], part: tuple[str, str], rates: Pair, seed: int) -> Contrast:
    rate, other = (float(values.mean()) for values in rates)
    # Resampled intervals of few contexts are too narrow: they would contradict the verdicts, whose tests are exact.
    few = pairs["draw_id_one"].nunique() < FEW_CONTEXTS
    between = MeanDifference(rate - other, None, None) if few else _difference(pairs, rates, seed)
    return Contrast(*names, *part, len(pairs), rate, other, between)


def _difference(pairs: DataFrame, rates: Pair, seed: int) -> MeanDifference:
    """Subtracts rates of the same questions; contexts are resampled."""
    values = rates[0] - rates[1]
    resampled = resampled_means(values, pairs["draw_id_one"].to_numpy(dtype=str), seed)
    assert resampled is not None  # of one context
    return MeanDifference(float(values.mean()), *percentile_interval(np.round(resampled, DIGITS)))
