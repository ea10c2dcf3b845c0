"""Presses that cut the cache again after every token that is read behind the context.

kvpress's default waits 512 tokens between two cuts, more than an answer here is long.
"""

from functools import partial

from policies.declaration.lazy import kvpress
from policies.declaration.policy import Needs, Policy, Press, Situation
from policies.declaration.shape import LEVEL_QUESTION
from policies.eviction.scorers import SINK

OUT_OF_REACH = 2**30  # a size that no cache here has
A_SIZE = (
    "as many tokens of context, question and answer together as the ratio leaves of the context"
)


def target_size(situation: Situation) -> int:
    """Returns the number of tokens of each head, question and answer among them; at ratio 0 nothing
    is ever cut."""
    # Not the length of the context, or the first token of the question would be cut already.
    if not situation.ratio:
        return OUT_OF_REACH
    size: int = kvpress.utils.compute_n_kept(situation.context_length, situation.ratio)
    return size


def _decoding_press(situation: Situation, scorer: Press) -> Press:
    return kvpress.DecodingPress(scorer, compression_interval=1, target_size=target_size(situation))


# Their hook acts in every pass behind the context and remembers between passes, so that neither the
# prefill nor the steps can be shared.
decoding = partial(
    Policy,
    family="decoding",
    budget=A_SIZE,
    counted="nowhere",
    while_decoding=True,
    prefill="private",
)
# Scorers that need no hidden states but those of the last pass, as kvpress keeps no others between
# two cuts: SnapKV asserts more of them than its window.
DECODING = (
    decoding(
        name="decoding_knorm",
        paper="arXiv 2406.11430",
        description="Keys of small norm, cut after every token",
        build=lambda situation: _decoding_press(situation, kvpress.KnormPress()),
    ),
    decoding(
        name="decoding_streaming_llm",
        paper="arXiv 2309.17453",
        description="The first and the most recent, cut after every token",
        build=lambda situation: _decoding_press(situation, kvpress.StreamingLLMPress(n_sink=SINK)),
        needs=Needs(more_tokens_than=SINK),
    ),
    decoding(
        name="decoding_tova",
        paper="arXiv 2401.06104",
        description="TOVA as its paper has it, at every token",
        build=lambda situation: _decoding_press(situation, kvpress.TOVAPress()),
    ),
    decoding(
        name="decoding_keydiff",
        paper="arXiv 2504.15364",
        description="Keys unlike the mean key, cut after every token",
        build=lambda situation: _decoding_press(situation, kvpress.KeyDiffPress()),
    ),
    decoding(
        name="decoding_ratio_knorm",
        paper="arXiv 2406.11430",
        description="Keys of small norm, a share of all read, at every token",
        build=lambda situation: kvpress.CompressionRatioDecodingPress(
            kvpress.KnormPress(), compression_interval=1, target_compression_ratio=situation.ratio
        ),
        budget="a share of all tokens read so far",
    ),
    decoding(
        name="prefill_decoding_knorm",
        paper="arXiv 2406.11430",
        description="Keys of small norm, cut after context and every token",
        build=lambda situation: kvpress.PrefillDecodingPress(
            kvpress.KnormPress(situation.ratio), _decoding_press(situation, kvpress.KnormPress())
        ),
        # It alone cuts before the question is read: sliding layers, which stay whole, are longer
        # then.
        needs=Needs(check_model=LEVEL_QUESTION),
    ),
    decoding(
        name="cam_knorm",
        paper="openreview LCTmppB165",
        description="Keys of small norm; evicted values are merged",
        build=lambda situation: kvpress.CAMPress(
            kvpress.KnormPress(), compression_interval=1, target_size=target_size(situation)
        ),
        rewrites=True,
        random=True,
    ),
)
