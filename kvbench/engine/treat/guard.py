"""Tells presses of strangers from known ones, and guards the model against the masks of presses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from kvpress.presses import base_press
from torch import nn
from transformers import Gemma3PreTrainedModel

from kvbench.models.load import LoadedModel, decoder_of

KNOWN = ("kvpress.", "policies.")  # packages whose presses are tested to write to nothing but their cache


def attention_modules(model: LoadedModel) -> list[Any]:
    return [layer.self_attn for layer in decoder_of(model.network).layers]


def is_known(press: Any) -> bool:
    """Tells whether a press, with all presses inside it, comes from kvpress or kvbench and not from a user."""
    inner = [one for one in (getattr(press, "press", None), *getattr(press, "presses", ())) if one is not None]
    return type(press).__module__.startswith(KNOWN) and all(map(is_known, inner))


def masks_of(module: nn.Module) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Returns the indices that a head-wise press has masked out of the module's keys."""
    masked: Any = getattr(module, "masked_key_indices", None)
    return None if masked is None else tuple(masked)


@contextmanager
def leaving_sliding_layers() -> Iterator[None]:
    """Has kvpress leave the sliding layers of every Gemma 3 whole (:func:`is_left_whole`), not of that with images
    alone."""
    original = base_press.Gemma3ForConditionalGeneration
    base_press.Gemma3ForConditionalGeneration = Gemma3PreTrainedModel
    try:
        yield
    finally:
        base_press.Gemma3ForConditionalGeneration = original


@contextmanager
def clearing_masks(model: LoadedModel) -> Iterator[None]:
    """Clears the masks that a head-wise press sets on modules: they are its result, and nobody else's.

    Nothing else is put back. A press that changes the model is named, and no later result of the process is taken
    (:class:`ModelChangedError`).
    """
    try:
        yield
    finally:
        for module in attention_modules(model):
            module.masked_key_indices = None
