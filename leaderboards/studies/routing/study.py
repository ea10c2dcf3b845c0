"""The study of routes: is the evidence still there, can it be reached, is it used?"""

from collections.abc import Callable, Mapping

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration.definition import Chapter
from leaderboards.studies.declaration import Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.routing import causes, heads, probes, routes
from policies.declaration.names import FULL

Part = routes.ReachedAnswers | heads.Heads | probes.Probes | causes.Causes
FINDERS: Mapping[str, Callable[[StudyInput], Part]] = {
    routes.TABLE: routes.ReachedAnswers,
    heads.TABLE: heads.Heads,
    probes.TABLE: probes.Probes,
    causes.TABLE: causes.Causes,
}


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, and its downloads."""
    parts: list[StudySection] = []
    sheets: list[Sheet] = []
    facts: list[tuple[str, str]] = []
    for table, finder in FINDERS.items():
        if has(given, table):
            found = finder(given)
            parts += found.parts()
            sheets += found.sheets()
            facts += found.facts() if isinstance(found, routes.ReachedAnswers) else []
    return StudyContent(parts, facts, [sheet for sheet in sheets if sheet.rows])


def has(given: StudyInput, table: str) -> bool:
    """Tells whether a table has rows of the full cache, with which everything is compared."""
    return table in given.tables and FULL in set(given.tables[table]["policy"])


STUDY = Study(
    name="routing",
    title="Routing",
    lead="An answer is wrong because its evidence was erased, because no route leads from it to the answer, or because "
    "it was reached and not used. Which of these does each policy cause, and at which level?",
    takes=lambda given: any(has(given, table) for table in FINDERS),
    find=content_of,
    chapter=Chapter(
        "routing",
        "Routes, heads, probes and causes",
        (*routes.DEFINITIONS, *heads.DEFINITIONS, *probes.DEFINITIONS, *causes.DEFINITIONS),
    ),
    tables=tuple(FINDERS),
)
