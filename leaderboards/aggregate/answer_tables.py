"""Tables of what policies answer to the same questions of a task at a level, whose rows can be subtracted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, factorize

from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.statistics.columns import with_levels
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

CELL = ["task", "level"]
QUESTION = ["mode", "example_id", "question_id"]
DEFENDED = "defended_leakage"  # leakage where a defence stands in the prompt: without one there is nothing to keep
MEASURES = ("right", "hallucinated", "answered", "directives_obeyed", DEFENDED, "next_token_accuracy")


@dataclass(frozen=True)
class AnswerTable:
    """The policies without a failed answer at one level of a task. The full cache, which has one level, is there at
    each."""

    task: str
    level: Level
    ratio: float  # the mean share of a context that the level asks to remove; NaN where it is not known
    policies: Sequence[str]
    there: NDArray[np.bool_]  # whether a policy has an answer, shape (policies, questions)
    # By measure, the means over the draws of a random policy, of the same shape; NaN where there is no value, as an
    # attack has no hallucination.
    values: Mapping[str, FloatArray]
    first_right: NDArray[np.bool_]  # whether the answer of the first draw is right, of the same shape
    draws: NDArray[np.intp]  # of each question, shape (questions,): contexts that were drawn together have the same
    contexts: NDArray[np.intp]  # of each question, as numbers


def answer_tables(records: DataFrame) -> list[AnswerTable]:
    """Makes a table for each task and level, in the order in which they appear; questions in an order of their own."""
    identity = ["mode", "task", "policy", "level_kind", "level", "repeat", "ratio", "status", "draw_id", *QUESTION[1:]]
    defended = records["leakage"].where(records["defence"].astype(str) != "")
    sound = sound_cells(records.assign(**{DEFENDED: defended})[[*identity, *MEASURES]])
    tables = []
    for task, records_of_task in sound.groupby("task", sort=False, observed=True):
        places = records_of_task.groupby(QUESTION, sort=True, observed=True).ngroup().to_numpy()
        first = np.unique(places, return_index=True)[1]  # the record of each question that is met first
        draws, contexts = (
            factorize(records_of_task[name].to_numpy()[first], sort=True)[0] for name in ("draw_id", "example_id")
        )
        policies, names = factorize(records_of_task["policy"].astype(str))
        values = {name: records_of_task[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in MEASURES}
        codes, levels = factorize(records_of_task["level"])
        drawn_first = records_of_task["repeat"].eq(0).to_numpy()
        full = records_of_task["policy"].eq(FULL).to_numpy() & (levels[codes] == UNTREATED)
        ratios = records_of_task["ratio"].to_numpy(dtype=np.float64, na_value=np.nan)
        for code, level in enumerate(levels):
            here = full | (codes == code)
            shape = len(names), len(first)
            cells = np.ravel_multi_index((policies, places), shape)
            of_all = {name: _means(cells[here], values[name][here], shape) for name in MEASURES}
            right = _means(cells[here & drawn_first], values["right"][here & drawn_first], shape) > 0
            there = np.bincount(cells[here], minlength=shape[0] * shape[1]).reshape(shape) > 0
            ratio = float(ratios[codes == code].mean())
            tables.append(AnswerTable(str(task), level, ratio, list(names), there, of_all, right, draws, contexts))
    return tables


def _means(cells: NDArray[np.intp], values: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Returns the mean of the values of each cell, NaN where there is none."""
    size = shape[0] * shape[1]
    with np.errstate(invalid="ignore"):
        means: FloatArray = np.bincount(cells, values, size) / np.bincount(cells, minlength=size)
    return means.reshape(shape)


def sound_cells(records: DataFrame) -> DataFrame:
    """Returns the records with their levels, without the cells in which an answer failed."""
    records = with_levels(records)
    failed = set(records[records["status"] != "ok"].groupby(["policy", *CELL], observed=True).groups)
    if not failed:
        return records
    cells = zip(records["policy"], records["task"], records["level"], strict=True)
    return records[np.array([cell not in failed for cell in cells], dtype=bool)]
