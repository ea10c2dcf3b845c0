"""Finds out what a press keeps, from the cache that the decoder will read."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from policies import ABSENT, UNKNOWN


class PressError(Exception):
    """A press returned something that is no cache; the message says why in one line."""


@dataclass(frozen=True)
class LayerCache:
    """Holds what one branch leaves of one layer."""

    # Which tokens survive, bool (num_kv_heads, seq_len); None where the press merges or rewrites,
    # and surviving means nothing.
    keep: torch.Tensor | None
    held_rows: (
        int  # that an allocator holds over all heads: a head-wise press masks rows and frees none
    )
    # Shape (num_kv_heads, rows, head_dim). Without ``keep`` what is read, all of it; with it the
    # whole cache from which the kept rows are read, where that is not the trace's.
    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None
    filled: float = (
        1.0  # the share of the numbers read that are not in channels blanked for a whole head
    )

    def within(self, window: int) -> "LayerCache":
        """Returns what is read of a sliding layer: the ``window - 1`` newest tokens of the context,
        which the first token behind it sees."""
        assert self.keep is not None
        keep = self.keep.clone()
        # As transformers' own sliding cache: the token that is read takes the last place of the
        # window.
        keep[:, : max(0, keep.shape[1] - window + 1)] = False
        return replace(self, keep=keep, held_rows=int(keep.sum()))

    @cached_property
    def tokens(self) -> torch.Tensor:
        """Returns the token of each row that is read of the context, int64 (num_kv_heads, rows). A
        head that keeps fewer than another begins with absent rows."""
        if self.keep is None:
            assert self.keys is not None
            return torch.full(self.keys.shape[:2], UNKNOWN, device=self.keys.device)
        rows = int(self.keep.sum(-1).max())
        tokens = kept_last(self.keep, rows)
        absent = torch.arange(rows, device=tokens.device) < rows - self.keep.sum(-1, keepdim=True)
        return tokens.masked_fill(absent, ABSENT)

    @property
    def read_rows(self) -> int:
        """Counts the key rows that the decoder reads over all heads."""
        if self.keep is not None:
            return int(self.keep.sum())
        assert self.keys is not None
        return self.keys.shape[0] * self.keys.shape[1]


def kept_last(keep: torch.Tensor, longest: int) -> torch.Tensor:
    """Returns the positions of the kept tokens in order, behind ``longest - kept`` others that mean
    nothing.

    ``keep``: bool (..., tokens). Returns int64 (..., longest).
    """
    # False stands before True, and a stable sort leaves the kept tokens in the order of the text.
    return keep.to(torch.int8).sort(dim=-1, stable=True).indices[..., keep.shape[-1] - longest :]


def kept_highest(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Returns the keep mask of the ``count`` highest scores of each head, by the call that kvpress
    makes, so that ties fall the same way. ``scores``: shape (1, num_kv_heads, seq_len)."""
    indices = scores.topk(count, dim=-1).indices[0]
    return torch.zeros(scores.shape[1:], dtype=torch.bool, device=scores.device).scatter_(
        -1, indices, True
    )


class Ranking:
    """Gives the keep masks of the highest scores for many counts after one sort
    (:func:`kept_highest`).

    ``has_nan``: some score is NaN, so that the order means nothing."""

    def __init__(self, scores: torch.Tensor, counts: Sequence[int]) -> None:
        ordered, order = scores[0].sort(dim=-1, descending=True)
        places = torch.arange(order.shape[-1], device=order.device).expand_as(order)
        self._scores = scores
        # By token, how many of its head stand before it.
        self._rank = torch.empty_like(order).scatter_(-1, order, places)
        # Where nothing or everything is kept, no tie can matter.
        edges = [count for count in counts if 0 < count < scores.shape[-1]]
        # Of none, torch makes floats.
        at_edges = torch.tensor(edges, dtype=torch.long, device=order.device)
        # sort and topk break ties differently: where the edge of a count cuts through equal scores,
        # the call of kvpress decides (kept).
        tied = (ordered[:, at_edges - 1] == ordered[:, at_edges]).any(0)
        # The only wait for the device in a scoring: what the host has to know comes at once.
        self.has_nan, *tied_on_host = torch.cat([scores.isnan().any()[None], tied]).tolist()
        self._tied = {count for count, is_tied in zip(edges, tied_on_host, strict=True) if is_tied}

    def kept(self, count: int) -> torch.Tensor:
        """Returns the keep mask for a count, bool (num_kv_heads, seq_len). Among equal scores at
        the edge, kvpress's own call decides."""
        return kept_highest(self._scores, count) if count in self._tied else self._rank < count


def observe(
    full_keys: torch.Tensor,
    full_values: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    masked: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None,
    nan: bool = False,
) -> LayerCache:
    """Compares ``keys`` and ``values``, as a press returned them, with the full ones to see what is
    kept.

    All of shape (1, num_kv_heads, tokens, head_dim). ``masked``: the (batch, head, token) indices
    that a head-wise press masks out. Raises :class:`PressError` for wrong shapes or NaN, unless
    ``nan`` allows it."""
    check_cache(full_keys, keys, values, nan)
    heads, rows = keys.shape[1:3]
    if masked is not None:
        if rows != full_keys.shape[2]:
            raise PressError(
                "it both shortens the cache and masks keys, which the engine cannot follow"
            )
        keep = torch.ones(heads, rows, dtype=torch.bool, device=keys.device)
        keep[masked[1], masked[2]] = False
        return LayerCache(keep, heads * rows)
    if (
        nan and _same_bits(full_keys, keys) and _same_bits(full_values, values)
    ):  # also where rows are alike, or NaN
        return LayerCache(
            torch.ones(heads, rows, dtype=torch.bool, device=keys.device), heads * rows
        )
    positions = matched_rows(full_keys[0], keys[0])
    # Keys alone do not tell: a press may leave the keys as they are and rewrite the values.
    if positions is None or not torch.equal(
        full_values[0].gather(1, _rows(positions, values)), values[0]
    ):
        states = keys[0].contiguous(), values[0].contiguous()
        return LayerCache(None, heads * rows, *states, filled=_filled(*states))
    keep = torch.zeros(heads, full_keys.shape[2], dtype=torch.bool, device=keys.device).scatter_(
        1, positions, True
    )
    return LayerCache(keep, heads * rows)


