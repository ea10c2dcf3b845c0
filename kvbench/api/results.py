"""The result of a run, in tables, figures and pages: what ``kvbench.run`` and ``kvbench.load``
return."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbench.api import notebooks
from kvbench.api.checked import checked
from kvbench.cli.result import Result
from kvbench.experiments.options import check_count
from kvbench.handed.scope import NOTHING, Handed, handing_in
from kvbench.store.tables import find_table
from kvbench.studies.registry import SCORES
from leaderboards.aggregate.row import ALL_TASKS
from policies import LazyModule, Level

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from kvbench.store.store import Store
    from leaderboards.downloads.sheets import Sheet
    from leaderboards.pages.results import Results
    from leaderboards.paper.pictures import PaperFigure

front = LazyModule("leaderboards.pages.front")
board_parts = LazyModule("kvbench.publish.parts")
print_figures = LazyModule("kvbench.publish.print_figures")
printing = LazyModule("leaderboards.paper.printing")
download_tables = LazyModule("leaderboards.downloads.tables")
pandas = LazyModule("pandas")
sheets = LazyModule("leaderboards.downloads.sheets")
sites = LazyModule("kvbench.publish.site")
worst = LazyModule("kvbench.publish.worst_answers")

SAFE = "safe_ratio"  # begins the columns of a board that say what is safe


class RunResult:
    """A stored run, or several that stand beside one another.

    Its tables are pandas frames. Numbers are those of the downloads of its pages, unrounded.

    Attributes:
        folder: The folder of the run, such as ``runs/first``; of several the first.
        fault: What went wrong, in a line; empty where all cells have their answers.
    """

    def __init__(
        self,
        stores: "Sequence[Store]",
        every_task: bool = False,
        tolerance: float | None = None,
        handed: Handed = NOTHING,
        shown: Result | None = None,
    ) -> None:
        """``shown``: what the command prints of it; None of a run that is only read."""
        self._stores = list(stores)
        self._every_task = every_task
        self._tolerance = tolerance
        self._handed = handed
        self.shown = shown or Result()

    @property
    def folder(self) -> Path:
        return self._stores[0].folder

    @property
    def fault(self) -> str:
        return self.shown.fault

    @cached_property
    def _results(self) -> "list[Results]":
        """Returns what the first page shows, a part for each group of runs that may be compared."""
        results: list[Results] = sites.run_results(self._stores, self._every_task, self._tolerance)
        return results

    @cached_property
    def _figures(self) -> "list[PaperFigure]":
        """Gathers the figures of the first run, as ``kvbench figures`` does."""
        store = self._stores[0]
        rows, inputs = self._results[0].rows, board_parts.study_inputs(store)
        figures: list[PaperFigure] = print_figures.list_figures(rows, store.frame(), inputs)
        return figures

    def records(self) -> "DataFrame":
        """Returns a row for each answer, with its question, its context and all of its scores.

        Returns:
            One row for each question, policy, level and draw, in the order of the run. The page of
            method says what each column is; times are in seconds, F1 and EM in percent, other
            scores are shares.
        """
        frames = [store.frame() for store in self._stores]
        records: DataFrame = pandas.concat(frames, ignore_index=True)
        return records

    def cells(self) -> "DataFrame":
        """Returns every measure of each task, policy and level: the download ``cells.csv``.

        Returns:
            One row for each cell; the ends of a 95 % interval stand in the columns ``*_low`` and
            ``*_high``.
        """
        return self._sheet(lambda part: download_tables.cells_sheet(part.rows))

    def board(self) -> "DataFrame":
        """Returns what each policy comes to over its levels: the download ``board.csv``.

        Returns:
            One row for each task and policy, and for the mean over tasks, with intervals in the
            columns ``*_low`` and ``*_high``.
        """
        return self._sheet(lambda part: download_tables.board_sheet(part.standings, part.boards))

    def scores(self) -> "DataFrame":
        """Returns what scorers of one's own, or of installed packages, gave to each answer.

        Returns:
            One row for each answer and scorer, with the range and the direction of that scorer;
            none where a run has no such scorer.
        """
        frames = [store.table(find_table(SCORES)).to_pandas() for store in self._stores]
        scores: DataFrame = pandas.concat(frames, ignore_index=True)
        return scores

    def safe(self) -> "DataFrame":
        """Returns up to which level each policy is safe, and what it loses there.

        Returns:
            One row for each task and policy, and for the mean over tasks. ``safe_ratio`` is the
            highest level that is safe, empty where none is shown to be;
            ``safe_ratio_difference`` is the difference from the full cache in points, with its
            interval.
        """
        board = self.board()
        if len(set(board["task"]) - {ALL_TASKS}) == 1:  # of which the mean is the same once more
            board = board[board["task"] != ALL_TASKS].reset_index(drop=True)
        columns = [name for name in board.columns if name.startswith(SAFE)]
        return board[["mode", "task", "policy", *columns]]

    @checked
    def examples(self, policy: str = "", worst: int = 5, **level: float) -> "DataFrame":
        """Returns the worst answers of a policy, beside those of the full cache.

        Args:
            policy: A policy of the run; by default its first method.
            worst: How many answers, 1 or more.
            **level: At which level, such as ``ratio=0.5``.

        Returns:
            One row for each answer, with the question, its golds, what was written, what the full cache
            wrote, the verdict in words, and how much of the evidence was kept.

        Raises:
            KVBenchError: The run has no such policy or level, or no answers of it yet.
        """
        check_count("worst", worst)
        return find_examples(self._stores[0], policy, worst, level, self._handed)

    @checked
    def figure(self, name: str = "right", task: str = "", width: str = "column") -> "Figure":
        """Draws a figure of the run for print.

        Args:
            name: Such as ``right``, ``f1``, ``ger`` or ``tradeoff``; a wrong one lists all.
            task: Of which task; by default the mean over tasks, or the only task.
            width: ``column``, ``page``, or a length such as ``8cm`` or ``3.25in``.

        Returns:
            A matplotlib figure in seaborn's style.

        Raises:
            KVBenchError: There is no such figure, or no paper of that width.
        """
        chosen = print_figures.choose_figure(self._figures, name, task)
        notebooks.show_figures()
        figure: Figure = printing.make_sheet(chosen, print_figures.read_paper(width, True))
        return figure

    @checked
    def site(self, folder: str | Path | None = None) -> Path:
        """Writes the pages of the run.

        Args:
            folder: Where they are written; by default in ``site``, under the name of the run.

        Returns:
            The page to begin with.

        Raises:
            KVBenchError: The folder cannot be written.
        """
        place = None if folder is None else Path(folder)
        pages: Sequence[Path] = sites.publish_sites(
            self._stores, place, self._every_task, self._tolerance
        )
        return pages[0]

    def _sheet(self, make: Any) -> "DataFrame":
        """Joins the sheets of all parts, each with its model and setting where there are several."""
        parts: list[Sheet] = []
        for part in self._results:
            labels = {"model": part.model, "setting": part.setting}
            parts.append(make(part).with_labels(labels))
        (joined,) = sheets.join_sheets(parts)
        return pandas.DataFrame(list(joined.rows), columns=list(joined.columns))

    def _repr_html_(self) -> str:
        """Returns the matrix of the first page, as a notebook shows it."""
        policies: set[str] = set()
        for part in self._results:
            policies.update(row.policy for row in part.rows)
        return notebooks.frame_page(front.build_matrix(self._results), lines=len(policies))

    def __repr__(self) -> str:
        identity = self._stores[0].identity
        methods = ", ".join(policy.name for policy in identity.policies)
        tasks = ", ".join(task.name for task in identity.tasks)
        return f"<RunResult {self.folder}: {identity.model} on {tasks} under {methods}>"


def find_examples(
    store: "Store", policy: str, count: int, level: dict[str, float], handed: Handed
) -> "DataFrame":
    """Returns the worst answers of a policy at a level, as a frame. ``handed``: what the run was
    handed, without which its examples cannot be made again. Raises :class:`KVBenchError` where the
    run has no such answers."""
    policy = policy or worst.first_method(store.identity)
    chosen = [Level(kind, value) for kind, value in level.items()]
    with handing_in(handed):
        at = worst.choose_level(store.identity, policy, chosen)
        answers, _ = worst.worst_answers(store, policy, at, count)
    return pandas.DataFrame(worst.answer_rows(answers), columns=list(worst.ANSWER_COLUMNS))
