"""The study of routes: is the evidence still there, can it be reached, is it used?"""

from collections.abc import Iterator
from typing import Any

from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration.definition import Chapter
from leaderboards.routing.reach import EPSILON
from leaderboards.studies.declaration import Study, StudyContent, StudyInput, StudySection
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
from leaderboards.studies.routing.causes_parts import Causes
from leaderboards.studies.routing.classes_parts import Classes, counted
from leaderboards.studies.routing.heads_parts import Heads
from leaderboards.studies.routing.probes_parts import Probes
from leaderboards.studies.routing.reaching_parts import Reaching
from policies.declaration.names import FULL


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, its downloads, and the numbers that are worth quoting."""
    parts: list[StudySection] = []
    narrow: list[StudySection] = []  # of routes that nearly everything has: they stand at the end
    sheets: list[Sheet] = []
    facts: list[tuple[str, str]] = []
    quoted: dict[str, Any] = {}
    if has(given, classes.TABLE):
        joined = classes.with_routes(given.tables[classes.TABLE], given.records)
        telling = classes.telling_epsilon(joined)
        found, reaching = Classes(joined, telling), Reaching(joined, telling)
        parts += [*found.telling_parts(), *reaching.parts()]
        narrow = found.other_parts()
        sheets += [found.sheet(), *reaching.sheets()]
        facts += _facts(joined, given.records, telling)
    if has(given, heads.TABLE) and (given.records["answer_tokens"] > 0).any():
        of_heads = Heads(given)
        parts, sheets = [*parts, *of_heads.parts()], [*sheets, *of_heads.sheets()]
    if has(given, probes.TABLE):
        of_probes = Probes(given.tables[probes.TABLE], given.records)
        parts, sheets = [*parts, *of_probes.parts()], [*sheets, of_probes.sheet()]
    if has(given, causes.TABLE):
        of_causes = Causes(given)
        parts, sheets = [*parts, *of_causes.parts()], [*sheets, *of_causes.sheets()]
        quoted = of_causes.quoted()
    return StudyContent([*parts, *narrow], facts, [sheet for sheet in sheets if sheet.rows], quoted)


def has(given: StudyInput, table: str) -> bool:
    """Tells whether a table has rows of the full cache, with which everything is compared."""
    return table in given.tables and FULL in set(given.tables[table]["policy"])


def _facts(joined: DataFrame, records: DataFrame, telling: float) -> Iterator[tuple[str, str]]:
    contexts = records[["task", "draw_id"]].drop_duplicates()
    observed = joined[["task", "draw_id"]].drop_duplicates()
    counts = [
        f"{(observed['task'] == task).sum()} of {(contexts['task'] == task).sum()} of {task}"
        for task in dict.fromkeys(observed["task"])
    ]
    yield "Contexts observed", ", ".join(counts)
    yield "Not observed", counted(classes.classify(joined))
    yield "Least attention in each step", " and ".join(f"{one:g}" for one in dict.fromkeys((telling, EPSILON)))


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
)
