"""Declares the study of instructions under compression (arXiv 2510.00231)."""

from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.instructions.definitions import CHAPTER, DEFENDED
from policies.declaration.lazy import LazyModule

content = LazyModule("leaderboards.studies.instructions.content")


def _takes(study_input: StudyInput) -> bool:
    """Takes runs of system prompts, or with prompts in both orders of defence and directives."""
    scopes = {run["identity"]["scope"] for run in study_input.runs}
    return scopes <= {"system"} or set(DEFENDED) <= set(study_input.records["arm"])


STUDY = Study(
    name="instructions",
    title="Instructions under compression",
    lead="A system prompt is compressed, and what users say is appended to what is left of it. What is still obeyed, "
    "what leaks, and what protects?",
    takes=_takes,
    find=lambda study_input: content.build_content(study_input),
    chapter=CHAPTER,
)
