"""Begins a model with the weights of an earlier one of the same shape: under other tokens, or without its norms.

Qwen 3's architecture norms queries and keys, Llama's does not. With the norm two people in one passage are told apart
after 100 steps, and without it not after 400; afterwards it does little: a query's length before it differs by some
15 % from token to token. So what it does on average is made part of the matrices, and a short training mends the rest.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

import torch
from transformers import PreTrainedModel

from kvbench.reference.training.batches import Batch
from kvbench.reference.training.losses import states_of


@torch.no_grad()
def under_tokens(
    state: Mapping[str, torch.Tensor], earlier: Mapping[str, int], tokens: Mapping[str, int]
) -> dict[str, torch.Tensor]:
    """Gives a model's weights for another vocabulary; both map entries to numbers. An entry that both have keeps its
    embedding, and one that is new gets one drawn from the spread of those there are."""
    table = state["model.embed_tokens.weight"]
    embeddings = table.mean(0) + table.std(0) * torch.randn(len(tokens), table.shape[1])
    for token, number in tokens.items():
        if token in earlier:
            embeddings[number] = table[earlier[token]]
    return {**state, "model.embed_tokens.weight": embeddings, "lm_head.weight": embeddings}


@torch.no_grad()
def without_norms(model: PreTrainedModel, normed: PreTrainedModel, batch: Batch) -> None:
    """Gives the model the weights of the normed one, and its queries and keys the length that the norms give them in
    this batch, on average over its tokens and for each head."""
    own = model.state_dict()
    model.load_state_dict({name: weight for name, weight in normed.state_dict().items() if name in own})
    factors = norm_factors(normed, batch)
    for number, (layer, source) in enumerate(zip(model.model.layers, normed.model.layers, strict=True)):
        for part in ("q", "k"):
            gains = getattr(source.self_attn, f"{part}_norm").weight
            of_head = factors[number, part][:, None] * gains  # (heads, head size)
            getattr(layer.self_attn, f"{part}_proj").weight.mul_(of_head.flatten()[:, None])


def norm_factors(normed: PreTrainedModel, batch: Batch) -> dict[tuple[int, str], torch.Tensor]:
    """Averages what the norms multiply each head's queries (``q``) and keys (``k``) by, layer by layer: (heads,)."""
    factors: dict[tuple[int, str], torch.Tensor] = {}
    tokens = batch.segments >= 0

    def note(key: tuple[int, str], _: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        lengths = inputs[0][tokens].pow(2).mean(-1).sqrt()  # (tokens, heads)
        factors[key] = (1 / lengths).mean(0)

    with ExitStack() as stack:
        for number, layer in enumerate(normed.model.layers):
            for part in ("q", "k"):
                norm = getattr(layer.self_attn, f"{part}_norm")
                stack.callback(norm.register_forward_pre_hook(partial(note, (number, part))).remove)
        states_of(normed, batch)
    return factors
