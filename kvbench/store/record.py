"""One record: what one policy at one level made of one question. Typed, versioned and closed."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from leaderboards.metrics import METRICS, with_columns
from policies import Level, Point


@with_columns({one.name: (one.type if one.required else one.type | None, ...) for one in METRICS.values()})
class Record(BaseModel):
    """One question, answered from one branch. What has no value is null, and ``reason`` says why where it failed.

    What is said of the question and its context stands once, in :class:`StoredQuestion` and :class:`StoredContext`.

    ``level_kind`` and ``level``: what was asked of the policy; ``repeat``: which draw of a random one, else 0.
    ``ratio``: the share of this context to remove that the level stands for, null for a policy that removes no tokens.
    ``kept_tokens``: those of a head that are read, the mean over layers and heads.

    A column for each metric of ``metrics`` follows, which says what it is. Whether each directive is obeyed
    stands in the order of the question's directives. ``output_token_ids`` are what a replay needs. ``token_kept``: a
    byte for each token of the context, the share of the slots that keep it in 255ths. ``press_arguments`` is JSON: they
    differ between policies. ``cache_digest`` is a hash of the keep mask, or of the cache itself where it is rewritten:
    equal where the same is read in every layer and head. Of a press that acts while an answer is written, what
    survives, ``realised_ratio``, ``kept_tokens`` and ``kv_bytes`` are those at its end, with question and answer.
    ``wave_halvings``: how often the batch that it was decoded in had been halved, as memory ended.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    question_id: str
    policy: str
    level_kind: str
    level: float
    repeat: int
    ratio: float | None
    status: Literal["ok", "failed"]
    reason: str | None
    press_arguments: str
    output_text: str | None
    output_token_ids: list[int] | None
    ended: bool | None
    cache_digest: str | None
    wave_halvings: int | None

    @property
    def point(self) -> Point:
        return Point(Level(self.level_kind, self.level), self.repeat)

    if TYPE_CHECKING:  # the metrics, which mypy cannot see

        def __getattr__(self, name: str) -> Any: ...


RANGES = {"ratio": (0.0, 1.0)} | {one.name: one.bounds for one in METRICS.values() if one.bounds is not None}
