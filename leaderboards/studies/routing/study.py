"""The study of routes: is the evidence still there, can it be reached, is it used?"""

from leaderboards.metrics.declaration.definition import Chapter
from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.routing import (
    causes,
    causes_parts,
    classes,
    classes_parts,
    heads,
    heads_parts,
    probes,
    probes_parts,
    reaching_parts,
)
from leaderboards.studies.routing.page import content_of, has

TABLES = (classes.TABLE, heads.TABLE, probes.TABLE, causes.TABLE)


def _takes(given: StudyInput) -> bool:
    return any(has(given, table) for table in TABLES)


STUDY = Study(
    name="routing",
    title="Routing",
    lead="An answer is wrong because its evidence was erased, because no route leads from it to the answer, or because "
    "it was reached and not used. Which of these does each policy cause, and at which level?",
    takes=_takes,
    find=content_of,
    chapter=Chapter(
        "routing",
        "Routes, heads, probes and causes",
        (
            *classes_parts.DEFINITIONS,
            *reaching_parts.DEFINITIONS,
            *heads_parts.DEFINITIONS,
            *probes_parts.DEFINITIONS,
            *causes_parts.DEFINITIONS,
        ),
    ),
    tables=TABLES,
    losses=classes.losses_of,
)
