"""The result of ``kvbench.compare``: the verdict, and the tables behind it."""

from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.api import notebooks
from kvbench.api.examined import ShownResult
from kvbench.api.results import RunResult
from kvbench.cli.result import Result
from kvbench.handed.scope import NOTHING, Handed
from policies import LazyModule

if TYPE_CHECKING:
    from pandas import DataFrame

    from kvbench.publish.compared import ComparedRun

verdicts = LazyModule("leaderboards.terminal.verdicts")
PAGE_LINES = 12  # of a table, as high as a frame is around the page
NO_VERDICT = "no verdict: no task of this comparison can be done with the full cache"


class ComparisonResult(ShownResult):
    """A press beside others on the same questions.

    Attributes:
        verdict: Against each opponent: better, worse, mixed or not distinguished, at which levels,
            with the largest difference in points and its interval.
        failed_gate: Why ``max_loss`` or ``fail_if`` fail; empty where they do not.
        page: The page with every task.
        run: The run that holds the answers.
    """

    def __init__(self, compared: "ComparedRun", shown: Result, handed: Handed = NOTHING) -> None:
        super().__init__(shown)
        self._compared = compared
        self._handed = handed

    @property
    def verdict(self) -> str:
        sentences = []
        for comparison in self._compared.comparisons:
            published = comparison.published
            words = verdicts.verdicts_in_words(published.outcomes, published.presses)
            sentences.append(f"{comparison.policy}: {'; '.join(words) or NO_VERDICT}")
        return "\n".join(sentences)

    @property
    def failed_gate(self) -> str:
        return self.shown.failed_gate

    @property
    def page(self) -> Path:
        return self._compared.comparisons[0].published.page

    @property
    def run(self) -> RunResult:
        return RunResult([self._compared.store], handed=self._handed)

    def outcomes(self) -> "DataFrame":
        """Returns the verdict for each opponent, with the level and the difference, in points, that
        stand for it."""
        return self.tables()["outcomes"]

    def means(self) -> "DataFrame":
        """Returns the mean of tasks at each level: both sides in percent, the difference in points
        with its interval, and its p-value."""
        return self.tables()["means"]

    def cells(self) -> "DataFrame":
        """Returns the verdict of each task and level, measure by measure."""
        return self.tables()["verdicts"]

    def _repr_html_(self) -> str:
        """Returns the page of the comparison, as a notebook shows it; its tables where that is
        gone."""
        if not self.page.is_file():
            return super()._repr_html_()
        return notebooks.frame_page(self.page.read_text(encoding="utf-8"), lines=PAGE_LINES)

    def __repr__(self) -> str:
        return f"<ComparisonResult {self.verdict}>"
