"""One question as a run stores it, once for all policies and levels that answer it."""

from pydantic import BaseModel, ConfigDict


class StoredQuestion(BaseModel):
    """``example_index``: which context of the task it is about. ``directives`` are written as ``kind`` or ``kind
    argument``. ``target`` is what a perfect output would be; ``other_values`` would be right for something else, beside
    the values that the context states; ``protected`` is the text that an attack is after. ``answer_spans`` and
    ``evidence_spans``: characters of the context, first and behind the last, one span after the other.
    ``context_tokens``: what is compressed, which in aware mode is more by the question; ``answer_tokens`` and
    ``evidence_tokens``: how many of these tokens carry the answer, and all that is needed for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    question_id: str
    example_index: int
    question: str
    golds: list[str]
    target: str
    answerable: bool
    direction: str
    answer_type: str
    question_type: str
    hops: int
    answer_spans: list[int]
    evidence_spans: list[int]
    other_values: list[str]
    directives: list[str]
    directive_families: list[str]
    protected: str
    context_tokens: int
    answer_tokens: int
    evidence_tokens: int
