"""kvpress's presses around another: they share out a budget, choose in chunks, turn or merge what
is kept. And those that remove something else than tokens of every layer: whole layers' middles, or
channels of the keys."""

from functools import partial

from policies.declaration.lazy import LazyModule, kvpress
from policies.declaration.policy import LevelRange, Needs, Policy, Press, Situation
from policies.declaration.shape import ONE_ROTATION
from policies.eviction.scorers import (
    LONGEST_WINDOW,
    SINK,
    WINDOW,
    compactor_press,
    expected_attention_press,
    observation_window,
    snapkv_press,
)

presses = LazyModule("policies.presses.adapted_kvpress")

# kvpress's own sizes, which are those of a context that is long enough for several such parts.
LONGEST_CHUNK = 1024
LONGEST_BLOCK = 128
LONGEST_CHUNK_OF_CHUNKKV = 20
LONGEST_GATED_CHUNK = 10
LONGEST_THINK = 32
WHOLE_CHUNKS = "whole chunks, at least one"

wrapper = partial(Policy, family="wrapper")
shared_out = partial(
    wrapper,
    budget="as many tokens in every layer, shared out among its heads by score",
    counted="layer",
    frees=False,
)


def _part_size(longest: int, context_length: int, parts: int) -> int:
    """Returns a size of kvpress's, but small enough that a context has several such parts."""
    return max(1, min(longest, context_length // parts))


def _entropy_chunkkv(situation: Situation) -> Press:
    length = max(2, _part_size(LONGEST_GATED_CHUNK, situation.context_length, 16))
    return kvpress.EntropyGatedChunkKVPress(
        snapkv_press(situation),
        chunk_length=length,
        # kvpress's 4 of 10 tokens. It asserts that this is less than a chunk, which has 2 at least.
        low_entropy_chunk_length=max(1, length * 4 // 10),
    )


def _think(ratio: float, context_length: int) -> Press:
    # Keys are half of the cache: to take a ratio of all of it, twice as large a share of them goes.
    return kvpress.ThinKPress(
        2 * ratio, window_size=min(LONGEST_THINK, observation_window(context_length))
    )


def _compose_with_think(situation: Situation) -> Press:
    """Composes two presses, each of which removes as large a share of what it is given."""
    # The shares that are left are multiplied: each press leaves the root of the whole.
    each = 1 - (1 - situation.ratio) ** 0.5
    length = situation.context_length
    return kvpress.ComposedPress(
        [kvpress.SnapKVPress(each, window_size=observation_window(length)), _think(each, length)]
    )


WRAPPERS = (
    shared_out(
        name="adakv_snapkv",
        paper="arXiv 2407.11550",
        description="SnapKV's scores, heads share a layer's budget",
        build=lambda situation: kvpress.AdaKVPress(snapkv_press(situation)),
        ratio_free_score=True,
        by_default=True,
        paper_arguments=WINDOW,
    ),
    shared_out(
        name="adakv_expected_attention",
        paper="arXiv 2407.11550",
        description="Expected attention, heads share a layer's budget",
        build=lambda situation: kvpress.AdaKVPress(expected_attention_press(situation)),
        needs=Needs(check_model=ONE_ROTATION, more_tokens_than=SINK),
        ratio_free_score=True,
    ),
    shared_out(
        name="adakv_compactor",
        paper="arXiv 2407.11550",
        description="Compactor's scores, heads share a layer's budget",
        build=lambda situation: kvpress.AdaKVPress(compactor_press(situation)),
        random=True,
        needs=Needs(more_tokens_than=16),
    ),
    wrapper(
        # Its first stage takes half of the budget, so that a scoring serves one ratio.
        name="criticalkv_snapkv",
        paper="arXiv 2502.03805",
        description="SnapKV; half also by the norm of projected values",
        build=lambda situation: kvpress.CriticalKVPress(snapkv_press(situation)),
        paper_arguments=WINDOW,
    ),
    wrapper(
        name="criticalkv_expected_attention",
        paper="arXiv 2502.03805",
        description="Expected attention; half by projected norms too",
        # With the norms of the values they would be counted twice, as kvpress warns.
        build=lambda situation: kvpress.CriticalKVPress(
            kvpress.ExpectedAttentionPress(situation.ratio, n_sink=SINK, use_vnorm=False)
        ),
        needs=Needs(check_model=ONE_ROTATION, more_tokens_than=SINK),
    ),
    shared_out(
        name="critical_adakv_snapkv",
        paper="arXiv 2502.03805",
        description="CriticalKV and AdaKV together around SnapKV",
        build=lambda situation: kvpress.CriticalAdaKVPress(snapkv_press(situation)),
        ratio_free_score=True,
        paper_arguments=WINDOW,
    ),
    wrapper(
        # K-norm looks at keys alone. kvpress gives the scorer of a chunk the rotation of the whole
        # context, by which SnapKV would turn the queries of a chunk to the places of the last
        # tokens.
        name="chunk_knorm",
        paper="doi 10.1162/tacl_a_00716",
        description="Keys of small norm, as many in every chunk",
        build=lambda situation: kvpress.ChunkPress(
            kvpress.KnormPress(situation.ratio),
            chunk_length=_part_size(LONGEST_CHUNK, situation.context_length, 4),
        ),
        # Each chunk keeps a whole number of tokens and one at least, and the rounding adds up.
        budget="as many tokens in every chunk of every head, rounded down",
        counted="nowhere",
        paper_arguments={"chunk_length": LONGEST_CHUNK},
    ),
    wrapper(
        name="chunkkv_snapkv",
        paper="arXiv 2502.00299",
        description="Whole chunks by the mean of SnapKV's scores",
        build=lambda situation: kvpress.ChunkKVPress(
            snapkv_press(situation),
            chunk_length=_part_size(LONGEST_CHUNK_OF_CHUNKKV, situation.context_length, 16),
        ),
        budget=WHOLE_CHUNKS,
        counted="nowhere",
        ratio_free_score=True,
        paper_arguments={**WINDOW, "chunk_length": LONGEST_CHUNK_OF_CHUNKKV},
    ),
    wrapper(
        name="entropy_chunkkv_snapkv",
        paper="arXiv 2502.00299",
        description="ChunkKV; a chunk with one high score in part",
        build=_entropy_chunkkv,
        ratio_free_score=True,
        paper_arguments={
            **WINDOW,
            "chunk_length": LONGEST_GATED_CHUNK,
            "low_entropy_chunk_length": 4,
        },
    ),
    wrapper(
        # KeyDiff too looks at keys alone: a block is scored with the rotation of the whole context.
        name="block_keydiff",
        paper="arXiv 2504.15364",
        description="KeyDiff, block after block, against what is kept",
        build=lambda situation: kvpress.BlockPress(
            kvpress.KeyDiffPress(situation.ratio),
            block_size=_part_size(LONGEST_BLOCK, situation.context_length, 8),
        ),
        paper_arguments={"block_size": LONGEST_BLOCK},
    ),
    wrapper(
        name="rerotated_streaming_llm",
        paper="arXiv 2309.17453",
        description="StreamingLLM of its paper: positions renumbered",
        build=lambda situation: kvpress.KeyRerotationPress(
            kvpress.StreamingLLMPress(situation.ratio, n_sink=SINK)
        ),
        needs=Needs(check_model=ONE_ROTATION, more_tokens_than=SINK),
        rewrites=True,
        renumbers=True,
    ),
    wrapper(
        name="rerotated_snapkv",
        paper="arXiv 2404.14469",
        description="SnapKV, positions of kept keys renumbered",
        build=lambda situation: kvpress.KeyRerotationPress(snapkv_press(situation)),
        needs=Needs(check_model=ONE_ROTATION),
        ratio_free_score=True,
        rewrites=True,
        renumbers=True,
        paper_arguments=WINDOW,
    ),
    wrapper(
        name="merging_snapkv",
        paper="arXiv 2406.13035",
        description="SnapKV, evicted values merged into similar ones",
        build=lambda situation: kvpress.MergingPress(snapkv_press(situation)),
        ratio_free_score=True,
        rewrites=True,
        paper_arguments=WINDOW,
    ),
    wrapper(
        name="per_layer_knorm",
        paper="-",
        description="Keys of small norm, fewer from layer to layer",
        build=lambda situation: presses.RampPress(
            kvpress.KnormPress(situation.ratio), ratio=situation.ratio
        ),
        budget="a ratio for each layer, whose mean is the one asked for",
        counted="nowhere",
        prefill="private",
    ),
    wrapper(
        name="simlayerkv",
        paper="arXiv 2410.13846",
        description="The first and last tokens alone, in some layers",
        build=lambda situation: kvpress.SimLayerKVPress(
            lazy_threshold=1 - situation.ratio,  # 1 compresses nothing, 0 every layer
            # kvpress keeps one token fewer than ``n_recent`` says.
            n_recent=observation_window(situation.context_length) + 1,
            n_initial=SINK,
        ),
        budget="the ratio sets how lazy a layer has to be; what comes of it differs",
        counted="nowhere",
        needs=Needs(more_tokens_than=16),
        paper_arguments={"n_recent": 1024},
    ),
    wrapper(
        name="think",
        paper="arXiv 2407.21018",
        description="All tokens, the weakest key channels blanked",
        build=lambda situation: _think(situation.ratio, situation.context_length),
        budget="channels of the keys, of which all are half of the cache",
        counted="nowhere",
        frees=False,
        rewrites=True,
        # At a half all channels of the keys would be blank.
        levels=LevelRange(highest_ratio=0.49),
        paper_arguments={"window_size": LONGEST_THINK},
    ),
    wrapper(
        name="composed_snapkv_think",
        paper="arXiv 2407.21018",
        description="SnapKV, then ThinK on what it keeps",
        build=_compose_with_think,
        budget="tokens and channels, as large a share of either",
        counted="nowhere",
        rewrites=True,
        prefill="private",
        # At 0.75 each would remove a half, which for ThinK is all channels of the keys.
        levels=LevelRange(highest_ratio=0.74),
        paper_arguments={
            "presses.0.window_size": LONGEST_WINDOW,
            "presses.1.window_size": LONGEST_THINK,
        },
    ),
)
