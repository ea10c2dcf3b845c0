"""Declares the study of routes: is the evidence still there, can it be reached, is it used?"""

from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.routing.definitions import CHAPTER
from policies.declaration.lazy import LazyModule
from policies.declaration.names import FULL

content = LazyModule("leaderboards.studies.routing.content")

TABLES = ("routes", "attention", "states", "interventions")


def _takes(study_input: StudyInput) -> bool:
    """Takes runs with rows of the full cache, with which all is compared, in one of the tables."""
    tables = [study_input.tables[name] for name in TABLES if name in study_input.tables]
    return any(FULL in set(table["policy"]) for table in tables)


STUDY = Study(
    name="routing",
    title="Routing",
    lead="An answer is wrong because its evidence was erased, because no route leads from it to the answer, or because "
    "it was reached and not used. Which of these does each policy cause, and at which level?",
    takes=_takes,
    find=lambda study_input: content.build_content(study_input),
    chapter=CHAPTER,
    tables=TABLES,
)
