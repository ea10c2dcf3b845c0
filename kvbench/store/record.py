"""The row models of a store: the record of an answer, and its question and context, which stand once for all
records."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from kvbench.prompts.mode import Mode
from leaderboards.metrics import METRICS, with_columns
from policies import Level, Point


class StoredContext(BaseModel):
    """One context, stored once for all its questions and policies."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    task_version: str
    example_index: int
    example_id: str
    draw_id: str  # which all ways to write the same draw have
    arm: str  # the way in which the draw is written
    mode: Mode
    context: str
    token_ends: bytes  # where in the context each of its tokens ends, as little-endian uint32
    stated_values: list[str]  # what the context states about anything
    abstentions: list[str]
    answer_marker: str
    defence: str  # the text in it that forbids what an attack asks for, or nothing


class StoredQuestion(BaseModel):
    """One question, stored once for all policies and levels that answer it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    question_id: str
    example_index: int  # of its context
    question: str
    golds: list[str]
    every_gold: bool  # an answer has to name all golds; else any one of them is right
    answer_prefix: str  # the beginning of the sentence that states the answer
    target: str  # what a perfect output would be
    answerable: bool
    direction: str
    answer_type: str
    question_type: str
    hops: int
    answer_spans: list[int]  # characters of the context, first and behind the last, one span after the other
    evidence_spans: list[int]  # likewise
    other_values: list[str]  # right for something else, beside the values that the context states
    directives: list[str]  # each written as ``kind`` or ``kind argument``
    directive_families: list[str]
    protected: str  # the text that an attack is after
    context_tokens: int  # what is compressed; in aware mode the question is part of it
    answer_tokens: int  # how many of these tokens carry the answer
    evidence_tokens: int  # how many of them carry all that is needed for it


class AnswerRow(BaseModel):
    """Names the answer that a row of a study's table belongs to, by the key of its record."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    question_id: str
    policy: str
    level_kind: str
    level: float
    repeat: int


@with_columns({one.name: (one.type if one.required else one.type | None, ...) for one in METRICS.values()})
class Record(BaseModel):
    """One question, answered from what one policy leaves at one level. What has no value is null.

    A column for each metric of :mod:`leaderboards.metrics` follows, which says what it is; whether each directive is
    obeyed stands in the order of the question's directives. Of a press that acts while an answer is written, what
    survives, ``realised_ratio``, ``kept_tokens`` and ``kv_bytes`` are those at its end, with question and answer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    question_id: str
    policy: str
    level_kind: str  # with ``level``: what was asked of the policy
    level: float
    repeat: int  # which draw of a random policy, else 0
    ratio: float | None  # the share of this context that the level asks to remove; null where it removes no tokens
    status: Literal["ok", "failed"]
    reason: str | None  # why it failed
    press_arguments: str  # JSON, as policies have different ones
    output_text: str | None
    output_token_ids: list[int] | None  # what a replay needs
    ended: bool | None  # with an end token
    # A hash of the keep mask, or of the cache where it is rewritten: equal where the same is read in every layer and
    # head. Null where a step treatment changes what is read.
    cache_digest: str | None
    wave_halvings: int | None  # how often the batch that it was decoded in was halved, as memory ended

    @property
    def point(self) -> Point:
        return Point(Level(self.level_kind, self.level), self.repeat)

    if TYPE_CHECKING:  # the metrics, which mypy cannot see

        def __getattr__(self, name: str) -> Any: ...


RANGES = {"ratio": (0.0, 1.0)} | {one.name: one.bounds for one in METRICS.values() if one.bounds is not None}


@dataclass(frozen=True)
class StoredAnswer:
    """A record with its question and its context."""

    record: Record
    question: StoredQuestion
    context: StoredContext
