"""What policies answer to the same questions of a task at a level, as tables whose rows can be subtracted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, factorize

from leaderboards.asked import Asked, asked_in
from leaderboards.bootstrap import FloatArray
from leaderboards.row import FULL

CELL = ["task", "asked"]
QUESTION = ["mode", "example_id", "question_id"]
UNCOMPRESSED = Asked.of(0.0)
MEASURES = ("f1", "em", "hallucinated")


@dataclass(frozen=True)
class Sheet:
    """Those that have no failed answer there. The full cache, which has one level, is there at each.

    there
        Whether a policy has an answer, shape (policies, questions).
    f1, em, hallucinated
        Of the same shape, NaN where there is no value, as an attack has no hallucination.
    draws, contexts
        Of each question, as numbers, shape (questions,); contexts that were drawn together have the same draw.
    """

    task: str
    asked: Asked
    policies: Sequence[str]
    there: NDArray[np.bool_]
    f1: FloatArray
    em: FloatArray
    hallucinated: FloatArray
    draws: NDArray[np.intp]
    contexts: NDArray[np.intp]


def sheets_of(records: DataFrame) -> list[Sheet]:
    """For each task and level, in the order in which they appear; questions in an order of their own."""
    needed = ["mode", "task", "policy", "ratio", "budget", "status", "draw_id", *QUESTION[1:], *MEASURES]
    sound = sound_cells(records[needed])
    found = []
    for task, own in sound.groupby("task", sort=False, observed=True):
        places = own.groupby(QUESTION, sort=True, observed=True).ngroup().to_numpy()
        first = np.unique(places, return_index=True)[1]  # the record of each question that is met first
        draws, contexts = (factorize(own[name].to_numpy()[first], sort=True)[0] for name in ("draw_id", "example_id"))
        policies, names = factorize(own["policy"].astype(str))
        values = {name: own[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in MEASURES}
        codes, levels = factorize(own["asked"])
        full = own["policy"].eq(FULL).to_numpy() & (levels[codes] == UNCOMPRESSED)
        for level, asked in enumerate(levels):
            here = full | (codes == level)
            shape = len(names), len(first)
            there = np.zeros(shape, bool)
            there[policies[here], places[here]] = True
            tables = {name: np.full(shape, np.nan) for name in MEASURES}
            for name, table in tables.items():
                table[policies[here], places[here]] = values[name][here]
            found.append(Sheet(str(task), asked, list(names), there, **tables, draws=draws, contexts=contexts))
    return found


def sound_cells(records: DataFrame) -> DataFrame:
    """With what was asked, and without the cells in which an answer failed."""
    records = records.assign(asked=asked_in(records))
    failed = set(records[records["status"] != "ok"].groupby(["policy", *CELL], observed=True).groups)
    if not failed:
        return records
    cells = zip(records["policy"], records["task"], records["asked"], strict=True)
    return records[np.array([cell not in failed for cell in cells], dtype=bool)]
