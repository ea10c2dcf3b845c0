"""The boards of a front page: which there are, what leads each, and their data for the page's script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboards.aggregate.lead import QUESTIONS, Lead, lead_of
from leaderboards.aggregate.row import ALL_TASKS
from leaderboards.aggregate.unmastered import reasons_by_task
from leaderboards.boards.beats import BEATS
from leaderboards.boards.board import Board, BoardColumn
from leaderboards.boards.cells import TableCell
from leaderboards.boards.rank import RANK
from leaderboards.boards.safe_ratio import SAFE_RATIO, SafeRatio
from leaderboards.downloads.encounters import encounters
from leaderboards.pages.results import Results, labels_of
from leaderboards.pages.sections import largest_of, note_of, title_of
from leaderboards.statistics.bootstrap import Blank
from policies.declaration.levels import kind_name, names_of
from policies.declaration.names import FULL


@dataclass(frozen=True)
class PlacedBoard:
    """A board on the front page."""

    identifier: str
    title: str
    note: str
    board: Board
    page: str  # the address of the page of its task, or nothing
    task: str
    number: int  # of its results among all of them, from 0 on
    leads: str  # what its policies are ranked by, whose area is taken
    few: bool  # whether the contexts are too few for verdicts to be trusted, whose cells are hatched then
    results: Results


def place_boards(results: Sequence[Results], pages: Mapping[str, str]) -> list[PlacedBoard]:
    shown = [
        (place, one, label, task)
        for place, (one, label) in enumerate(zip(results, labels_of(results), strict=True))
        for task in one.shown
        if (one.mode, task) in one.boards
    ]
    return [
        PlacedBoard(
            f"board-{number}",
            title_of(task, label),
            " ".join(filter(None, (note_of(one, task), _why_area_differs(one, task), _ranked_and_not_safe(one, task)))),
            one.boards[one.mode, task],
            pages.get(task, ""),
            task,
            place,
            _leads(one, task),
            largest_of(one, task).few_contexts,
            one,
        )
        for number, (place, one, label, task) in enumerate(shown, start=1)
    ]


def _tasks_by_lead(results: Results, task: str) -> dict[Lead, list[str]]:
    """Groups tasks by what leads them: one alone, or over all tasks those that the mean is over."""
    full = {row.task: row for row in results.rows if row.policy == FULL}
    by_lead: dict[Lead, list[str]] = {}
    for one in results.mastered if task == ALL_TASKS else [task]:
        by_lead.setdefault(lead_of(full.get(one)), []).append(one)
    return by_lead


def _leads(results: Results, task: str) -> str:
    """Names what leads a task; over all tasks what leads each of those that the mean is over."""
    by_lead = _tasks_by_lead(results, task)
    return "; ".join(
        f"{lead.short} in {', '.join(tasks)}" if lead is not QUESTIONS and len(by_lead) > 1 else lead.short
        for lead, tasks in by_lead.items()
    )


def _ranked_and_not_safe(results: Results, task: str) -> str:
    """Says of the highest policy that is better than random, and safe at no level, how that goes together."""
    found = []
    for standing in results.details.standings.get((results.mode, task), ()):
        rank, safe, beats = standing[RANK], standing.values[SAFE_RATIO.name], standing[BEATS[0]]
        if isinstance(rank, Blank) or isinstance(beats, Blank) or not isinstance(safe, SafeRatio):
            continue
        if beats.verdict == "better" and not safe.ratio:
            outcome = "unsafe" if safe.outcome == "unsafe" else "not shown to be safe"
            where = f" in {safe.tasks[0]}" if safe.tasks else ""
            found.append(
                (rank.rank, f"{standing.policy} ranks {rank.rank}, is better than random, and {outcome}{where}")
            )
    if not found:
        return ""
    compared = "Rank and “better” compare policies with one another, the safe ratio each with the full cache"
    return f"{compared}: {min(found)[1]}."


def _why_area_differs(results: Results, task: str) -> str:
    """Says why the full cache has another area than percent right, where some tasks are led by something else."""
    by_lead = _tasks_by_lead(results, task)
    if QUESTIONS not in by_lead or len(by_lead) == 1:
        return ""
    others = " and ".join(f"{lead.title} in {', '.join(of)}" for lead, of in by_lead.items() if lead is not QUESTIONS)
    return (
        f"The area is of {others}, of percent right elsewhere; the column right is that in all of them: so the two "
        "differ even for the full cache."
    )


def legend(boards: Sequence[PlacedBoard]) -> list[BoardColumn]:
    """Lists the columns of all boards, each meaning once."""
    columns = [column for placed in boards for column in placed.board.columns]
    return list({(column.name, column.meaning): column for column in columns}.values())


def board_data(results: Sequence[Results], boards: Sequence[PlacedBoard]) -> dict[str, Any]:
    """Returns what the script of the boards needs: which there are, what stands on them at each level, and who met
    whom."""
    # Their meanings stand there once, and not at each level of each board.
    columns: dict[tuple[str, str, bool, str], int] = {}
    reasons: dict[str, int] = {}
    return {
        "boards": [_one_board(placed, columns, reasons) for placed in boards],
        "columns": list(columns),
        "reasons": list(reasons),
        "encounters": [_encounters(one) if one.duels else None for one in results],
    }


def _encounters(results: Results) -> dict[str, Any]:
    names = names_of(row.at for row in results.rows if row.policy != FULL)
    return encounters(results.duels, reasons_by_task(results.rows), names)


def _one_board(
    placed: PlacedBoard, columns: dict[tuple[str, str, bool, str], int], reasons: dict[str, int]
) -> dict[str, Any]:
    """Returns the data of a board. ``columns`` and ``reasons``: those of all boards, by their number, which this one
    adds to."""
    levels = placed.board.levels
    return {
        "id": placed.identifier,
        "results": placed.number,
        "model": placed.results.model,
        "mode": placed.results.mode,
        "setting": placed.results.setting,
        "task": placed.task,
        "name": title_of(placed.task, ""),
        "kind": kind_name(level.level for level in levels).capitalize(),
        "usual": " and ".join(placed.board.names[level] for level in placed.board.shown) or "none",
        "levels": [
            {
                "level": placed.board.names[level.level],
                "columns": [
                    columns.setdefault((column.name, column.meaning, column.leads, column.short_for), len(columns))
                    for column in level.columns
                ],
                "rows": ["|".join(_cell_data(cell, reasons) for cell in line.cells) for line in level.lines],
            }
            for level in levels
        ],
    }


def _cell_data(cell: TableCell, reasons: dict[str, int]) -> str:
    """Returns its text, what it is sorted by and what stands under it, with semicolons between them; of a blank one
    "#" and the number of its sign and reason among ``reasons``, which it adds to."""
    if cell.sort is None:
        return f"#{reasons.setdefault(f'{cell.dash} {cell.reason}', len(reasons))}"
    return f"{cell.text};{cell.key};{cell.detail}".rstrip(";")