def hash_caches(layers: Sequence[LayerCache]) -> str:
    """Hashes the keep masks, or the rows, in any order, where a press rewrites them: equal for
    caches read alike."""
    digest = hashlib.sha256()
    for layer in layers:
        if layer.keep is not None:
            digest.update(np.packbits(layer.keep.cpu().numpy()).tobytes())
        elif layer.keys is not None and layer.values is not None:
            of_heads = torch.cat([_row_hash(layer.keys).sum(1), _row_hash(layer.values).sum(1)])
            # Of each head one number leaves the device.
            digest.update(of_heads.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def survivors(full: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Tells which rows of the full tensor are still among ``rows``, in any order: bool (heads,
    tokens).

    Shapes (heads, tokens, size) and (heads, rows, size).
    """
    survive = []
    for full_hash, rows_hash in zip(_row_hash(full), _row_hash(rows), strict=True):
        survive.append(torch.isin(full_hash, rows_hash))
    return torch.stack(survive)


def _filled(keys: torch.Tensor, values: torch.Tensor) -> float:
    # ThinK sets channels of keys to 0 and leaves the shape as it is: they hold nothing that is
    # read.
    blank = sum(int((states == 0).all(dim=1).sum()) for states in (keys, values))
    return 1 - blank / (2 * keys.shape[0] * keys.shape[2])


def check_cache(
    full_keys: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, nan: bool = False
) -> None:
    """Raises :class:`PressError` unless these are keys and values of some tokens of that cache: all
    of the shape (1, num_kv_heads, tokens, head_dim), and without NaN unless ``nan`` allows it."""
    if keys.shape != values.shape or keys.ndim != 4:
        raise PressError(
            f"it returned keys of shape {tuple(keys.shape)} and values of shape "
            f"{tuple(values.shape)}"
        )
    expected = (full_keys.shape[0], full_keys.shape[1], full_keys.shape[3])
    if (keys.shape[0], keys.shape[1], keys.shape[3]) != expected:
        raise PressError(
            f"it returned keys of shape {tuple(keys.shape)} for a cache of shape "
            f"{tuple(full_keys.shape)}: only the third dimension may differ"
        )
    for states in (keys, values):
        if (states.dtype, states.device) != (full_keys.dtype, full_keys.device):
            raise PressError(
                f"it returned {states.dtype} on {states.device}, the cache is {full_keys.dtype} on "
                f"{full_keys.device}"
            )
    if keys.shape[2] > full_keys.shape[2]:
        raise PressError(
            f"it returned {keys.shape[2]} tokens of {full_keys.shape[2]}: a press removes, and "
            f"adds none"
        )
    # The largest value passes NaN on, and makes no tensor as large as they are.
    if not nan and keys.numel() and (keys.amax().isnan() or values.amax().isnan()):
        raise PressError("it returned NaN")


def _same_bits(states: torch.Tensor, other: torch.Tensor) -> bool:
    if states.shape != other.shape:
        return False
    # Bits and not numbers, as NaN is not equal to itself. A number of float16, bfloat16 or float32
    # is one word of 16 bits or two.
    bits, other_bits = states.contiguous(), other.contiguous()
    return torch.equal(bits.view(torch.int16), other_bits.view(torch.int16))


def matched_rows(full: torch.Tensor, kept: torch.Tensor) -> torch.Tensor | None:
    """Finds for each kept row the position of the equal row of the full tensor; ``None`` if some
    row has none.

    Shapes (heads, tokens, size); returns int64 (heads, kept tokens). Rows are found by an integer
    hash of their bits, which is exact and order-free unlike a sum of floats, and then compared in
    full."""
    full_hash, kept_hash = _row_hash(full), _row_hash(kept)
    ordered, order = full_hash.sort(dim=1)
    place = torch.searchsorted(ordered, kept_hash).clamp(max=full.shape[1] - 1)
    positions = order.gather(1, place)
    same = full.gather(1, _rows(positions, full)).eq(kept).all()
    # Of two equal rows the search finds one place for both: no mask then tells which is kept.
    distinct = positions.sort(dim=1).values.diff(dim=1).ne(0).all()
    return positions if bool(same & distinct) else None


def _rows(index: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return index[..., None].expand(-1, -1, like.shape[-1])


def _row_hash(rows: torch.Tensor) -> torch.Tensor:
    """Hashes each row of a floating-point tensor to an int64, shape (heads, tokens)."""
    bits = rows.contiguous().view(torch.int16).long()
    # A factor for each place, so that the same numbers in another order make another hash; odd, as
    # an even one would lose bits. The constant is 2**64 over the golden ratio, cut to fit into
    # int64.
    odd = (
        torch.arange(bits.shape[-1], device=rows.device) * 2_654_435_761
        + 0x9E3779B97F4A7C15 % 2**62
    )
    return (bits * (odd | 1)).sum(-1)
