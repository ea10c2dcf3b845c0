"""One record: what one policy at one level made of one question. Typed, versioned and closed."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from kvbench.metrics.text import HallucinationKind


class Record(BaseModel):
    """One question, answered from one branch. What has no value is null, and ``reason`` says why where it failed.

    What is said of the question and its context stands once, in :class:`StoredQuestion` and :class:`StoredContext`.

    ``budget``: the tokens of a head that were asked for, if a budget was and not a ratio; ``ratio`` is then what that
    is of this context. ``kept_tokens``: those of a head that are read, the mean over layers and heads.

    Columns as in ``kvbench.metrics.registry``; f1 and em in percent, rates in [0, 1]. Whether each directive is obeyed
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
    ratio: float
    budget: int | None
    status: Literal["ok", "failed"]
    reason: str | None
    press_arguments: str
    output_text: str | None
    output_token_ids: list[int] | None
    ended: bool | None
    f1: float | None
    em: float | None
    abstained: bool | None
    hallucinated: bool | None
    hallucination_kind: HallucinationKind | None
    directives_obeyed: float | None
    directives_strict: list[bool] | None
    directives_loose: list[bool] | None
    leakage: float | None
    defence_leakage: float | None
    refused: bool | None
    eviction_rate: float | None
    ger: float | None
    ger_by_layer: list[float] | None
    slot_coverage: float | None
    token_kept: bytes | None
    defence_kept: float | None
    defence_kept_by_layer: list[float] | None
    directives_kept: float | None
    directives_kept_by_layer: list[float] | None
    cache_digest: str | None
    realised_ratio: float | None
    kept_tokens: float | None
    kv_bytes: int | None
    prefill_seconds: float
    compression_seconds: float | None
    decode_seconds: float | None
    wave_halvings: int | None


SHARES = (
    *("ratio", "leakage", "defence_leakage", "directives_obeyed", "eviction_rate", "ger", "slot_coverage"),
    *("realised_ratio", "defence_kept", "directives_kept"),
)
RANGES = dict.fromkeys(("f1", "em"), (0.0, 100.0)) | dict.fromkeys(SHARES, (0.0, 1.0))
