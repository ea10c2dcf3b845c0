"""The registry of derived measures, which is the order of the board too, and the standings: all derived measures of
every policy of a board. Add a measure by writing its file and naming it here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pandas import DataFrame

from leaderboards.aggregate.arguments import Arguments
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.boards.area import AREA
from leaderboards.boards.beats import BEATS
from leaderboards.boards.cliff import CLIFFS
from leaderboards.boards.declaration import BoardProfiles, DerivedMeasure, Value
from leaderboards.boards.profiles import Profiles
from leaderboards.boards.rank import RANK
from leaderboards.boards.safe_ratio import SAFE_RATIO
from leaderboards.metrics.declaration import Definition, definitions_in
from leaderboards.statistics.bootstrap import Blank

# In the order of the columns of the download.
DERIVED: tuple[DerivedMeasure[Any], ...] = (RANK, AREA, SAFE_RATIO, *CLIFFS.values(), *BEATS)
# In the order of the board, where the measures of single levels follow. The first two are in view on a phone.
FIRST_COLUMNS: tuple[DerivedMeasure[Any], ...] = (RANK, SAFE_RATIO, AREA, *BEATS, *CLIFFS.values())


def derived_definitions(chapter: str) -> tuple[Definition, ...]:
    """Returns the definitions of the derived measures that stand in a chapter, with the names that each explains."""
    declared = [(definition, names) for measure in DERIVED for definition, names in measure.definitions]
    return definitions_in(chapter, declared)


@dataclass(frozen=True)
class Standing:
    """Holds what one policy comes to, in one mode, at one task or over ``all``: ``standing[AREA]`` is its area, or a
    :class:`~leaderboards.statistics.bootstrap.Blank` that says why it has none."""

    mode: str
    task: str
    policy: str
    values: Mapping[str, Any]  # by name of a derived measure
    presses: Sequence[Arguments] = ()  # what it ran with, by task

    def __getitem__(self, measure: DerivedMeasure[Value]) -> Value:
        value: Value = self.values[measure.name]
        return value


Standings = Mapping[tuple[str, str], Sequence[Standing]]  # by mode and task, ``all`` among the tasks


def standings(profiles: Profiles, mode: str, task: str) -> list[Standing]:
    """Computes the standing of every policy of a board, in the order of its rows; over all tasks that of their mean."""
    board = BoardProfiles(mode, task, profiles.of_board(mode, task), profiles.presses(mode, task))
    columns = {measure.name: measure.of_board(board) for measure in DERIVED}
    return [
        Standing(
            mode,
            task,
            policy,
            {name: values[policy] for name, values in columns.items()},
            board.presses[policy],
        )
        for policy in board.profiles
    ]


def all_standings(records: DataFrame, rows: Sequence[SummaryRow], seed: int = 0) -> Standings:
    """Computes the standings of every board. ``rows`` are those that the records add up to."""
    profiles = Profiles.of(records, rows, seed)
    by_board = {(mode, task): standings(profiles, mode, task) for mode, task in profiles.rows}
    for mode, task in by_board:
        if task == ALL_TASKS:
            by_task = {one: by_board[mode, one] for one in profiles.tasks(mode, task)}
            by_board[mode, task] = [_over_tasks(standing, by_task) for standing in by_board[mode, task]]
    return by_board


def _over_tasks(mean: Standing, by_task: Mapping[str, Sequence[Standing]]) -> Standing:
    """Returns a standing over all tasks, of which some measures are no measures of the mean."""
    of_tasks = {task: one for task, of_task in by_task.items() for one in of_task if one.policy == mean.policy}
    values = {
        measure.name: measure.over_tasks({task: one[measure] for task, one in of_tasks.items()})
        for measure in DERIVED
        if measure.over_tasks is not None and not isinstance(mean[measure], Blank)
    }
    return replace(mean, values={**mean.values, **values})
