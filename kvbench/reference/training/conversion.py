"""Begins a model with the weights of an earlier one of the same shape: under other tokens, or without its norms.

Qwen 3's architecture norms queries and keys, Llama's does not. With the norm two people in one passage are told apart
after 100 steps, and without it not after 400. To leave it out at once costs more than a short training mends: in the
model that reads in many layers a query's length before the norm differs by 60 % from token to token, and after 480
steps without it the loss was 1.7, where it was 0.14 before. So the norms fade while it is trained.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from kvbench.reference.training.batches import Batch
from kvbench.reference.training.losses import states_of

PARTS = ("q", "k")


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


class FadingNorm(nn.Module):
    """Norms each query or key of shape (..., heads, head size), at first by its own length and at last by that which
    is usual for its head.

    It multiplies by ``own ** (1 - share) * usual ** share``. At a share of 1 it is a factor that a matrix can hold.
    """

    usual: torch.Tensor  # one over the usual length: (heads, 1)
    share: torch.Tensor  # how far the norm has faded: (), from 0 to 1

    def __init__(self, norm: nn.Module, heads: int) -> None:
        super().__init__()
        assert isinstance(norm, Qwen3RMSNorm)
        self.weight = norm.weight
        self.epsilon = norm.variance_epsilon
        self.register_buffer("usual", torch.ones(heads, 1))
        self.register_buffer("share", torch.zeros(()))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        own = torch.rsqrt(vectors.float().pow(2).mean(-1, keepdim=True) + self.epsilon)
        factor = torch.exp((1 - self.share) * own.log() + self.share * self.usual.log())
        return self.weight * (vectors * factor).to(vectors.dtype)


def norms_of(model: PreTrainedModel) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Yields the attention, the name and the norm of the queries and of the keys of every layer."""
    for layer in model.model.layers:
        for part in PARTS:
            yield layer.self_attn, f"{part}_norm", getattr(layer.self_attn, f"{part}_norm")


def make_fading(model: PreTrainedModel) -> None:
    """Makes the norms of a model fading ones, which have not faded yet."""
    heads = {"q_norm": model.config.num_attention_heads, "k_norm": model.config.num_key_value_heads}
    for attention, name, norm in list(norms_of(model)):
        setattr(attention, name, FadingNorm(norm, heads[name]))


@torch.no_grad()
def learn_usual_lengths(model: PreTrainedModel, batch: Batch) -> None:
    """Sets what is usual to the geometric mean over the tokens of a batch, for each head."""
    tokens = batch.segments >= 0

    def note(norm: FadingNorm, _: nn.Module, inputs: tuple[torch.Tensor]) -> None:
        squares = inputs[0][tokens].pow(2).mean(-1)  # (tokens, heads)
        norm.usual.copy_(torch.exp(-squares.log().mean(0) / 2)[:, None])

    with ExitStack() as stack:
        for _, _, norm in norms_of(model):
            assert isinstance(norm, FadingNorm)
            stack.callback(norm.register_forward_pre_hook(partial(note, norm)).remove)
        states_of(model, batch)


@torch.no_grad()
def set_faded(model: PreTrainedModel, share: float) -> None:
    """Sets how far all norms have faded."""
    for _, _, norm in norms_of(model):
        assert isinstance(norm, FadingNorm)
        norm.share.fill_(share)


def is_normed(state: Mapping[str, torch.Tensor]) -> bool:
    """Tells whether weights are those of a model that norms queries and keys."""
    return any(name.endswith("q_norm.weight") for name in state)


def is_faded(state: Mapping[str, torch.Tensor]) -> bool:
    """Tells whether the norms have faded, all of the way."""
    shares = [float(weight) for name, weight in state.items() if name.endswith("_norm.share")]
    return bool(shares) and min(shares) == 1


def without_norms(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the weights of a model of Llama's architecture that equals one whose norms have faded."""
    plain = {name: weight for name, weight in state.items() if "_norm." not in name}
    for name in [name for name in state if name.endswith("_norm.usual")]:
        norm = name.removesuffix(".usual")
        gains = state[f"{norm}.weight"] * state[name]  # (heads, head size)
        plain[norm.replace("_norm", "_proj.weight")] = (
            state[norm.replace("_norm", "_proj.weight")] * gains.flatten()[:, None]
        )
    return plain
