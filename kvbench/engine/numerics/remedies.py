"""Ways to compute in 16 bits that are meant to bring cache on and cache off together: each is a path beside cache off
under the same remedy."""

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from kvbench.engine.numerics.paths import Cached, Path, Whole
from kvbench.models.load import decoder_of
from kvbench.models.precision import with_same_weights

EVERY = 8  # tokens after which a cache is computed anew
REMEDIES = {
    "recomputed": ("recomputed", "off"),  # the cache, whenever 8 tokens were written
    "float32 attention": ("on, float32 attention", "off, float32 attention"),
    "float32 cache": ("on, float32 cache", "off, float32 cache"),  # rows are computed, kept and read in float32
}


@dataclass
class Recomputed(Cached):
    """Cache on, whose rows are computed anew from the whole sequence whenever so many tokens were written."""

    written: int = 0

    def extend(self, token: int) -> torch.Tensor:
        self.written += 1
        return super().extend(token) if self.written % EVERY else self.begin([*self.ids, token])


class Float32Projection(torch.nn.Module):
    """Projects states of any dtype in float32, with the weights of another projection."""

    def __init__(self, of: torch.nn.Linear) -> None:
        super().__init__()
        self.of = of

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        bias = None if self.of.bias is None else self.of.bias.float()
        return torch.nn.functional.linear(states.float(), self.of.weight.float(), bias)


def with_float32_rows(network: PreTrainedModel) -> PreTrainedModel | None:
    """Returns a network of the same weights whose keys and values are float32; attention has to read them in float32.
    None where they have no projections of their own."""
    twin = with_same_weights(network)
    for layer in decoder_of(twin).layers:
        attention = layer.self_attn
        if not hasattr(attention, "k_proj"):
            return None
        attention.k_proj, attention.v_proj = map(Float32Projection, (attention.k_proj, attention.v_proj))
    return twin


def remedied_paths(network: PreTrainedModel) -> dict[str, Path]:
    """Returns the paths of all remedies, by name."""
    paths: dict[str, Path] = {
        "recomputed": Recomputed(network),
        "on, float32 attention": Cached(network, float32_attention=True),
        "off, float32 attention": Whole(network, float32_attention=True),
    }
    if (with_rows := with_float32_rows(network)) is not None:
        paths["on, float32 cache"] = Cached(with_rows, float32_attention=True)
        paths["off, float32 cache"] = Whole(with_rows, float32_attention=True)
    return paths
