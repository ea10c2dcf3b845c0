"""Declares the study of treatments: faults, errors and bytes."""

from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.treatments.definitions import CHAPTER
from policies.composition import is_treatment
from policies.declaration.lazy import LazyModule
from policies.declaration.names import FULL

content = LazyModule("leaderboards.studies.treatments.content")


def _takes(study_input: StudyInput) -> bool:
    """Takes runs of the full cache and a fault at two rates, errors beside fewer bits, or both ways
    to fewer bytes."""
    policies = set(map(str, study_input.records["policy"].unique()))
    if FULL not in policies or not any(map(is_treatment, policies)):
        return False
    return bool(content.has_treatments(study_input))


STUDY = Study(
    name="treatments",
    title="Treatments of the cache",
    lead="The cache holds noise, rounded numbers, wrong signs, or fewer tokens. How much of that does an answer "
    "survive, in which layers and tokens, and what keeps most in as many bytes?",
    takes=_takes,
    find=lambda study_input: content.build_content(study_input),
    chapter=CHAPTER,
    tables=("reconstruction",),
)
