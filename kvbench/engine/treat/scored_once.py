"""Presses that score a whole context and then compress it once: one scoring serves all ratios."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from kvpress import KVComposePress, KVzipPress
from transformers import DynamicCache

from kvbench.engine.treat.branch import Branch, head_masks
from kvbench.models.load import LoadedModel


@dataclass(frozen=True)
class Left:
    """Holds what a press left of a context, by layer."""

    rows: list[tuple[torch.Tensor, torch.Tensor]]  # keys and values
    masks: list[Any]  # as :func:`head_masks` finds them


def find_left(model: LoadedModel, cache: DynamicCache) -> Left:
    """Finds what a press has left in a cache, and masked out of it."""
    rows = [(cast("Any", layer).keys, cast("Any", layer).values) for layer in cache.layers]
    return Left(rows, head_masks(model))


def prefills(branches: Sequence[Branch]) -> Iterator[list[Branch]]:
    """Lists the branches of a press that one prefill serves: all ratios where one scoring does; else
    one."""
    policy = branches[0].treatment.policy
    sound = [branch for branch in branches if branch.error is None]
    # At ratio 0 KVzip makes no scores at all, and others could not be served by it.
    evicting = [branch for branch in sound if branch.treatment.ratio > 0]
    if len(evicting) > 1 and policy.ratio_free_score and _compression(evicting[0].press):
        yield evicting
        sound = [branch for branch in sound if branch.treatment.ratio == 0]
    for branch in sound:
        yield [branch]


def _compression(press: Any) -> str:
    """Names the method with which a press compresses, once, by its scores of the whole context;
    nothing where it has none."""
    if isinstance(press, KVzipPress):
        return "compress_post"
    if isinstance(press, KVComposePress):
        return "compress_cache"
    return ""


@contextmanager
def compressing_for(
    model: LoadedModel, cache: DynamicCache, branches: Sequence[Branch]
) -> Iterator[list[Left]]:
    """Has the press of the first branch compress for each in turn, from the same scores and the
    same rows. Yields what it leaves of each; that stays empty for a single branch, whose press is
    left alone."""
    press: Any = branches[0].press
    left: list[Left] = []
    if len(branches) == 1:
        yield left
        return
    name = _compression(press)
    compress = getattr(press, name)

    def compress_for_each(network: Any) -> None:
        ratio = press.compression_ratio
        uncut = find_left(model, cache).rows
        scores = press.score_val if isinstance(press, KVzipPress) else None
        try:
            for branch in branches:
                press.compression_ratio = cast("Any", branch.press).compression_ratio
                if scores is None:
                    press.prepare_important_masks()
                else:
                    # A copy, as KVzip writes the scores of its sinks into them.
                    press.score_val = scores.clone()
                compress(network)
                left.append(find_left(model, cache))
                for layer, rows in zip(cache.layers, uncut, strict=True):
                    layer.keys, layer.values = rows
        finally:
            press.compression_ratio = ratio

    # On the instance, so that to delete it brings back the method of the class.
    setattr(press, name, compress_for_each)
    try:
        yield left
    finally:
        delattr(press, name)
