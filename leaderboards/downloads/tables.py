"""Makes the tables of the pages as sheets: every number with its interval, how many answers it is of, and why there is
none.

A sheet's columns are named as the fields that they come from. ``leaderboards/metrics`` and
``leaderboards/pages/definitions.py`` say what each means.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from leaderboards.aggregate.comparison.duel import COMPARED, POINTS, Contest, Duel, MeanDifference
from leaderboards.aggregate.comparison.paired import AnswerKind
from leaderboards.aggregate.comparison.pooled import Pooled
from leaderboards.aggregate.row import SummaryRow
from leaderboards.boards.board import Boards, values_of
from leaderboards.boards.standings import DERIVED, Standings
from leaderboards.claims.verdict import Judgement
from leaderboards.downloads.sheets import Sheet


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


def duels_sheet(name: str, duels: Iterable[Duel], unmastered: Mapping[str, str]) -> Sheet:
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
            **_contests_of({} if duel.task in unmastered else duel.contests),
            "only_one": duel.only_one,
            "only_other": duel.only_other,
            "p_of_mcnemar": duel.p_of_mcnemar,
            "verdict": None if duel.task in unmastered else duel.verdict,
            "not_mastered": unmastered.get(duel.task),
        }
        for duel in duels
    ]
    return Sheet.of(
        name, "Verdicts, cell by cell", rows, kinds={f"{one}_difference": MeanDifference for one in COMPARED}
    )


def _contests_of(contests: Mapping[str, Contest]) -> dict[str, Any]:
    """Lists for each measure the difference with the interval of the corrected test, its p and verdict, and the
    smallest difference that could be seen."""
    columns: dict[str, Any] = {}
    for name in COMPARED:
        contest = contests.get(name)
        columns |= {
            f"{name}_value": contest.sides[0] if contest else None,
            f"{name}_other_value": contest.sides[1] if contest else None,
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
            "value": one.sides[0],
            "other_value": one.sides[1],
            "difference": one.points,
            "p": one.p,
            "smallest": one.smallest,
            "verdict": one.verdict,
        }
        for one in pooled
    ]
    return Sheet.of(name, "Pooled differences", rows)


def kinds_sheet(name: str, kinds: Sequence[AnswerKind]) -> Sheet:
    """Makes the sheet that tells how two policies answer."""
    return Sheet.of(name, "How they answer", [asdict(one) for one in kinds], [one.name for one in fields(AnswerKind)])


def register_rows(judgements: Sequence[Judgement]) -> list[dict[str, Any]]:
    """Returns a row for each statistic of each claim."""
    return [
        {
            "claim": one.claim.identifier,
            "text": one.claim.text.title,
            "words": one.claim.words,
            "reported": one.claim.reported,
            "statistic": one.claim.statistic,
            "claim_part": one.part,
            "side": one.claim.side,
            "threshold": one.claim.threshold,
            "measured": None if one.estimate is None else one.estimate.mean,
            "measured_low": None if one.estimate is None else one.estimate.low,
            "measured_high": None if one.estimate is None else one.estimate.high,
            "measured_n": None if one.estimate is None else one.estimate.n,
            "claim_p": one.p,
            "claim_verdict": one.verdict,
            "why": one.why,
            "remark": one.claim.remark,
            "because": one.claim.because if one.verdict == "does not hold" else "",
        }
        for one in judgements
    ]


def register_sheet(judgements: Sequence[Judgement]) -> Sheet:
    return Sheet.of("claims", "Every statistic of every claim, with its verdict", register_rows(judgements))
