"""Reads of the context that are hidden from questions at random while a model is trained.

A model that can always read everything learns to read in one place: the shipped ones of 2026 read in one layer. Where
a layer, a head or a token may be missing, an answer needs more than one way.
"""

from dataclasses import dataclass, replace

import torch

from kvbench.reference.attention import PackedLayout


@dataclass(frozen=True)
class HiddenShares:
    """What share of the reads is hidden at most: of whole layers, heads of a layer, and tokens of a head.

    ``run``: the share of sequences in which all layers from the first up to a random one are hidden, at most so many
    layers as half of them.
    """

    layers: float = 0.0
    heads: float = 0.0
    tokens: float = 0.0
    run: float = 0.0

    def scaled(self, factor: float) -> "HiddenShares":
        return HiddenShares(self.layers * factor, self.heads * factor, self.tokens * factor, self.run * factor)


def draw_readable(
    generator: torch.Generator, shares: HiddenShares, layers: int, key_heads: int, batch: int, width: int
) -> torch.Tensor:
    """What is left to read, drawn for each sequence: 1 or 0 of shape (layers, batch, key heads, width).

    Every sequence has a strength of its own from 0 to 1 that scales all shares, so that some are hardly disturbed.
    """

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    strength = draw(1, batch, 1, 1)
    hidden = draw(layers, batch, 1, 1) < strength * shares.layers
    hidden = hidden | (draw(layers, batch, key_heads, 1) < strength * shares.heads)
    hidden = hidden | (draw(layers, batch, key_heads, width) < strength * shares.tokens)
    first = torch.where(draw(batch) < shares.run, draw(batch) * (layers // 2 + 1), 0.0).floor()
    return (~(hidden | (torch.arange(layers)[:, None] < first)[..., None, None])).bfloat16()


def layouts_of(layout: PackedLayout, readable: torch.Tensor) -> list[PackedLayout]:
    """A layout for each layer; ``readable`` as :func:`draw_readable` gives it."""
    return [replace(layout, readable=of_layer) for of_layer in readable]
