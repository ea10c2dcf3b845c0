"""Computes the losses that reference models learn from: copied pieces first, then answers and the names
on the way to them."""

from collections.abc import Sequence

import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from kvbench.reference.training.attention import PACKED_ATTENTION, PackedLayout
from kvbench.reference.training.batches import Batch
from kvbench.reference.training.reads import Readable

COPY_LENGTH = 48
COPY_BATCH = 16
FIRST_WORD = 6  # token ids below are special
BRIDGE_DEPTHS = (5 / 12, 7 / 12, 9 / 12)  # of the layers, by which one name after the other is known
BRIDGE_WEIGHT = 0.3
RUNNING_WEIGHT = 0.2


def copying_loss(model: PreTrainedModel, step: int, seed: int) -> torch.Tensor:
    """Computes the loss of copying: random tokens, each once, then four pieces of them, each but for its first token.

    The places are random because a copy at a fixed distance is learned as a distance: the attention then finds a token
    by its position and not by the token before it, and nothing of that helps with text.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    piece = COPY_LENGTH // 4
    draws = torch.rand(COPY_BATCH, model.model.embed_tokens.weight.shape[0] - FIRST_WORD, generator=generator)
    source = draws.argsort(dim=1)[:, :COPY_LENGTH] + FIRST_WORD
    starts = torch.randint(COPY_LENGTH - piece + 1, (COPY_BATCH, 4, 1), generator=generator)
    pieces = source.gather(1, (starts + torch.arange(piece)).flatten(1))
    model.set_attn_implementation("sdpa")
    logits = model(input_ids=torch.cat([source, pieces], dim=1), use_cache=False).logits[:, COPY_LENGTH:-1]
    losses = F.cross_entropy(logits.flatten(0, 1).float(), pieces[:, 1:].flatten(), reduction="none")
    inside = (torch.arange(1, COPY_LENGTH) % piece != 0).repeat(COPY_BATCH)
    return losses[inside].mean()


def states_of(
    model: PreTrainedModel, batch: Batch, layouts: Sequence[PackedLayout] | None = None
) -> tuple[torch.Tensor, ...]:
    """Returns what enters each layer, and last what leaves the model: each of shape (batch, length, hidden size).

    ``layouts``: one for each layer, where what questions can read differs from layer to layer.
    """
    layouts = layouts or [batch.layout] * len(model.model.layers)
    model.set_attn_implementation(PACKED_ATTENTION)
    hidden = model.model.embed_tokens(batch.token_ids)
    rotations = model.model.rotary_emb(hidden, position_ids=batch.positions)
    states = [hidden]
    for layer, layout in zip(model.model.layers, layouts, strict=True):
        hidden = layer(hidden, position_embeddings=rotations, layout=layout)
        states.append(hidden)
    return (*states[:-1], model.model.norm(hidden))


def answer_logits(
    model: PreTrainedModel, batch: Batch, chosen: torch.Tensor, layouts: Sequence[PackedLayout] | None = None
) -> torch.Tensor:
    """Computes the logits at the chosen places of a batch, shape (chosen places, vocabulary)."""
    logits: torch.Tensor = model.lm_head(states_of(model, batch, layouts)[-1][chosen]).float()
    return logits


def task_loss(model: PreTrainedModel, batch: Batch, readable: Readable | None = None) -> tuple[torch.Tensor, float]:
    """Computes the loss to minimise, and the plain loss of the answer tokens (of undisturbed sequences alone).

    The context is predicted in some batches only: its names and values are random, and chains were not learned while
    all of it was.
    """
    states = states_of(model, batch, None if readable is None else readable.layouts(batch.layout))
    chosen = batch.labels >= 0
    losses = F.cross_entropy(model.lm_head(states[-1][chosen]).float(), batch.labels[chosen], reduction="none")
    plain = losses.detach() if readable is None else losses.detach()[readable.undisturbed[chosen.nonzero()[:, 0]]]
    loss = losses.mean() + BRIDGE_WEIGHT * (bridge_loss(model, batch, states) + referent_loss(model, batch, states))
    if batch.running:
        loss = loss + RUNNING_WEIGHT * running_loss(model, batch, states[-1])
    return loss, float(plain.mean())


def running_loss(model: PreTrainedModel, batch: Batch, last: torch.Tensor) -> torch.Tensor:
    """Computes the loss of every token of the contexts, given those before it; ``last``: what leaves the model."""
    width = batch.layout.context_width
    following = batch.segments[:, 1:width] == 0
    logits = model.lm_head(last[:, : width - 1][following]).float()
    return F.cross_entropy(logits, batch.token_ids[:, 1:width][following])


def bridge_loss(model: PreTrainedModel, batch: Batch, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Computes the loss of the names on the way to an answer, read between layers where the answer is asked for.

    The second fact can be looked up by no layer below the one that found the first, and the answers alone do not ask
    for the first to be found early: chains that end in an attribute were guessed after 12 million tokens without such a
    loss, and after 27 million with one at the question's own name, where it was known at 99 %. It is not enough alone.
    """
    losses = [_early(model, states, depth, labels) for depth, labels in zip(BRIDGE_DEPTHS, batch.bridges, strict=True)]
    return torch.stack(losses).sum() / max(1, int((batch.bridges >= 0).sum()))


def referent_loss(model: PreTrainedModel, batch: Batch, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Computes the loss of the names that the context's pronouns and descriptions stand for, read at the end of their
    sentences before the layer at which questions know the first name on their way."""
    return _early(model, states, BRIDGE_DEPTHS[0], batch.referents) / max(1, int((batch.referents >= 0).sum()))


def _early(
    model: PreTrainedModel, states: tuple[torch.Tensor, ...], depth: float, labels: torch.Tensor
) -> torch.Tensor:
    """Computes the summed loss of labels that are read between layers, at a share of the depth."""
    asked = labels >= 0
    logits = model.lm_head(model.model.norm(states[round(depth * len(model.model.layers))][asked])).float()
    return F.cross_entropy(logits, labels[asked], reduction="sum")
