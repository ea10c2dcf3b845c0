"""Gathers the figures of a run, which ``figures`` writes and the library hands out."""

from collections.abc import Sequence

from pandas import DataFrame

from leaderboards.aggregate.arguments import arguments_of_records
from leaderboards.aggregate.row import SummaryRow
from leaderboards.paper.pictures import PaperFigure
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
