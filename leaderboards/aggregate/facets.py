"""Splits the rows of a board by a property of the questions: what they ask for, and how they ask."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.aggregate.row import ALL_TASKS, GER, HALLUCINATION, RIGHT, SummaryRow
from leaderboards.metrics import Measure
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.columns import with_levels
from policies.declaration.levels import Level

# The column of the records, and what the page calls it.
PROPERTIES = {"answer_type": "what is asked for", "question_type": "type of question"}
SHOWN = {measure.field: measure for measure in (RIGHT, HALLUCINATION, GER)}
MEASURED = {field: measure.reads[0] for field, measure in SHOWN.items()}  # the column of the records
NO_SUCH = "no question of this kind has such a value"
NOT_RUN = "not run"
NOT_MEASURED = "not measured"

Cell = tuple[str, Level]
Values = Mapping[Cell, float | Blank]


@dataclass(frozen=True)
class Facet:
    """The questions of a task, or of all, that share a value of a property."""

    mode: str
    task: str
    part: str  # the property
    value: str
    n: int  # questions in each cell
    values: Mapping[str, Values]  # by field of a row and cell, in the unit of the row


def facets(records: DataFrame, rows: Sequence[SummaryRow]) -> list[Facet]:
    """Computes the facets of every task, and as ``all`` the unweighted mean over the tasks that have such questions,
    without those that the rows of ``all`` leave out.

    ``rows`` are those that the records add up to: what is blank in a row is blank in all of its parts, for the same
    reason, and everything else is measured in every question.
    """
    needed = ["mode", "task", "policy", "level_kind", "level", "repeat", "leakage", *PROPERTIES, *MEASURED.values()]
    sound = records.loc[records["status"] == "ok", needed]
    # An attack asks for nothing of the text: it has no hallucination, as in the rows.
    known = with_levels(sound).assign(
        hallucinated=sound["hallucinated"].astype(np.float64).where(sound["leakage"].isna()),
        right=sound["right"].astype(np.float64),
        ger=sound["ger"].astype(np.float64),
        is_first=sound["repeat"].eq(0),  # draw of a random policy: a question is counted once
    )
    by_board: dict[tuple[str, str], list[SummaryRow]] = {}
    for row in rows:
        by_board.setdefault((row.mode, row.task), []).append(row)
    by_part = [facet for part in PROPERTIES for facet in _by_part(known, by_board, part)]
    return [*by_part, *_over_tasks(by_part, by_board)]


def _by_part(known: DataFrame, boards: Mapping[tuple[str, str], Sequence[SummaryRow]], part: str) -> list[Facet]:
    groups = known.groupby(["mode", "task", part, "policy", "level"], sort=False, observed=True)
    table = groups[list(MEASURED.values())].mean().assign(n=groups["is_first"].sum())
    measured: dict[tuple[str, str, str], dict[Cell, tuple[float, ...]]] = {}
    for (mode, task, value, policy, level), *numbers in table.itertuples():
        measured.setdefault((mode, task, str(value)), {})[str(policy), level] = tuple(numbers)
    return [
        Facet(
            mode,
            task,
            part,
            value,
            max(int(numbers[-1]) for numbers in cells.values()),
            {
                name: {
                    (row.policy, row.at): _value(row, cells.get((row.policy, row.at)), number, measure)
                    for row in boards.get((mode, task), ())
                }
                for number, (name, measure) in enumerate(SHOWN.items())
            },
        )
        for (mode, task, value), cells in sorted(measured.items())
    ]


def _value(row: SummaryRow, numbers: Sequence[float] | None, number: int, measure: Measure) -> float | Blank:
    if measure.value(row) is None:
        return Blank(row.reason or NOT_MEASURED)
    return Blank(NO_SUCH) if numbers is None or math.isnan(numbers[number]) else float(numbers[number])


def _over_tasks(by_part: Sequence[Facet], boards: Mapping[tuple[str, str], Sequence[SummaryRow]]) -> list[Facet]:
    counted = {mode: rows[0].mean_of for (mode, task), rows in boards.items() if task == ALL_TASKS}
    alike: dict[tuple[str, str, str], list[Facet]] = {}
    for facet in (facet for facet in by_part if facet.task in counted.get(facet.mode, (facet.task,))):
        alike.setdefault((facet.mode, facet.part, facet.value), []).append(facet)
    return [
        Facet(
            mode,
            ALL_TASKS,
            part,
            value,
            sum(facet.n for facet in group),
            {
                name: {
                    (row.policy, row.at): mean_of([_of(facet, name, row) for facet in group])
                    for row in boards.get((mode, ALL_TASKS), ())
                }
                for name in MEASURED
            },
        )
        for (mode, part, value), group in alike.items()
    ]


def _of(facet: Facet, name: str, row: SummaryRow) -> float | Blank:
    value = facet.values[name].get((row.policy, row.at), Blank(NOT_RUN))
    return Blank(f"{facet.task}: {value.reason}") if isinstance(value, Blank) and value.reason != NO_SUCH else value


def mean_of(values: Sequence[float | Blank]) -> float | Blank:
    """Returns the unweighted mean of those that have such a value at all; blank if any of the others is."""
    blanks = [value for value in values if isinstance(value, Blank) and value.reason != NO_SUCH]
    if blanks:
        return blanks[0]
    numbers = [value for value in values if not isinstance(value, Blank)]
    return sum(numbers) / len(numbers) if numbers else Blank(NO_SUCH)
