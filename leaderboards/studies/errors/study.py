"""The study of errors: what is left where every number of the cache is a little off, beside the tables of text E."""

from leaderboards.metrics.declaration.definition import Chapter, Definition
from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.errors.page import content_of
from leaderboards.studies.errors.treatments import BITS, treatments_among
from leaderboards.studies.treatments.measured import policies_in
from leaderboards.studies.treatments.published import TEXT_E
from policies.declaration.names import FULL


def _takes(given: StudyInput) -> bool:
    """Takes runs with the full cache, with numbers in fewer bits, and with an error of numbers."""
    policies = policies_in(given.records)
    sorts = {one.sort for one in treatments_among(policies)}
    return (
        FULL in policies and BITS in sorts and len(sorts) > 1 and all(run["status"] == "complete" for run in given.runs)
    )


CHAPTER = Chapter(
    "errors",
    "Errors of every number",
    (
        Definition(
            "Error of a number",
            "Fewer bits: numbers are stored with rounding. Uniform and normal: each is multiplied by 1 + a draw, of a "
            "range or of a normal distribution. Constant: each is shifted by the same, in spreads of its layer. Signs: "
            "some numbers change their sign, or are off by as much without. Two treatments that are set against one "
            "another answer the same questions, and their difference is resampled with both.",
            names=(
                *("error", "first keeps", "second keeps", "difference of shares"),
                *("keys and values", "keys alone", "values alone", "K − V, points"),
                *("masked, percent", "corrupted, percent", "DUE, percent"),
            ),
        ),
        Definition(
            "Counts against what is printed",
            "The text gives both how many next tokens are right and which share of the control that is. Where the two "
            "differ, both are shown.",
            "share by its counts = right next tokens / right next tokens of the control",
            TEXT_E,
            names=("printed", "by its own counts", "counts − printed"),
        ),
    ),
)
STUDY = Study(
    name="errors",
    title="Errors of the cache",
    lead="Every number of the cache is a little off: rounded, noisy, shifted, or of the wrong sign. How much of that "
    "does a model bear, and do keys bear what values do?",
    takes=_takes,
    find=content_of,
    chapter=CHAPTER,
)
