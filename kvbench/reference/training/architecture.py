"""The architectures of the reference models, and how their weights begin."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    AttentionInterface,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from kvbench.reference.training.attention import PACKED_ATTENTION, packed_attention
from kvbench.reference.training.tokenizer import MODEL_MAX_LENGTH

EMBEDDING_CONSTANT = 0.06  # three times the spread of the other entries
LOOK_BACK = 4  # heads of the first layer that begin by looking back, each one token farther
HEAD_SIZE = 32


@dataclass(frozen=True)
class Shape:
    """Says how large a model is. ``key_heads`` of keys and values; ``feed_forward``: the width inside of that part."""

    layers: int
    width: int
    feed_forward: int
    heads: int
    key_heads: int

    def settings(self) -> dict[str, Any]:
        """Returns the shape under the names that a configuration of transformers has for it."""
        return {
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "intermediate_size": self.feed_forward,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_heads,
            "head_dim": HEAD_SIZE,
            "max_position_embeddings": MODEL_MAX_LENGTH,
            "tie_word_embeddings": True,
        }


SHAPES: Mapping[str, Shape] = {
    "narrow": Shape(12, 128, 256, 4, 2),
    "full": Shape(12, 192, 384, 8, 4),
    "small": Shape(8, 128, 256, 6, 3),
}
ARCHITECTURES: Mapping[str, Callable[..., PreTrainedModel]] = {
    "reference": lambda **settings: LlamaForCausalLM(LlamaConfig(**settings)),
    "reference-qwen": lambda **settings: Qwen3ForCausalLM(Qwen3Config(**settings)),
}


def new_model(
    tokenizer: PreTrainedTokenizerBase, name: str = "reference", shape: Shape = SHAPES["narrow"]
) -> PreTrainedModel:
    """Builds an untrained model of one of the :data:`ARCHITECTURES`, in one of the :data:`SHAPES`."""
    model = ARCHITECTURES[name](
        vocab_size=len(tokenizer),
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **shape.settings(),
    )
    initialise(model)
    AttentionInterface.register(PACKED_ATTENTION, packed_attention)
    return model


@torch.no_grad()
def initialise(model: PreTrainedModel) -> None:
    """Sets the first weights: layers add nothing, and heads look one to :data:`LOOK_BACK` tokens back.

    Random output matrices would drown the small embeddings in noise. Finding a token by the one before it takes two
    layers, and the first of the two steps brings no gain alone: in trials without it the loss of copying pieces was
    still above that of guessing among the tokens at hand after 300 steps. The first step is given here, free to be
    unlearned. All embeddings share a constant in their first entry, from which a head makes the same query and key at
    every place; rotated against each other by ``distance`` places, they agree best that far back.
    """
    model.model.embed_tokens.weight[:, 0] = EMBEDDING_CONSTANT
    size, strength = model.config.head_dim, 1.7
    frequencies = model.model.rotary_emb.inv_freq[:6]  # the fast ones: they tell neighbours apart
    pairs = torch.arange(len(frequencies))
    first = model.model.layers[0].self_attn
    group = model.config.num_attention_heads // model.config.num_key_value_heads
    for head in range(LOOK_BACK):
        distance = head + 1
        query, key = first.q_proj.weight[head * size :, 0], first.k_proj.weight[head // group * size :, 0]
        query[pairs] = strength * torch.cos(frequencies * distance)
        query[pairs + size // 2] = -strength * torch.sin(frequencies * distance)
        key[pairs] = strength
        key[pairs + size // 2] = 0.0
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
