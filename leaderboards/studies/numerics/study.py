"""Declares the study of numerics: is a cached answer the answer without the cache?"""

from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.numerics.definitions import CHAPTER
from policies.declaration.lazy import LazyModule

content = LazyModule("leaderboards.studies.numerics.content")

PAIRS = "numerics_pairs"
OTHER_TABLES = ("numerics_drift", "numerics_recovery", "numerics_patches", "numerics_rounding")
CACHE = "cache"  # a pair of paths: on against off


def _takes(study_input: StudyInput) -> bool:
    """Takes runs whose table of numerics compares cache on with cache off."""
    table = study_input.tables.get(PAIRS)
    return table is not None and CACHE in set(table["pair"])


STUDY = Study(
    name="numerics",
    title="Numerics",
    lead="Is a cached answer the answer that would be computed without the cache?",
    takes=_takes,
    find=lambda study_input: content.build_content(study_input),
    chapter=CHAPTER,
    tables=(PAIRS, *OTHER_TABLES),
)
