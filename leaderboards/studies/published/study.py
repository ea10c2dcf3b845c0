"""Declares the study of published orders: does the order of kvpress's board carry over?"""

from datasets_gen.tasks.ruler import niah
from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.published.definitions import CHAPTER
from policies.declaration.lazy import LazyModule

content = LazyModule("leaderboards.studies.published.content")

NEEDLES = {task.name for task in niah.TASKS}


def _takes(study_input: StudyInput) -> bool:
    """Takes runs of several needles with several policies of the board."""
    needles = NEEDLES & set(study_input.records["task"].unique())
    return len(needles) > 1 and bool(content.has_policies_of_board(study_input))


STUDY = Study(
    name="published",
    title="Does the order carry over?",
    lead="kvpress publishes how its presses do on two models of 8B parameters. Do they keep needles in the same order "
    "on this one?",
    takes=_takes,
    find=lambda study_input: content.build_content(study_input),
    chapter=CHAPTER,
)
