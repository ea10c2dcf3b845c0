"""Presses that need a prefill of their own: they read the context again, or cut the cache once all
layers are read."""

from functools import partial

from policies.declaration.lazy import LazyModule, kvpress
from policies.declaration.policy import Needs, Policy, Press, Situation
from policies.declaration.shape import EVERY_LAYER, NOT_GEMMA, ONE_ROTATION
from policies.eviction.scorers import SINK, observation_window

presses = LazyModule("policies.presses.adapted_kvpress")

OVER_THE_CACHE = "as many tokens over all layers and heads"
# It masks: kvpress gives the evicted rows keys that no query attends to, and keeps their room.
over_the_cache = partial(
    Policy, family="prefill", budget=OVER_THE_CACHE, counted="cache", frees=False, prefill="private"
)

kvzip = partial(
    over_the_cache,
    needs=Needs(check_model=NOT_GEMMA, more_tokens_than=16),
    ratio_free_score=True,
    caveat="kvpress 0.5.5 gives no score to as many first tokens as the chat template puts before a "
    "user’s text, and evicts them before all others: a system prompt loses its beginning",
)
kvcompose = partial(
    Policy,
    family="prefill",
    paper="arXiv 2509.05165",
    needs=Needs(check_model=EVERY_LAYER),
    budget=OVER_THE_CACHE,
    counted="nowhere",
    prefill="private",
    ratio_free_score=True,
)
dms = partial(
    Policy,
    family="prefill",
    budget="a threshold for each layer, set so that as many tokens go",
    counted="layer",
    frees=False,
    prefill="private",
    paper_arguments={"sliding_window_size": 128},
)


def _duo_attention(situation: Situation) -> Press:
    recent = observation_window(situation.context_length)
    # A streaming head loses what is neither sink nor recent, so more heads must stream than the
    # ratio says. Where all of them do, less goes than was asked for. One token at least, or this
    # would be 0.
    evictable = max(1, situation.context_length - SINK - recent) / situation.context_length
    return presses.CalibratedDuoAttentionPress(
        min(1.0, situation.ratio / evictable), texts=situation.texts, sink=SINK, recent=recent
    )


def dms_press(scorer: Press, situation: Situation) -> Press:
    # kvpress's 128 would protect all of a short context.
    window = observation_window(situation.context_length)
    return presses.BudgetedDMSPress(scorer, sliding_window_size=window, ratio=situation.ratio)


PRIVATE_PREFILL = (
    kvzip(
        name="kvzip",
        paper="arXiv 2505.23416",
        description="Attention received while the model repeats the context",
        build=lambda situation: kvpress.KVzipPress(situation.ratio, n_sink=SINK),
    ),
    kvzip(
        name="kvzip_plus",
        paper="arXiv 2505.23416",
        description="KVzip, weighed by norms of values and hidden states",
        build=lambda situation: kvpress.KVzipPress(
            situation.ratio, n_sink=SINK, kvzip_plus_normalization=True
        ),
    ),
    kvzip(
        name="kvgrad",
        paper="openreview cg1wTCJjjk",
        description="KVzip, weighed by the gradient of the last hidden states",
        build=lambda situation: kvpress.KVgradPress(situation.ratio, n_sink=SINK),
    ),
    kvcompose(
        name="kvcompose",
        description="Attention in a second reading; layers of any size",
        build=lambda situation: kvpress.KVComposePress(compression_ratio=situation.ratio),
    ),
    kvcompose(
        name="kvcompose_unstructured",
        description="Attention in a second reading; heads of any size",
        build=lambda situation: presses.TrimmedKVComposePress(
            structured=False, compression_ratio=situation.ratio
        ),
        frees=False,
    ),
    Policy(
        name="duo_attention",
        family="prefill",
        paper="arXiv 2410.10819",
        description="Heads that look back keep all, others the two ends",
        build=_duo_attention,
        needs=Needs(check_model=ONE_ROTATION, more_tokens_than=16, calibration=True),
        budget="as many streaming heads as it takes",
        counted="nowhere",
        frees=False,
        paper_arguments={"sink": 128, "recent": 256},
    ),
    dms(
        name="dms_knorm",
        paper="arXiv 2506.05345",
        description="Keys of a norm below the threshold of each layer",
        build=lambda situation: dms_press(kvpress.KnormPress(), situation),
    ),
)
