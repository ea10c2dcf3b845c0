"""Makes the tables of the pages as sheets: every number with its interval, how many answers it is of, and why there is
none.

A sheet's columns are named as the fields that they come from. ``leaderboards/metrics`` and
``leaderboards/pages/definitions.py`` say what each means.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from leaderboards.aggregate.comparison.duel import COMPARED, POINTS, Duel, MeanDifference
from leaderboards.aggregate.comparison.failures import Contrast
from leaderboards.aggregate.comparison.pooled import Pooled
from leaderboards.aggregate.facets import Facet
from leaderboards.aggregate.imported import Imported
from leaderboards.aggregate.row import SummaryRow
from leaderboards.boards.board import Boards, values_of
from leaderboards.boards.registry import DERIVED
from leaderboards.boards.standings import Standings
from leaderboards.downloads.sheets import Sheet
from leaderboards.statistics.bootstrap import Blank


def cells_sheet(rows: Sequence[SummaryRow]) -> Sheet:
    """Returns every measure of every cell, the means over tasks among them."""
    return Sheet.of(
        "cells",
        "Every measure of each task, policy and level",
        [row.model_dump() for row in rows],
        tuple(SummaryRow.model_fields),
    )


def board_sheet(standings: Standings, boards: Boards) -> Sheet:
    """Lists what each policy comes to on each board; the columns that tell of single levels and of costs as the board
    has them, shares as shares."""
    rows = [
        {
            **{"mode": mode, "task": task, "policy": one.policy},
            **{name: value for measure in DERIVED for name, value in measure.download(one[measure]).items()},
            **values_of(boards[mode, task], one.policy),
            "adapted": boards[mode, task].is_adapted(one.policy),
        }
        for (mode, task), of_board in standings.items()
        for one in of_board
    ]
    return Sheet.of("board", "The boards: a row for each policy", rows)


def duels_sheet(
    name: str,
    duels: Iterable[Duel],
    unmastered: Mapping[str, str],
    measures: Iterable[str] = COMPARED,
    title: str = "Verdicts, cell by cell",
) -> Sheet:
    """Returns the cells of comparisons; tasks that the model cannot do have a reason in place of a verdict."""
    rows = [
        {
            "policy": duel.policy,
            "other": duel.other,
            "task": duel.task,
            "level": duel.level,
            "questions": duel.questions,
            "contexts": duel.contexts,
            "unit": POINTS,
            **_contests_of(duel, measures),
            "only_one": duel.only_one,
            "only_other": duel.only_other,
            "p_of_mcnemar": duel.p_of_mcnemar,
            "verdict": None if duel.task in unmastered else duel.verdict,
            "not_mastered": unmastered.get(duel.task),
        }
        for duel in duels
    ]
    return Sheet.of(name, title, rows, kinds={f"{measure}_difference": MeanDifference for measure in measures})


def _contests_of(duel: Duel, measures: Iterable[str]) -> dict[str, Any]:
    """Lists for each measure the difference with the interval of the corrected test, its p and verdict, and the
    smallest difference that could be seen."""
    columns: dict[str, Any] = {}
    for name in measures:
        contest = duel.contests.get(name)
        columns |= {
            f"{name}_difference": contest.points if contest else None,
            f"{name}_p": contest.p if contest else None,
            f"{name}_smallest": contest.smallest() if contest else None,
            f"{name}_verdict": contest.verdict if contest else None,
        }
    return columns


def pooled_sheet(name: str, pooled: Iterable[Pooled]) -> Sheet:
    """Makes the sheet of the pooled differences, with which a comparison begins."""
    rows = [
        {
            "policy": one.policy,
            "other": one.other,
            "measure": one.measure.title,
            "tasks": one.tasks,
            "cells": one.cells,
            "contexts": one.contexts,
            "unit": POINTS,
            "difference": one.points,
            "p": one.p,
            "smallest": one.smallest,
            "verdict": one.verdict,
        }
        for one in pooled
    ]
    return Sheet.of(name, "Pooled differences", rows)


def questions_sheet(facets: Sequence[Facet]) -> Sheet:
    """Lists every measure by kind of question."""
    rows = [
        {
            "mode": facet.mode,
            "task": facet.task,
            "part": facet.part,
            "value": facet.value,
            "questions": facet.n,
            "policy": policy,
            "level": level,
            **_first_reason({name: by_measure[policy, level] for name, by_measure in facet.values.items()}),
        }
        for facet in facets
        for policy, level in next(iter(facet.values.values()))
    ]
    return Sheet.of("questions", "Kinds of questions, of each task, policy and level", rows)


def _first_reason(values: Mapping[str, float | Blank]) -> dict[str, Any]:
    """Returns the values with None for what is blank, and why the first of them is."""
    reasons = (value.reason for value in values.values() if isinstance(value, Blank))
    shown = {name: None if isinstance(value, Blank) else value for name, value in values.items()}
    return {**shown, "reason": next(reasons, None)}


def contrasts_sheet(name: str, contrasts: Sequence[Contrast]) -> Sheet:
    """Makes the sheet that tells how and where two policies fail differently."""
    rows = [
        {
            "policy": one.policy,
            "other": one.other,
            "part": one.part,
            "value": one.value,
            "answers": one.answers,
            "rate": one.rate,
            "other_rate": one.other_rate,
            "rate_difference": one.difference,
        }
        for one in contrasts
    ]
    return Sheet.of(name, "How they fail differently", rows)


def imported_sheet(rows: Sequence[Imported]) -> Sheet:
    """Makes the sheet of results of kvpress's own evaluation, the scores as it named them."""
    records = [{**asdict(row), "scores": dict(row.scores), "source": "imported from kvpress"} for row in rows]
    return Sheet.of("imported", "Imported from kvpress", records)
