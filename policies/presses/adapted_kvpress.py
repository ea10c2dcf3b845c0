"""Presses of kvpress with what its own lack: a budget, texts, a seed, the length of a question,
ratios by layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import kvpress.presses.duo_attention_press as duo_attention
import pandas as pd
import torch
from kvpress import (
    BasePress,
    CompactorPress,
    DMSPress,
    DuoAttentionPress,
    FinchPress,
    KVComposePress,
    LeverageScorePress,
    PerLayerCompressionPress,
)
from kvpress.presses.base_press import is_prefilling
from torch import nn

from policies.declaration.draws import SeededScore
from policies.declaration.shape import is_left_whole

RAMP = 0.5  # of what is smaller, the share removed or the share kept


@dataclass
class KnownQuestionFinchPress(FinchPress):
    """Is told how long the question is, where kvpress's press finds a delimiter that it adds to the
    vocabulary."""

    # Declared again, as kvpress takes no such argument: its search sets the attribute.
    window_size: int = 1

    __call__ = BasePress.__call__  # without the search for the delimiter


@dataclass
class SeededLeveragePress(SeededScore, LeverageScorePress):
    """Its sketch of the keys is drawn at random, the same in every run."""


@dataclass
class SeededCompactorPress(SeededScore, CompactorPress):
    """Its sketch of the keys is drawn at random, the same in every run."""


@dataclass
class RampPress(PerLayerCompressionPress):
    """A ratio for each layer that is compressed, in even steps from the first to the last; their
    mean is ``ratio``."""

    # kvpress wants them when the press is built; how many layers there are is known later.
    compression_ratios: list[float] = field(default_factory=list)
    ratio: float = 0.0

    def post_init_from_model(self, model: Any) -> None:
        """Sets the ratio of each layer; a layer that presses leave whole has 0."""
        layers = getattr(model.model, "language_model", model.model).layers
        # Half of the way to the nearer end, so that no layer's ratio is below 0 or reaches 1.
        reach = RAMP * min(self.ratio, 1 - self.ratio)
        compressed = []
        for number, layer in enumerate(layers):
            if not is_left_whole(layer.self_attn):
                compressed.append(number)
        steps = len(compressed) - 1
        ratios = [0.0] * len(layers)
        for place, number in enumerate(compressed):
            # From -reach to reach, symmetric: the mean of all layers is the ratio. A single layer
            # has that.
            change = reach * (2 * place / steps - 1) if steps else 0.0
            ratios[number] = self.ratio + change
        self.compression_ratios = ratios


@dataclass
class TrimmedKVComposePress(KVComposePress):
    """KVCompose, whose unstructured form in kvpress 0.5.5 leaves the second reading of the context
    in the cache."""

    def compress_unstructured(self, model: Any) -> None:
        super().compress_unstructured(model)
        length = self.context_len
        for layer in self.cache.layers:
            # Copied: a view would hold the memory of the second reading.
            layer.keys = layer.keys[:, :, :length].contiguous()
            layer.values = layer.values[:, :, :length].contiguous()


@dataclass
class BudgetedDMSPress(DMSPress):
    """DMS with the threshold, layer by layer, below which as many scores lie as ``ratio`` asks to
    evict.

    What lies in the sliding window is never evicted, as in kvpress.
    """

    ratio: float = 0.0

    def forward_hook(
        self, module: nn.Module, inputs: Any, kwargs: dict[str, Any], output: Any
    ) -> Any:
        hidden_states = kwargs["hidden_states"]
        if is_prefilling(kwargs["cache_position"], hidden_states.shape[1]):
            layer = kwargs["past_key_values"].layers[module.layer_idx]
            keys, values = layer.keys, layer.values
            scores = self.press.score(module, hidden_states, keys, values, None, kwargs)
            # kvpress has one threshold for all layers: it is set anew right before each layer is
            # cut by it.
            self.threshold = self._threshold(scores)
        return super().forward_hook(module, inputs, kwargs, output)

    def _threshold(self, scores: torch.Tensor) -> float:
        """Returns the score below which tokens are evicted. ``scores``: shape (1, num_kv_heads,
        seq_len)."""
        # Of all tokens, while only those outside the window can go.
        count = round(scores.numel() * self.ratio)
        outside_window = scores[..., : -self.sliding_window_size]
        evictable = outside_window.flatten().sort().values
        if count < len(evictable):
            # kvpress evicts what lies strictly below: where no two scores are equal, just so many.
            return float(evictable[count])
        return float("inf")


# kvpress remembers scores by the path of a model, which two models may share.
_SCORE_HEADS = duo_attention.duo_attention_on_the_fly.__wrapped__
_HEAD_SCORES: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()


@dataclass
class CalibratedDuoAttentionPress(DuoAttentionPress):
    """DuoAttention with kvpress's own scoring of heads, on the given texts instead of a data set of
    the hub.

    ``texts`` gives prose; the heads of a model are scored once. ``sink`` and ``recent``: tokens
    that a streaming head keeps, where kvpress's 128 and 256 are longer than many contexts."""

    on_the_fly_scoring: bool = True
    texts: Callable[[], Sequence[str]] = field(default=tuple, repr=False)
    sink: int = 128
    recent: int = 256

    def post_init_from_model(self, model: Any) -> None:
        # kvpress takes neither texts nor scores as an argument.
        with patch.object(duo_attention, "duo_attention_on_the_fly", self._head_scores):
            super().post_init_from_model(model)
        # Behind kvpress's own steps, which set both to its 128 and 256.
        self.sink_size, self.recent_size = self.sink, self.recent

    def _head_scores(self, model: Any) -> Any:
        """Returns an array of shape (layers, num_kv_heads): the higher, the more of a retrieval
        head."""
        if model not in _HEAD_SCORES:
            frame = pd.DataFrame({"chapter": list(self.texts())})
            # As much of a data set as kvpress asks for.
            chapters = SimpleNamespace(to_pandas=lambda: frame)
            with patch.object(duo_attention, "load_dataset", lambda *_, **__: chapters):
                _HEAD_SCORES[model] = _SCORE_HEADS(model, num_samples=len(frame))
        return _HEAD_SCORES[model]
