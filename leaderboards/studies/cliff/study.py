"""Declares the study of the cliff: how hallucination rises over what is really removed."""

from leaderboards.studies.cliff.definitions import CHAPTER, TITLE
from leaderboards.studies.declaration import Study, StudyInput
from policies.declaration.lazy import LazyModule
from policies.declaration.names import FULL

content = LazyModule("leaderboards.studies.cliff.content")


def _takes(study_input: StudyInput) -> bool:
    """Takes runs of which some policy has several levels at which it really removes something."""
    records = study_input.records
    treated = records[records["policy"] != FULL]
    cells = treated[["policy", "level_kind", "level"]].drop_duplicates()
    has_several = cells["policy"].duplicated().any()
    return bool(has_several) and bool(content.is_any_swept(study_input))


STUDY = Study(
    name="cliff",
    title=TITLE,
    lead="",
    takes=_takes,
    find=lambda study_input: content.build_content(study_input),
    chapter=CHAPTER,
    is_on_front=True,
)
