"""Hides reads of the context from questions at random while a model is trained.

A model that can always read everything learns to read in one place: the shipped ones of 2026 read in one layer. Where
a layer, a head or a token may be missing, an answer needs more than one way.
"""

from dataclasses import dataclass, replace

import torch

from kvbench.reference.training.attention import PackedLayout

UNDISTURBED_SHARE = 0.3


@dataclass(frozen=True)
class HiddenShares:
    """Says what share of the reads is hidden at most: of whole layers, heads of a layer, and tokens of a head.

    ``run``: the share of sequences in which all layers from the first up to a random one are hidden, at most so many
    layers as half of them.
    """

    layers: float = 0.0
    heads: float = 0.0
    tokens: float = 0.0
    run: float = 0.0

    def scaled(self, factor: float) -> "HiddenShares":
        return HiddenShares(self.layers * factor, self.heads * factor, self.tokens * factor, self.run * factor)


@dataclass(frozen=True)
class Readable:
    """Says what questions can read: 1 or 0, shape (layers, batch, key heads, width). ``undisturbed``: bool (batch),
    which sequences have the least hidden, in most batches nothing."""

    masks: torch.Tensor
    undisturbed: torch.Tensor

    def layouts(self, layout: PackedLayout) -> list[PackedLayout]:
        """Makes the layout of each layer."""
        return [replace(layout, readable=of_layer) for of_layer in self.masks]


def draw_readable(
    generator: torch.Generator, shares: HiddenShares, layers: int, key_heads: int, batch: int, width: int
) -> Readable:
    """Draws what each sequence can read. Its own strength scales all shares: 0 for :data:`UNDISTURBED_SHARE`, up to 1
    for the others. What a model has mastered can be told from the first only."""

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    drawn = (draw(batch) - UNDISTURBED_SHARE).clamp_min(0) / (1 - UNDISTURBED_SHARE)
    strength = drawn[None, :, None, None]
    hidden = draw(layers, batch, 1, 1) < strength * shares.layers
    hidden = hidden | (draw(layers, batch, key_heads, 1) < strength * shares.heads)
    hidden = hidden | (draw(layers, batch, key_heads, width) < strength * shares.tokens)
    is_run = (draw(batch) < shares.run) & (drawn > 0)
    first = torch.where(is_run, draw(batch) * (layers // 2 + 1), 0.0).floor()
    hidden = hidden | (torch.arange(layers)[:, None] < first)[..., None, None]
    return Readable((~hidden).bfloat16(), drawn == drawn.min())
