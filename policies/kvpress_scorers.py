"""kvpress's presses that keep the tokens of highest score, in every head as many."""

from kvpress import BasePress, ExpectedAttentionPress, KnormPress, SnapKVPress, StreamingLLMPress, TOVAPress

from policies.policy import Policy, Situation

SINK = 4
LONGEST_WINDOW = 64


def observation_window(context_length: int) -> int:
    """SnapKV's window: kvpress's 64 tokens, but at most a sixteenth of the context.

    The window itself is always kept. At 64 of 120 tokens it alone would fill the budget above a ratio of 0.47, and
    which of its equal scores survive would be left to chance. Every record carries the window that was used.
    """
    return max(1, min(LONGEST_WINDOW, context_length // 16))


def snapkv_press(situation: Situation) -> SnapKVPress:
    return SnapKVPress(situation.ratio, window_size=observation_window(situation.context_length))


def snapkv_arguments(context_length: int) -> dict[str, int | float]:
    return {"window_size": observation_window(context_length), "kernel_size": SnapKVPress.kernel_size}


def _streaming_llm(situation: Situation) -> BasePress:
    return StreamingLLMPress(situation.ratio, n_sink=SINK)


def _expected_attention(situation: Situation) -> BasePress:
    return ExpectedAttentionPress(situation.ratio, n_sink=SINK)


STREAMING_LLM = Policy(
    name="streaming_llm",
    family="scorer",
    paper="arXiv 2309.17453",
    description="The first tokens and the most recent ones (not re-rotated)",
    build=_streaming_llm,
    arguments=lambda context_length: {"n_sink": SINK},
    more_tokens_than=SINK,
)
SNAPKV = Policy(
    name="snapkv",
    family="scorer",
    paper="arXiv 2404.14469",
    description="Attention from the last tokens of the context, smoothed",
    build=snapkv_press,
    ratio_free_score=True,
    arguments=snapkv_arguments,
)
TOVA = Policy(
    name="tova",
    family="scorer",
    paper="arXiv 2401.06104",
    description="Attention from the last token, averaged over heads",
    build=lambda situation: TOVAPress(situation.ratio),
    ratio_free_score=True,
)
KNORM = Policy(
    name="knorm",
    family="scorer",
    paper="arXiv 2406.11430",
    description="Keys of small norm",
    build=lambda situation: KnormPress(situation.ratio),
    ratio_free_score=True,
)
EXPECTED_ATTENTION = Policy(
    name="expected_attention",
    family="scorer",
    paper="arXiv 2510.00636",
    description="Attention expected from future queries",
    build=_expected_attention,
    ratio_free_score=True,
    arguments=lambda context_length: {
        "n_sink": SINK,
        "n_future_positions": ExpectedAttentionPress.n_future_positions,
    },
    more_tokens_than=SINK,
)
