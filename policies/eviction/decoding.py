"""Presses that cut the cache again after every token that is read behind the context.

kvpress's default waits 512 tokens between two cuts, more than an answer here is long.
"""

from collections.abc import Callable

from policies.declaration.lazy import LazyModule
from policies.declaration.policy import Policy, Press, Situation
from policies.declaration.shape import LEVEL_QUESTION, ModelShape
from policies.eviction.scorers import SINK

kvpress = LazyModule("kvpress")

OUT_OF_REACH = 2**30  # a size that no cache here has
A_SIZE = "as many tokens of context, question and answer together as the ratio leaves of the context"


def target_size(situation: Situation) -> int:
    """Returns the number of tokens of each head, question and answer among them; at ratio 0 nothing is ever cut."""
    return kvpress.utils.compute_n_kept(situation.context_length, situation.ratio) if situation.ratio else OUT_OF_REACH


def _decoding_press(scorer: str, **arguments: int) -> Callable[[Situation], Press]:
    """Returns how to build a press that cuts while decoding. ``scorer``: the name of a press of kvpress."""

    def build(situation: Situation) -> Press:
        base = getattr(kvpress, scorer)(**arguments)
        return kvpress.DecodingPress(base, compression_interval=1, target_size=target_size(situation))

    return build


def _decoding_ratio(situation: Situation) -> Press:
    return kvpress.CompressionRatioDecodingPress(
        kvpress.KnormPress(), compression_interval=1, target_compression_ratio=situation.ratio
    )


def _prefill_decoding(situation: Situation) -> Press:
    decoding = kvpress.DecodingPress(kvpress.KnormPress(), compression_interval=1, target_size=target_size(situation))
    return kvpress.PrefillDecodingPress(kvpress.KnormPress(situation.ratio), decoding)


def _cam(situation: Situation) -> Press:
    return kvpress.CAMPress(kvpress.KnormPress(), compression_interval=1, target_size=target_size(situation))


def _policy(
    name: str,
    paper: str,
    description: str,
    build: Callable[[Situation], Press],
    budget: str = A_SIZE,
    more_tokens_than: int = 1,
    rewrites: bool = False,
    random: bool = False,
    check_model: Callable[[ModelShape], None] | None = None,
) -> Policy:
    return Policy(
        name=name,
        family="decoding",
        paper=paper,
        description=description,
        build=build,
        budget=budget,
        counted="nowhere",
        while_decoding=True,
        prefill="private",
        more_tokens_than=more_tokens_than,
        rewrites=rewrites,
        random=random,
        check_model=check_model,
    )


DECODING = (
    _policy(
        "decoding_knorm", "arXiv 2406.11430", "Keys of small norm, cut after every token", _decoding_press("KnormPress")
    ),
    _policy(
        "decoding_streaming_llm",
        "arXiv 2309.17453",
        "The first and the most recent, cut after every token",
        _decoding_press("StreamingLLMPress", n_sink=SINK),
        more_tokens_than=SINK,
    ),
    _policy(
        "decoding_tova", "arXiv 2401.06104", "TOVA as its paper has it, at every token", _decoding_press("TOVAPress")
    ),
    _policy(
        "decoding_keydiff",
        "arXiv 2504.15364",
        "Keys unlike the mean key, cut after every token",
        _decoding_press("KeyDiffPress"),
    ),
    _policy(
        "decoding_ratio_knorm",
        "arXiv 2406.11430",
        "Keys of small norm, a share of all read, at every token",
        _decoding_ratio,
        budget="a share of all tokens read so far",
    ),
    _policy(
        "prefill_decoding_knorm",
        "arXiv 2406.11430",
        "Keys of small norm, cut after context and every token",
        _prefill_decoding,
        check_model=LEVEL_QUESTION,
    ),
    _policy(
        "cam_knorm",
        "openreview LCTmppB165",
        "The same, evicted values merged at random into others",
        _cam,
        rewrites=True,
        random=True,
    ),
)
