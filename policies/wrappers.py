"""kvpress's presses around another: they share out a budget, choose in chunks, turn or merge what is kept."""

from dataclasses import dataclass, field
from typing import Any

from kvpress import (
    AdaKVPress,
    BasePress,
    BlockPress,
    ChunkKVPress,
    ChunkPress,
    CriticalAdaKVPress,
    CriticalKVPress,
    EntropyGatedChunkKVPress,
    ExpectedAttentionPress,
    KeyDiffPress,
    KeyRerotationPress,
    KnormPress,
    MergingPress,
    PerLayerCompressionPress,
    StreamingLLMPress,
)

from policies.policy import Policy, Situation
from policies.scorers import SINK, expected_attention_press, snapkv_press

LONGEST_CHUNK = 1024
LONGEST_BLOCK = 128
WHOLE_CHUNKS = "whole chunks, at least one"
SHARED_OUT = "as many tokens in every layer, shared out among its heads by score"
RAMP = 0.5  # of what is smaller, the share removed or the share kept


def _sized(longest: int, context_length: int, parts: int) -> int:
    """A size of kvpress's, but small enough that a context has several such parts."""
    return max(1, min(longest, context_length // parts))


def _chunkkv(situation: Situation) -> BasePress:
    return ChunkKVPress(snapkv_press(situation), chunk_length=_sized(20, situation.context_length, 16))


def _entropy_chunkkv(situation: Situation) -> BasePress:
    length = max(2, _sized(10, situation.context_length, 16))
    return EntropyGatedChunkKVPress(
        snapkv_press(situation), chunk_length=length, low_entropy_chunk_length=max(1, length * 4 // 10)
    )


def _chunk(situation: Situation) -> BasePress:
    return ChunkPress(KnormPress(situation.ratio), chunk_length=_sized(LONGEST_CHUNK, situation.context_length, 4))


def _block(situation: Situation) -> BasePress:
    return BlockPress(KeyDiffPress(situation.ratio), block_size=_sized(LONGEST_BLOCK, situation.context_length, 8))


def _criticalkv_expected_attention(situation: Situation) -> BasePress:
    """kvpress warns that the norms of the values would be counted twice."""
    return CriticalKVPress(ExpectedAttentionPress(situation.ratio, n_sink=SINK, use_vnorm=False))


@dataclass
class RampPress(PerLayerCompressionPress):
    """A ratio for each layer, rising in even steps from the first to the last; their mean is ``ratio``."""

    compression_ratios: list[float] = field(default_factory=list)
    ratio: float = 0.0

    def post_init_from_model(self, model: Any) -> None:
        layers = getattr(model.model, "language_model", model.model).layers
        reach = RAMP * min(self.ratio, 1 - self.ratio)
        last = max(1, len(layers) - 1)
        self.compression_ratios = [self.ratio + reach * (2 * number / last - 1) for number in range(len(layers))]


WRAPPERS = (
    Policy(
        name="adakv_snapkv",
        family="wrapper",
        paper="arXiv 2407.11550",
        description="SnapKV's scores, the budget shared among the heads of a layer",
        build=lambda situation: AdaKVPress(snapkv_press(situation)),
        budget=SHARED_OUT,
        counted="layer",
        frees=False,
        ratio_free_score=True,
        by_default=True,
    ),
    Policy(
        name="adakv_expected_attention",
        family="wrapper",
        paper="arXiv 2407.11550",
        description="Expected attention, the budget shared among the heads of a layer",
        build=lambda situation: AdaKVPress(expected_attention_press(situation)),
        budget=SHARED_OUT,
        counted="layer",
        frees=False,
        ratio_free_score=True,
        more_tokens_than=SINK,
    ),
    Policy(
        name="criticalkv_snapkv",
        family="wrapper",
        paper="arXiv 2502.03805",
        description="Half by SnapKV, half by its scores times the norm of the projected value",
        build=lambda situation: CriticalKVPress(snapkv_press(situation)),
    ),
    Policy(
        name="criticalkv_expected_attention",
        family="wrapper",
        paper="arXiv 2502.03805",
        description="The same around expected attention",
        build=_criticalkv_expected_attention,
        more_tokens_than=SINK,
    ),
    Policy(
        name="critical_adakv_snapkv",
        family="wrapper",
        paper="arXiv 2502.03805",
        description="CriticalKV and AdaKV together around SnapKV",
        build=lambda situation: CriticalAdaKVPress(snapkv_press(situation)),
        budget=SHARED_OUT,
        counted="layer",
        frees=False,
        ratio_free_score=True,
    ),
    Policy(
        name="chunk_knorm",
        family="wrapper",
        paper="doi 10.1162/tacl_a_00716",
        description="Keys of small norm, as many in every chunk",
        build=_chunk,
        budget="as many tokens in every chunk of every head, rounded down",
        counted="nowhere",
    ),
    Policy(
        name="chunkkv_snapkv",
        family="wrapper",
        paper="arXiv 2502.00299",
        description="Whole chunks by the mean of SnapKV's scores",
        build=_chunkkv,
        budget=WHOLE_CHUNKS,
        counted="nowhere",
        ratio_free_score=True,
    ),
    Policy(
        name="entropy_chunkkv_snapkv",
        family="wrapper",
        paper="arXiv 2502.00299",
        description="The same, but of a chunk with one high score that part alone",
        build=_entropy_chunkkv,
        ratio_free_score=True,
    ),
    Policy(
        name="block_keydiff",
        family="wrapper",
        paper="arXiv 2504.15364",
        description="KeyDiff, block by block, what was kept competing with each next block",
        build=_block,
    ),
    Policy(
        name="rerotated_streaming_llm",
        family="wrapper",
        paper="arXiv 2309.17453",
        description="StreamingLLM as its paper has it: kept keys turned to consecutive positions",
        build=lambda situation: KeyRerotationPress(StreamingLLMPress(situation.ratio, n_sink=SINK)),
        more_tokens_than=SINK,
        rewrites=True,
        renumbers=True,
    ),
    Policy(
        name="rerotated_snapkv",
        family="wrapper",
        paper="arXiv 2404.14469",
        description="SnapKV, kept keys turned to consecutive positions",
        build=lambda situation: KeyRerotationPress(snapkv_press(situation)),
        ratio_free_score=True,
        rewrites=True,
        renumbers=True,
    ),
    Policy(
        name="merging_snapkv",
        family="wrapper",
        paper="arXiv 2406.13035",
        description="SnapKV, evicted values merged into those of the most similar kept keys",
        build=lambda situation: MergingPress(snapkv_press(situation)),
        ratio_free_score=True,
        rewrites=True,
    ),
    Policy(
        name="per_layer_knorm",
        family="wrapper",
        paper="-",
        description="Keys of small norm, fewer from layer to layer",
        build=lambda situation: RampPress(KnormPress(situation.ratio), ratio=situation.ratio),
        budget="a ratio for each layer, whose mean is the one asked for",
        counted="nowhere",
        prefill="private",
    ),
)
