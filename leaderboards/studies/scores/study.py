"""Declares the study of scores: what scorers of one's own say of the answers."""

from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.scores.definitions import CHAPTER, TITLE
from policies.declaration.lazy import LazyModule

content = LazyModule("leaderboards.studies.scores.content")


def _takes(study_input: StudyInput) -> bool:
    """Takes runs that have any score."""
    scores = study_input.tables.get("scores")
    return scores is not None and len(scores) > 0


STUDY = Study(
    name="scores",
    title=TITLE,
    lead="",
    takes=_takes,
    find=lambda study_input: content.build_content(study_input),
    chapter=CHAPTER,
    tables=("scores",),
    is_on_front=True,
)
