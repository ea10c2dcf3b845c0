"""Presses that need a prefill of their own: they read the context again, or cut the cache once all layers are read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import kvpress.presses.duo_attention_press as duo_attention
import pandas as pd
import torch
from kvpress import BasePress, DMSPress, DuoAttentionPress, KnormPress, KVComposePress, KVgradPress, KVzipPress
from kvpress.presses.base_press import is_prefilling
from torch import nn

from policies.policy import Policy, Situation
from policies.scorers import SINK, observation_window

OVER_THE_CACHE = "as many tokens over all layers and heads"


@dataclass
class TrimmedKVComposePress(KVComposePress):
    """KVCompose, whose unstructured form in kvpress 0.5.5 leaves the second reading of the context in the cache."""

    def compress_unstructured(self, model: Any) -> None:
        super().compress_unstructured(model)
        for layer in self.cache.layers:
            layer.keys = layer.keys[:, :, : self.context_len].contiguous()
            layer.values = layer.values[:, :, : self.context_len].contiguous()


@dataclass
class BudgetedDMSPress(DMSPress):
    """DMS with the threshold, layer by layer, below which as many scores lie as ``ratio`` asks to evict.

    What lies in the sliding window is never evicted, as in kvpress.
    """

    ratio: float = 0.0

    def forward_hook(self, module: nn.Module, inputs: Any, kwargs: dict[str, Any], output: Any) -> Any:
        hidden_states = kwargs["hidden_states"]
        if is_prefilling(kwargs["cache_position"], hidden_states.shape[1]):
            layer = kwargs["past_key_values"].layers[module.layer_idx]
            scores = self.press.score(module, hidden_states, layer.keys, layer.values, None, kwargs)
            self.threshold = self._threshold(scores)
        return super().forward_hook(module, inputs, kwargs, output)

    def _threshold(self, scores: torch.Tensor) -> float:
        """``scores``: shape (1, num_kv_heads, seq_len)."""
        count = round(scores.numel() * self.ratio)
        evictable = scores[..., : -self.sliding_window_size].flatten().sort().values
        return float(evictable[count]) if count < len(evictable) else float("inf")


# kvpress remembers scores by the path of a model, which two models may share.
_SCORE_HEADS = duo_attention.duo_attention_on_the_fly.__wrapped__
_HEAD_SCORES: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()


@dataclass
class CalibratedDuoAttentionPress(DuoAttentionPress):
    """DuoAttention with kvpress's own scoring of heads, on the given texts instead of a data set of the hub.

    ``texts`` gives prose; the heads of a model are scored once. ``sink`` and ``recent``: tokens that a streaming head
    keeps, where kvpress's 128 and 256 are longer than many contexts.
    """

    on_the_fly_scoring: bool = True
    texts: Callable[[], Sequence[str]] = field(default=tuple, repr=False)
    sink: int = 128
    recent: int = 256

    def post_init_from_model(self, model: Any) -> None:
        with _replaced(duo_attention, "duo_attention_on_the_fly", self._head_scores):
            super().post_init_from_model(model)
        self.sink_size, self.recent_size = self.sink, self.recent

    def _head_scores(self, model: Any) -> Any:
        """Array of shape (layers, num_kv_heads): the higher, the more of a retrieval head."""
        if model not in _HEAD_SCORES:
            chapters = Chapters(pd.DataFrame({"chapter": list(self.texts())}))
            with _replaced(duo_attention, "load_dataset", lambda *_, **__: chapters):
                _HEAD_SCORES[model] = _SCORE_HEADS(model, num_samples=len(chapters.frame))
        return _HEAD_SCORES[model]


@dataclass(frozen=True)
class Chapters:
    """As much of a data set as kvpress asks of it."""

    frame: pd.DataFrame

    def to_pandas(self) -> pd.DataFrame:
        return self.frame


@contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """Has a module find ``value`` under a name of its own: kvpress takes neither texts nor scores as an argument."""
    own = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, own)


def _duo_attention(situation: Situation) -> BasePress:
    recent = observation_window(situation.context_length)
    evictable = max(1, situation.context_length - SINK - recent) / situation.context_length
    return CalibratedDuoAttentionPress(
        min(1.0, situation.ratio / evictable), texts=situation.texts, sink=SINK, recent=recent
    )


def _dms(situation: Situation) -> BasePress:
    window = observation_window(situation.context_length)
    return BudgetedDMSPress(KnormPress(), sliding_window_size=window, ratio=situation.ratio)


PRIVATE_PREFILL = (
    Policy(
        name="kvzip",
        family="prefill",
        paper="arXiv 2505.23416",
        description="Attention received while the model repeats the context",
        build=lambda situation: KVzipPress(situation.ratio, n_sink=SINK),
        budget=OVER_THE_CACHE,
        counted="cache",
        frees=False,
        prefill="private",
        more_tokens_than=16,
    ),
    Policy(
        name="kvzip_plus",
        family="prefill",
        paper="arXiv 2505.23416",
        description="KVzip, its attention weighed by the norms of projected values and hidden states",
        build=lambda situation: KVzipPress(situation.ratio, n_sink=SINK, kvzip_plus_normalization=True),
        budget=OVER_THE_CACHE,
        counted="cache",
        frees=False,
        prefill="private",
        more_tokens_than=16,
    ),
    Policy(
        name="kvgrad",
        family="prefill",
        paper="openreview cg1wTCJjjk",
        description="KVzip, its attention weighed by the gradient of the last hidden states",
        build=lambda situation: KVgradPress(situation.ratio, n_sink=SINK),
        budget=OVER_THE_CACHE,
        counted="cache",
        frees=False,
        prefill="private",
        more_tokens_than=16,
    ),
    Policy(
        name="kvcompose",
        family="prefill",
        paper="arXiv 2509.05165",
        description="Attention received while the context is read twice, every head its own tokens, layers of any size",
        build=lambda situation: KVComposePress(compression_ratio=situation.ratio),
        budget=OVER_THE_CACHE,
        counted="nowhere",
        prefill="private",
    ),
    Policy(
        name="kvcompose_unstructured",
        family="prefill",
        paper="arXiv 2509.05165",
        description="The same, heads of any size",
        build=lambda situation: TrimmedKVComposePress(structured=False, compression_ratio=situation.ratio),
        budget=OVER_THE_CACHE,
        counted="nowhere",
        frees=False,
        prefill="private",
    ),
    Policy(
        name="duo_attention",
        family="prefill",
        paper="arXiv 2410.10819",
        description="Heads that look back keep all, the others the first and the last tokens (heads scored on the fly)",
        build=_duo_attention,
        budget="as many streaming heads as it takes",
        counted="nowhere",
        frees=False,
        more_tokens_than=16,
    ),
    Policy(
        name="dms_knorm",
        family="prefill",
        paper="arXiv 2506.05345",
        description="Keys of small norm, every layer below its own threshold, the last tokens always",
        build=_dms,
        budget="a threshold for each layer, set so that as many tokens go",
        counted="layer",
        frees=False,
        prefill="private",
    ),
)
