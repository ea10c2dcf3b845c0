"""Gathers the figures of a run, which ``figures`` writes and the library hands out."""

from collections.abc import Sequence

from pandas import DataFrame

from datasets_gen import unknown_name
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.arguments import arguments_of_records
from leaderboards.aggregate.row import SummaryRow
from leaderboards.downloads.sheets import file_name
from leaderboards.errors import LeaderboardError
from leaderboards.paper.pictures import PaperFigure
from leaderboards.paper.printing import Paper
from leaderboards.paper.run_figures import figures_of_run, figures_of_study
from leaderboards.studies.declaration import StudyInput, list_studies


def list_figures(
    rows: Sequence[SummaryRow], records: DataFrame, study_input: StudyInput
) -> list[PaperFigure]:
    """Lists the figures of a run: curves, maps and distributions of each task, then the pictures of
    its studies, as their pages have them. ``study_input``: of
    :func:`kvbench.publish.parts.study_inputs`."""
    presses = list(arguments_of_records(records).values())
    figures = list(figures_of_run(rows, records, presses))
    for study in list_studies(study_input):
        figures += figures_of_study(study, study.find(study_input))
    return figures


def choose_figure(figures: Sequence[PaperFigure], name: str, task: str) -> PaperFigure:
    """Returns the first figure of a name; ``task``: of this task, if one is named. Raises
    :class:`KVBenchError` for a figure that there is not."""
    names = {figure.name: figure.name for figure in figures}
    if name not in names:
        raise KVBenchError(unknown_name("figure", name, names))
    wanted = f"-{file_name(task)}-"
    for figure in figures:
        if figure.name == name and (not task or wanted in figure.stem):
            return figure
    raise KVBenchError(f"there is no figure {name} of the task '{task}'")


def read_paper(width: str, headed: bool) -> Paper:
    """Reads the width of a figure. Raises :class:`KVBenchError` for one that no paper has."""
    try:
        return Paper.parse(width, headed)
    except LeaderboardError as error:
        raise KVBenchError(f"--width: {error}") from error
