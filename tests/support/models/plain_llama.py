"""A Llama in numpy and float64, written from the papers: what the paths compute is held against
it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

Array = NDArray[np.float64]


class PlainLlama:
    """Reads tokens one by one; ``keys`` and ``values`` are its cache, by layer a list of rows
    (heads, size)."""

    def __init__(self, network: PreTrainedModel) -> None:
        self.weights = {
            name: w.detach().double().numpy() for name, w in network.state_dict().items()
        }
        self.config: Any = network.config
        self.keys: list[list[Array]] = [[] for _ in range(self.config.num_hidden_layers)]
        self.values: list[list[Array]] = [[] for _ in range(self.config.num_hidden_layers)]

    def read(self, token: int) -> Array:
        """Returns the logits behind one more token."""
        state = self.weights["model.embed_tokens.weight"][token]
        for layer in range(self.config.num_hidden_layers):
            state = state + self._attend(
                layer, self._norm(state, f"model.layers.{layer}.input_layernorm")
            )
            normed = self._norm(state, f"model.layers.{layer}.post_attention_layernorm")
            gate, up = (self._times(layer, f"mlp.{part}_proj", normed) for part in ("gate", "up"))
            state = state + self._times(layer, "mlp.down_proj", gate / (1 + np.exp(-gate)) * up)
        logits: Array = self.weights["lm_head.weight"] @ self._norm(state, "model.norm")
        return logits

    def _times(self, layer: int, name: str, state: Array) -> Array:
        product: Array = self.weights[f"model.layers.{layer}.{name}.weight"] @ state
        return product

    def _norm(self, state: Array, name: str) -> Array:
        scale: Array = self.weights[f"{name}.weight"] / np.sqrt(
            (state**2).mean() + self.config.rms_norm_eps
        )
        return state * scale

    def _attend(self, layer: int, state: Array) -> Array:
        size = self.config.head_dim
        query, key, value = (
            self._times(layer, f"self_attn.{n}_proj", state).reshape(-1, size) for n in "qkv"
        )
        position = len(self.keys[layer])
        self.keys[layer].append(self._rotate(key, position))
        self.values[layer].append(value)
        keys, values = (
            np.stack(rows).repeat(len(query) // len(key), axis=1)
            for rows in (self.keys[layer], self.values[layer])
        )
        scores = np.einsum("hd,thd->ht", self._rotate(query, position), keys) / np.sqrt(size)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        read = np.einsum("ht,thd->hd", weights / weights.sum(1, keepdims=True), values)
        return self._times(layer, "self_attn.o_proj", read.reshape(-1))

    def _rotate(self, rows: Array, position: int) -> Array:
        half = rows.shape[1] // 2
        angles = position * self.config.rope_parameters["rope_theta"] ** (-np.arange(half) / half)
        cos, sin = np.cos(angles), np.sin(angles)
        rotated: Array = np.concatenate(
            [
                rows[:, :half] * cos - rows[:, half:] * sin,
                rows[:, half:] * cos + rows[:, :half] * sin,
            ],
            axis=1,
        )
        return rotated
