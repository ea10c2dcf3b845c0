"""Chooses the questions that two runs share, so that both can stand in one picture or table."""

from dataclasses import replace

from pandas import DataFrame

from leaderboards.studies.declaration import StudyInput

# What makes two questions the same: their texts too, as another tokenizer may have made a context
# of other length.
QUESTION = ["task", "task_version", "example_id", "question_id", "context", "question"]
SAME = [*QUESTION, "mode"]  # of two models
MODELS = "Bands are 95 % intervals over contexts."


def shared_questions(study_input: StudyInput, other: StudyInput, by: list[str] = SAME) -> DataFrame:
    """Returns what names the questions that both were asked, one row for each."""
    here = study_input.records[by].drop_duplicates()
    there = other.records[by].drop_duplicates()
    # On all columns that both have, which are those that name a question.
    return here.merge(there)


def only_shared(study_input: StudyInput, shared: DataFrame) -> StudyInput:
    return replace(study_input, records=only(study_input.records, shared))


def only(records: DataFrame, shared: DataFrame) -> DataFrame:
    return records.merge(shared, on=list(shared.columns))
