"""Reads a text with the model once, and keeps what the attention of each layer works on."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from kvbench.engine.studies.observer import attention_to
from kvbench.models.load import LoadedModel, attention
from policies import attention_window

PROBE = "kvbench_probe"  # the name of an attention of transformers that shows its inputs


@dataclass(frozen=True)
class LayerStates:
    """Holds what one layer attends with, behind the rotation by position.

    ``queries``: of the last tokens alone, shape (num_heads, asking, head_dim). ``keys``,
    ``values``: shape (num_kv_heads, tokens, head_dim). All are float32 numbers on the processor."""

    layer: int
    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    scaling: float  # that products of queries and keys are multiplied by
    window: int | None  # tokens that a sliding layer sees; None where it sees all
    key_bias: float  # largest magnitude in the bias that is added to the keys; 0 without one

    @property
    def tokens(self) -> int:
        return int(self.keys.shape[1])

    def attention(self, keys: torch.Tensor) -> torch.Tensor:
        """Returns where the queries look, with other keys in place of the layer's own: shape
        (num_heads, asking, tokens). ``keys``: shape (num_kv_heads, tokens, head_dim)."""
        heads, asking, _ = self.queries.shape
        of_heads = keys.repeat_interleave(heads // keys.shape[0], 0)
        places = torch.arange(self.tokens)
        behind = places[-asking:, None] - places
        is_seen = behind >= 0
        # As in the model: the window counts the token itself.
        if self.window is not None:
            is_seen &= behind < self.window
        return attention_to(self.queries, of_heads, is_seen, self.scaling)

    @cached_property
    def own_attention(self) -> torch.Tensor:
        """Returns where the queries look with the layer's own keys, which every format is compared
        with: shape (num_heads, asking, tokens)."""
        return self.attention(self.keys)

    @cached_property
    def own_output(self) -> torch.Tensor:
        """Returns what the attention hands on with the layer's own keys and values, likewise: shape
        (num_heads, asking, head_dim)."""
        return self.output(self.own_attention, self.values)

    def output(self, weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Returns what the attention hands on, shape (num_heads, asking, head_dim). ``weights``: as
        :meth:`attention` returns them. ``values``: shape (num_kv_heads, tokens, head_dim)."""
        shared = self.queries.shape[0] // values.shape[0]
        return weights @ values.repeat_interleave(shared, 0)


def read_text(model: LoadedModel, text: str, tokens: int, asking: int) -> list[LayerStates]:
    """Reads the first tokens of a text in one pass, and returns the states of each layer. The last
    ``asking`` tokens stand for a question: of these alone the queries are kept."""
    states: list[LayerStates] = []

    def attend(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **options: Any,
    ) -> Any:
        # Layers attend one after the other, so that their states come in order.
        states.append(_layer_states(module, query[0, :, -asking:], key[0], value[0]))
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)

    AttentionInterface.register(PROBE, attend)
    # Else transformers would make no mask for this name, and a sliding layer would see all.
    AttentionMaskInterface.register(PROBE, sdpa_mask)
    # Cut here, as a tokenizer that is told to truncate goes on to do so for whoever reads through
    # its backend. Not verbose: a text may be longer than the model takes.
    ids = model.tokenizer(text, return_tensors="pt", verbose=False)["input_ids"][:, :tokens]
    with torch.inference_mode(), attention(model.network, PROBE):
        model.network(ids.to(model.device))
    return states


def _layer_states(
    module: Any, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> LayerStates:
    bias = getattr(getattr(module, "k_proj", None), "bias", None)
    return LayerStates(
        layer=int(module.layer_idx),
        queries=queries.float().cpu(),
        keys=keys.float().cpu(),
        values=values.float().cpu(),
        scaling=float(module.scaling),
        window=attention_window(module),
        key_bias=0.0 if bias is None else float(bias.detach().abs().max()),
    )
