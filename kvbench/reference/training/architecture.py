"""The architectures of the reference models, and how their weights begin."""

from collections.abc import Callable, Mapping

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
SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": MODEL_MAX_LENGTH,
    "tie_word_embeddings": True,
}
ARCHITECTURES: Mapping[str, Callable[..., PreTrainedModel]] = {
    "reference": lambda **settings: LlamaForCausalLM(LlamaConfig(**settings)),
    "reference-qwen": lambda **settings: Qwen3ForCausalLM(Qwen3Config(**settings)),
}


def new_model(tokenizer: PreTrainedTokenizerBase, name: str = "reference") -> PreTrainedModel:
    """An untrained model of one of the :data:`ARCHITECTURES`."""
    model = ARCHITECTURES[name](
        vocab_size=len(tokenizer),
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **SHAPE,
    )
    initialise(model)
    AttentionInterface.register(PACKED_ATTENTION, packed_attention)
    return model


@torch.no_grad()
def initialise(model: PreTrainedModel) -> None:
    """Layers that add nothing at first, and heads that look one to :data:`LOOK_BACK` tokens back.

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
