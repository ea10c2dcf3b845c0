"""Describes the rows of a cache, layer by layer: how far their numbers spread, where attention rests,
and whether norms of keys tell what is attended to."""

from dataclasses import dataclass

import torch
from scipy.stats import spearmanr

from kvbench.passport.probe import LayerStates

SINKS = 4  # tokens at the beginning of a text, on which attention may rest
# A channel whose largest key is so many times the median channel's stands out.
OUTLIER = 5.0
BLOCK = 32  # channels that share a scale in llama.cpp's formats


@dataclass(frozen=True)
class LayerFacts:
    """Holds the facts of one layer, of the tokens of one text."""

    layer: int
    slides: int | None  # tokens that the layer sees, if not all
    key_bias: float  # largest magnitude in the bias of the keys
    key_magnitude: float  # largest magnitude of a key behind the rotation by position
    key_spread: float  # by channel: largest less least key over tokens; median over channels
    outlier_channels: int  # of all key heads
    value_spread: float  # by token: largest less least number of a value; median over tokens
    sink_attention: float  # share of the attention that rests on the first tokens
    sink_norm: float  # norm of the first token's key as a share of the median norm
    norm_rank: float  # Spearman's correlation of a key's norm with the attention that it gets
    # The same of a key's cosine to the mean key of its head, which KeyDiff evicts by.
    likeness_rank: float
    # Share of the key channels whose numbers vary less over tokens than one step of q4_0 in their
    # block of channels, so that the format stores next to nothing of them.
    below_step: float
    # By key channel of all heads, by how many of these steps its numbers vary.
    channel_steps: tuple[float, ...]


def describe_layer(states: LayerStates) -> LayerFacts:
    """Measures one layer."""
    keys, values = states.keys, states.values
    magnitudes = keys.abs().amax(1)  # (heads, channels)
    # (num_heads, asking, tokens).
    weights = states.own_attention
    received = _attention_received(states, weights)
    # (num_kv_heads, tokens), like likeness below.
    norms = keys.norm(dim=-1)
    mean_key = keys.mean(1, keepdim=True)
    likeness = torch.cosine_similarity(keys, mean_key, dim=-1)
    first, others = norms[:, 0], norms[:, SINKS:]
    steps = step_shares(states)
    return LayerFacts(
        layer=states.layer,
        slides=states.window,
        key_bias=states.key_bias,
        key_magnitude=float(magnitudes.max()),
        key_spread=float((keys.amax(1) - keys.amin(1)).median()),
        outlier_channels=int((magnitudes > OUTLIER * magnitudes.median()).sum()),
        value_spread=float((values.amax(-1) - values.amin(-1)).median()),
        sink_attention=float(weights[..., :SINKS].sum(-1).mean()),
        sink_norm=float((first / others.median(dim=1).values).mean()),
        norm_rank=_mean_rank(norms, received),
        likeness_rank=_mean_rank(likeness, received),
        below_step=float((steps < 1).float().mean()),
        channel_steps=tuple(round(share, 3) for share in steps.flatten().tolist()),
    )


def _attention_received(states: LayerStates, weights: torch.Tensor) -> torch.Tensor:
    """Averages the attention that each token gets over the queries and over the query heads that
    share its key: shape (num_kv_heads, tokens)."""
    kv_heads = states.keys.shape[0]
    # (num_kv_heads, query heads of each, tokens).
    by_head = weights.mean(1).unflatten(0, (kv_heads, -1))
    received: torch.Tensor = by_head.mean(1)
    return received


def _mean_rank(scores: torch.Tensor, received: torch.Tensor) -> float:
    """Averages Spearman's correlation over heads, of the tokens behind the sinks and before those
    that ask. ``scores``, ``received``: shape (num_kv_heads, tokens)."""
    seen = received.amax(0) > 0
    seen[:SINKS] = False
    # Any two tokens are ranked alike or in reverse.
    if int(seen.sum()) < 3:
        return 0.0
    ranks: list[float] = []
    for of_head, attention in zip(scores, received, strict=True):
        if not of_head[seen].std() or not attention[seen].std():
            ranks.append(0.0)  # all alike, so that nothing is ranked
            continue
        rank = spearmanr(of_head[seen].numpy(), attention[seen].numpy()).statistic
        ranks.append(float(rank))
    return sum(ranks) / len(ranks)


def step_shares(states: LayerStates) -> torch.Tensor:
    """Divides the spread of each key channel over tokens, its standard deviation, by the mean step
    that q4_0 takes in the channel's block of 32: shape (num_kv_heads, head_dim). Below 1 a channel
    varies less than the format can tell."""
    keys = states.keys
    size = keys.shape[-1]
    blocks = torch.nn.functional.pad(keys, (0, -size % BLOCK)).unflatten(-1, (-1, BLOCK))
    steps = blocks.abs().amax(-1).mean(1) / 8  # (heads, blocks): from the largest to 0 in 8 steps
    by_channel = steps.repeat_interleave(BLOCK, -1)[:, :size]
    # A block of zeros has no step; its channels have no spread either, and come to 0.
    shares: torch.Tensor = keys.std(1) / by_channel.clamp_min(torch.finfo(torch.float32).tiny)
    return shares
