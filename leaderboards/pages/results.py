"""Holds the results that stand on one board: the rows of runs of one model in one setting, and what
tells them from others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from pandas import DataFrame

from leaderboards.aggregate.attacks import AttackCell, attack_cells
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.boards.board import Boards, Standings, all_standings, make_boards
from leaderboards.downloads.sheets import file_name
from leaderboards.statistics.safe_ratio import TOLERATED_LOSS
from leaderboards.studies.declaration import StudySection


@dataclass(frozen=True)
class Results:
    """Holds the results of runs whose records may be compared: those of one model in one mode and
    setting."""

    rows: Sequence[SummaryRow]  # at least one, all of ``mode``
    runs: Mapping[str, Mapping[str, Any]]  # what ``run.json`` of each holds, by folder
    model: str
    mode: str
    # What tells these results from others of the same model and mode on a site, if there are such.
    setting: str = ""
    boards: Boards = field(default_factory=dict)
    families: Mapping[str, str] = field(default_factory=dict)  # by policy, as far as they are known
    standings: Standings = field(default_factory=dict)
    # By title, the file names of the pages of studies.
    studies: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = TOLERATED_LOSS  # the loss in points below which a level is safe
    sections: Sequence[StudySection] = ()  # of studies that stand on the front page
    attacks: Sequence[AttackCell] = ()  # what each attack gets, if there are any
    title: str = ""  # of the model, where its name is not how it is called
    described: str = ""  # what the model is, in a few words
    # Some policies on some of the tasks, asked of more contexts: what they lose is told by these.
    closer: Sequence["Results"] = ()

    @classmethod
    def of(
        cls,
        records: DataFrame,
        rows: Sequence[SummaryRow],
        runs: Mapping[str, Mapping[str, Any]],
        model: str,
        tolerance: float = TOLERATED_LOSS,
        **more: Any,
    ) -> Self:
        """Aggregates what stands on boards and in figures; ``more`` are other fields."""
        standings = all_standings(records, rows, tolerance)
        boards = make_boards(records, rows, standings)
        more = {**more, "boards": boards, "standings": standings, "tolerance": tolerance}
        more["attacks"] = attack_cells(records)
        return cls(rows, runs, model, rows[0].mode, **more)

    @property
    def tasks(self) -> list[str]:
        """Lists the tasks, without the mean over them."""
        names = distinct(row.task for row in self.rows)
        return [name for name in names if name != ALL_TASKS]

    @property
    def levels(self) -> dict[str, str]:
        """Returns by task the level of difficulty, such as "3 of 5", where that is not the
        highest."""
        levels = {}
        for run in self.runs.values():
            for task in spread(run).get("tasks", ()):
                if task.get("level"):
                    levels[str(task["name"])] = str(task["level"])
        return levels

    @property
    def mastered(self) -> list[str]:
        """Lists the tasks that means are over: those that the model can do with the full cache, or
        all."""
        for row in self.rows:
            if row.task == ALL_TASKS:
                return list(row.mean_of)
        return self.tasks

    @property
    def shown(self) -> list[str]:
        """Lists the mean over tasks, if there are several, then each task."""
        if len(self.tasks) > 1:
            return [ALL_TASKS, *self.tasks]
        return self.tasks


def distinct_labels(results: Sequence[Results]) -> list[str]:
    """Names each of the results by what differs between them; with nothing where there is one
    alone."""
    several_models = len({of_setting.model for of_setting in results}) > 1
    several_modes = len({of_setting.mode for of_setting in results}) > 1
    labels = []
    for of_setting in results:
        parts = [
            of_setting.model if several_models else "",
            of_setting.mode if several_modes else "",
            of_setting.setting,
        ]
        labels.append(", ".join(filter(None, parts)))
    return labels


def spread(run: Mapping[str, Any]) -> dict[str, Any]:
    """Spreads the facts of a run on one level: what identifies it lies under ``identity`` in
    ``run.json``."""
    facts = dict(run)
    identity = facts.get("identity")
    if isinstance(identity, Mapping):
        del facts["identity"]
        facts |= identity
    return facts


def dtype_names(runs: Iterable[Mapping[str, Any]]) -> str:
    """Names the types of numbers in which some runs computed, as far as they say."""
    names = []
    for run in runs:
        dtype = spread(run).get("dtype")
        if dtype:
            names.append(str(dtype))
    return ", ".join(distinct(names))


def distinct(names: Iterable[str]) -> list[str]:
    """Returns each name once, in order of first appearance."""
    return list(dict.fromkeys(names))


def tasks_by_count(counts: Mapping[str, int]) -> dict[int, list[str]]:
    """Groups tasks by a number of theirs, in the order in which the numbers appear."""
    tasks: dict[int, list[str]] = {}
    for task, count in counts.items():
        tasks.setdefault(count, []).append(task)
    return tasks


def task_page(task: str) -> str:
    """Returns the file name of the page of a task."""
    return f"task-{file_name(task)}.html"
