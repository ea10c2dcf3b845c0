"""Random numbers of places in a cache: each is drawn by where it is, whatever else is there.

The numbers of a place follow from the seed of the draw, example, layer, tensor, step, token, head and channel. So a
fault is the same alone and in a batch, hits the same rows behind a press that evicts others, and hits at a higher rate
what it hits at a lower one.
"""

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from policies.declaration.lazy import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import torch
else:
    np, torch = LazyModule("numpy"), LazyModule("torch")

Distribution = Literal["uniform", "normal"]
REMEMBERED = 2**18  # numbers: so many and fewer are kept for other rates and kinds, which draw the same


def draw(distribution: Distribution, key: str, positions: "torch.Tensor", *channels: int) -> "torch.Tensor":
    """Returns the numbers of some places, float32, on [0, 1) or of mean 0 and spread 1.

    ``key`` names all but token, head and channel. ``positions``: int64 (..., heads, rows), the tokens of the places;
    what is drawn for a negative one means nothing. Returns (..., heads, rows, *channels).
    """
    positions = positions.clamp(min=0)
    heads, tokens = positions.shape[-2], int(positions.max()) + 1 if positions.numel() else 0
    of_token = heads * int(np.prod(channels, dtype=np.int64))
    numbers = (_remembered if tokens * of_token <= REMEMBERED else _drawn)(distribution, key, tokens * of_token)
    by_place = torch.from_numpy(numbers).view(tokens * heads, *channels).to(positions.device)
    places = positions * heads + torch.arange(heads, device=positions.device)[:, None]
    return by_place.index_select(0, places.flatten()).view(*positions.shape, *channels)


def _drawn(distribution: Distribution, key: str, count: int) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    """Draws the first numbers of a key from a counter-based generator. Fewer are the beginning of more."""
    digest = hashlib.sha256(f"{distribution}/{key}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))
    if distribution == "uniform":
        return generator.random(count, dtype=np.float32)
    return generator.standard_normal(count, dtype=np.float32)


_remembered = lru_cache(maxsize=256)(_drawn)
