"""Hides reads of the context from questions at random while a model is trained.

A model that can always read everything learns to read in one place: the shipped ones of 2026 read in one layer. Where
a layer, a head or a token may be missing, an answer needs more than one way.
"""

from dataclasses import dataclass, replace

import torch

from kvbench.reference.training.attention import PackedLayout

UNDISTURBED_SHARE = 0.2


@dataclass(frozen=True)
class HiddenShares:
    """Says what share of the reads is hidden at most: of whole layers, heads of a layer, and tokens of a head.

    ``lower_half``: the share of the disturbed sequences in which the whole lower half of the layers is hidden. While
    it was 0.3 and the last hidden layer a random one, facts were read by the lower half alone.
    """

    layers: float = 0.0
    heads: float = 0.0
    tokens: float = 0.0
    lower_half: float = 0.0

    def scaled(self, factor: float) -> "HiddenShares":
        return HiddenShares(self.layers * factor, self.heads * factor, self.tokens * factor, self.lower_half * factor)


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
    without_lower_half = (draw(batch) < shares.lower_half) & (drawn > 0)
    hidden = hidden | (without_lower_half & (torch.arange(layers) < layers // 2)[:, None])[..., None, None]
    return Readable((~hidden).bfloat16(), drawn == drawn.min())
