"""One context as a run stores it, once for all its questions and policies."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class StoredContext(BaseModel):
    """``arm`` is the way in which a draw is written, and all its ways have its ``draw_id``. ``mode``: whether the
    context was compressed with the question behind it. ``token_ends``: where in the context each of its tokens ends, as
    little-endian uint32. ``stated_values``: what it states about anything. ``defence``: the text in it that forbids
    what an attack asks for, or nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    task_version: str
    example_index: int
    example_id: str
    draw_id: str
    arm: str
    mode: Literal["agnostic", "aware"]
    context: str
    token_ends: bytes
    stated_values: list[str]
    abstentions: list[str]
    answer_marker: str
    defence: str
