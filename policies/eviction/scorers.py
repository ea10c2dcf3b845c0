"""kvpress's presses that keep the tokens of highest score.

A window, a lag or a sink of kvpress's size would fill the budget of a short context alone. Where
one depends on the length of the context, every record carries the size that was used."""

from functools import partial

from policies.declaration.lazy import LazyModule, kvpress
from policies.declaration.policy import Baseline, Needs, Policy, Press, Situation
from policies.declaration.shape import ONE_ROTATION

h2o = LazyModule("policies.presses.h2o")
presses = LazyModule("policies.presses.adapted_kvpress")

SINK = 4
LONGEST_WINDOW = 64
# At a ratio of 0.9 more than the window is kept of so many tokens.
LONG_ENOUGH = 11 * LONGEST_WINDOW
LONGEST_LAG = 128
WINDOW = {"window_size": LONGEST_WINDOW}  # the paper argument of SnapKV, and of what is around it
# Kvpress's beta: the most budgets that the lowest layer of a pyramid has for one of the highest.
STEEPEST = 20

scorer = partial(Policy, family="scorer")


def observation_window(context_length: int) -> int:
    """Returns SnapKV's window: the 64 tokens of its paper, and in a short context a sixteenth of
    it.

    The window itself is always kept. At 64 of 120 tokens it alone would fill the budget above a
    ratio of 0.47, and which of its equal scores survive would be left to chance."""
    if context_length >= LONG_ENOUGH:
        return LONGEST_WINDOW
    return max(1, context_length // 16)


def snapkv_press(situation: Situation) -> Press:
    return kvpress.SnapKVPress(
        situation.ratio, window_size=observation_window(situation.context_length)
    )


def expected_attention_press(situation: Situation) -> Press:
    return kvpress.ExpectedAttentionPress(situation.ratio, n_sink=SINK)


def compactor_press(situation: Situation) -> Press:
    return presses.SeededCompactorPress(
        situation.ratio, seed=situation.seed, example_id=situation.example_id
    )


def _lagkv(situation: Situation) -> Press:
    """Builds LagKV, which falls back on the most recent tokens in a context shorter than two lags
    and the sink."""
    # kvpress always keeps the sink and the last lag, which with eight lags are about an eighth of a
    # context. With its 128 tokens a context of fewer than 260 would be scored by recency alone.
    lag = max(1, min(LONGEST_LAG, (situation.context_length - SINK) // 8))
    return kvpress.LagKVPress(situation.ratio, n_sink=SINK, lag_size=lag)


def _pyramidkv(situation: Situation) -> Press:
    """Builds PyramidKV. Where the highest layer would get less than the window, kvpress makes it
    SnapKV."""
    # Smaller than SnapKV's, which leaves room for a pyramid: beta is at most the number of windows
    # that are kept, or the highest layer would get less than one.
    window = max(1, min(LONGEST_WINDOW, situation.context_length // 64))
    kept = int(situation.context_length * (1 - situation.ratio))
    return kvpress.PyramidKVPress(
        situation.ratio, window_size=window, beta=max(2, min(STEEPEST, kept // window))
    )


# Its scores are 1 and 0 for the ratio that it is asked for, so each ratio is scored by itself.
STREAMING_LLM = scorer(
    name="streaming_llm",
    paper="arXiv 2309.17453",
    description="The first and the most recent tokens (not re-rotated)",
    build=lambda situation: kvpress.StreamingLLMPress(situation.ratio, n_sink=SINK),
    needs=Needs(more_tokens_than=SINK),
    by_default=True,
)
SNAPKV = scorer(
    name="snapkv",
    paper="arXiv 2404.14469",
    description="Attention from the context's last tokens, smoothed",
    build=snapkv_press,
    paper_arguments=WINDOW,
    ratio_free_score=True,
    by_default=True,
)
# A gap to the paper: kvpress never evicts the last token.
TOVA = scorer(
    name="tova",
    paper="arXiv 2401.06104",
    description="Attention from the last token, averaged over heads",
    build=lambda situation: kvpress.TOVAPress(situation.ratio),
    ratio_free_score=True,
    by_default=True,
)
KNORM = scorer(
    name="knorm",
    paper="arXiv 2406.11430",
    description="Keys of small norm",
    build=lambda situation: kvpress.KnormPress(situation.ratio),
    ratio_free_score=True,
    by_default=True,
)
H2O = scorer(
    name="h2o",
    paper="arXiv 2306.14048",
    description="Attention received during the prefill",
    build=lambda situation: h2o.H2OPress(situation.ratio),
    ratio_free_score=True,
    # kvpress reads the weights, which the eager attention alone returns.
    baseline=Baseline(lambda situation: kvpress.ObservedAttentionPress(situation.ratio), "eager"),
    by_default=True,
)
SCORERS = (
    *(STREAMING_LLM, SNAPKV, TOVA, KNORM),
    scorer(
        name="expected_attention",
        paper="arXiv 2510.00636",
        description="Attention expected from future queries",
        build=expected_attention_press,
        needs=Needs(check_model=ONE_ROTATION, more_tokens_than=SINK),
        ratio_free_score=True,
        by_default=True,
    ),
    scorer(
        name="pyramidkv",
        paper="arXiv 2406.02069",
        description="SnapKV's scores, larger budgets for lower layers",
        build=_pyramidkv,
        paper_arguments={**WINDOW, "beta": STEEPEST},
        budget="fewer tokens from layer to layer, on average as many as asked",
        counted="nowhere",
    ),
    scorer(
        name="keydiff",
        paper="arXiv 2504.15364",
        description="Keys unlike the mean key",
        build=lambda situation: kvpress.KeyDiffPress(situation.ratio),
        ratio_free_score=True,
    ),
    scorer(
        name="lagkv",
        paper="arXiv 2504.04704",
        description="Keys and values that stand out from those a lag later",
        build=_lagkv,
        paper_arguments={"lag_size": LONGEST_LAG},
        ratio_free_score=True,
        needs=Needs(more_tokens_than=SINK),
    ),
    scorer(
        name="leverage",
        paper="arXiv 2507.08143",
        description="Keys that others do not span (statistical leverage)",
        build=lambda situation: presses.SeededLeveragePress(
            situation.ratio, seed=situation.seed, example_id=situation.example_id
        ),
        random=True,
        ratio_free_score=True,
    ),
    scorer(
        # In kvpress 0.5.5 the padding of the last chunk takes part in its softmax (it is masked
        # with -1e-9). It is measured as it is.
        name="non_causal",
        paper="arXiv 2507.08143",
        description="Attention without the causal mask, chunk by chunk",
        build=lambda situation: kvpress.NonCausalAttnPress(situation.ratio),
        ratio_free_score=True,
    ),
    scorer(
        # kvpress weighs the two scores by the ratio, so that a scoring serves one ratio. It sets
        # the first 8 and the last 4 tokens apart before it scores the rest, which must not be
        # empty.
        name="compactor",
        paper="arXiv 2507.08143",
        description="Leverage and non-causal attention, blended by ratio",
        build=compactor_press,
        random=True,
        needs=Needs(more_tokens_than=16),
    ),
    scorer(
        # Nothing is drawn: by default kvpress takes no random projection.
        name="cur",
        paper="arXiv 2509.15038",
        description="Leverage of keys times leverage of values",
        build=lambda situation: kvpress.CURPress(situation.ratio, num_sinks=SINK),
        ratio_free_score=True,
    ),
    scorer(
        name="capkv",
        paper="arXiv 2604.25975",
        description="What a token adds to the capacity of the cache",
        build=lambda situation: kvpress.CapPress(situation.ratio, n_sink=SINK),
        needs=Needs(check_model=ONE_ROTATION, more_tokens_than=SINK),
        ratio_free_score=True,
    ),
    H2O,
    scorer(
        name="finch",
        paper="doi 10.1162/tacl_a_00716",
        description="Attention from the question; positions renumbered",
        build=lambda situation: presses.KnownQuestionFinchPress(
            situation.ratio, window_size=situation.question_tokens
        ),
        needs=Needs(check_model=ONE_ROTATION, question=True),
        rewrites=True,
        renumbers=True,
    ),
)
