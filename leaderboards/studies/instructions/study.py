"""The study of instructions under compression (arXiv 2510.00231): what is obeyed, what leaks, and what protects."""

from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.instructions.definitions import INSTRUCTIONS
from leaderboards.studies.instructions.page import content_of, has_orders


def _takes(given: StudyInput) -> bool:
    """Takes runs of system prompts, or in both orders."""
    return all(run["identity"]["scope"] == "system" for run in given.runs) or has_orders(given.records)


STUDY = Study(
    name="instructions",
    title="Instructions under compression",
    lead="A system prompt is compressed, and what users say is appended to what is left of it. What is still obeyed, "
    "what leaks, and what protects?",
    takes=_takes,
    find=content_of,
    chapter=INSTRUCTIONS,
)
