"""Metrics of compression and its cost, as the run measures them: what went, what is held, how long
it took."""

import numpy as np

from leaderboards.metrics.declaration import (
    PLAIN,
    SHARE,
    Definition,
    Measure,
    Metric,
    Over,
    Sample,
    Scale,
    size_text,
)
from leaderboards.statistics.bootstrap import FloatArray

COMPRESSION = Definition(
    "Asked ratio or budget, realised ratio, bytes",
    "Compression is three numbers. The first is what was asked: the share of the cache to go, or "
    "the tokens to stay in each head. The second is what went, counted from what is really kept "
    "in each layer and head. The third is the bytes that an allocator would still hold, of a "
    "cache in 16 bits also where the model computes in float32, as caches are kept in use. A "
    "head-wise press masks, and frees nothing. Presses leave the sliding layers of Gemma 3 whole. "
    "Ratio, budget, kept tokens and realised ratio are those of its other layers alone. The bytes "
    "are those of all layers, of a sliding one as many as its window holds.",
    "realised ratio = 1 − tokens read / tokens of the context, the mean over layers and heads",
    chapter="compression",
)
WORK = Definition(
    "Time of compression",
    "The press’s own work on a context, as if it ran alone, without the prefill that all share: "
    "the mean over contexts, whose mean length stands below it. A short context takes longer for "
    "each token: doctor times one of its own length. As a share of the prefill it is about the same "
    "on a slow machine and on a fast one.",
    chapter="compression",
)
OF_PREFILL = Scale(100, 0, None)  # in percent: a press that reads again takes more than a prefill
TIMES = Definition(
    "Other times",
    "Of the uncompressed prefill that all branches of a context share, and a question’s equal "
    "share of the batch that it was decoded in.",
    chapter="compression",
)


def _of_prefill(sample: Sample) -> FloatArray:
    """Returns the time of compression as a share of the prefill's, which was measured beside it."""
    prefill = np.asarray(sample["prefill_seconds"], dtype=np.float64)
    compression = np.asarray(sample["compression_seconds"], dtype=np.float64)
    shares: FloatArray = np.full(len(prefill), np.nan)
    np.divide(compression, prefill, out=shares, where=prefill > 0)
    return shares


METRICS = (
    Metric(
        name="realised_ratio",
        type=float,
        line="Share of the cache that is not read any more, counted per layer and head",
        definition=COMPRESSION,
        bounds=(0, 1),
        measures=(
            Measure(
                field="realised_ratio",
                title="Realised ratio",
                unit="share of the cache that is gone",
                over=Over.ALL,
                scale=SHARE,
                table=True,
                heading="realised ratio",
            ),
        ),
    ),
    Metric(
        name="kept_tokens",
        type=float,
        unit="tokens",
        line="Tokens of a head that are read, the mean over layers and heads",
        definition=COMPRESSION,
        measures=(
            Measure(field="kept_tokens", over=Over.ALL, scale=PLAIN, heading="tokens in a head"),
        ),
    ),
    Metric(
        name="kv_bytes",
        type=int,
        unit="bytes",
        better="lower",
        line="What an allocator would hold, of a cache in 16 bits: a press that masks frees nothing",
        definition=COMPRESSION,
        measures=(
            # The cache is one for all questions about a context.
            Measure(
                field="kv_bytes", over=Over.CONTEXTS, scale=PLAIN, heading="cache", writer=size_text
            ),
        ),
    ),
    Metric(
        name="prefill_seconds",
        type=float,
        unit="seconds",
        better="lower",
        line="The uncompressed prefill that all branches share",
        definition=TIMES,
    ),
    Metric(
        name="compression_seconds",
        type=float,
        unit="seconds",
        better="lower",
        line="The press's own work as if it ran alone; by scores: without copying what they keep",
        definition=WORK,
        measures=(
            Measure(
                name="compression",
                field="compression_seconds",
                over=Over.CONTEXTS,
                scale=PLAIN,
                heading="compression",
                writer=lambda seconds: f"{1000 * seconds:.2f} ms",
            ),
            Measure(
                name="compression-of-prefill",
                field="compression_of_prefill",
                over=Over.CONTEXTS,
                scale=OF_PREFILL,
                columns=("compression_seconds", "prefill_seconds"),
                values=_of_prefill,
                heading="of a prefill",
                writer=lambda share: f"{100 * share:.0f} %",
            ),
        ),
    ),
    Metric(
        name="decode_seconds",
        type=float,
        unit="seconds",
        better="lower",
        line="The question's equal share of its batched decode",
        definition=TIMES,
    ),
)
