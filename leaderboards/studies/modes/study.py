"""Declares the comparison of question-agnostic with question-aware compression."""

from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.modes.definitions import CHAPTER, TITLE
from policies.declaration.lazy import LazyModule

content = LazyModule("leaderboards.studies.modes.content")


def _takes(study_input: StudyInput) -> bool:
    """Takes results that have others of the same model in another mode beside them."""
    return bool(study_input.modes) and bool(content.tasks_in_both(study_input))


STUDY = Study(
    name="modes",
    title=TITLE,
    lead="",
    takes=_takes,
    find=lambda study_input: content.build_content(study_input),
    chapter=CHAPTER,
    is_on_front=True,
)
