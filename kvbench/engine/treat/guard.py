"""Guards the model: presses have to leave it as they find it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from kvbench.models.load import LoadedModel, decoder_of
from kvbench.models.snapshot import is_expected

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
def left_as_it_was(model: LoadedModel) -> Iterator[None]:
    """Undoes whatever a press does to the model in its own pass: masks, hooks, another forward, another attention."""
    network, decoder = model.network, decoder_of(model.network)
    implementation = network.config._attn_implementation
    hooks = {module: dict(module._forward_hooks) for module in network.modules()}
    forwards = {part: vars(part).get("forward") for part in (network, decoder)}
    try:
        yield
    finally:
        for module in attention_modules(model):
            module.masked_key_indices = None
        for module, before in hooks.items():
            hooks_now = module._forward_hooks
            for key in [key for key, hook in hooks_now.items() if key not in before and not is_expected(hook)]:
                del hooks_now[key]
        for part, forward in forwards.items():
            if forward is None:
                vars(part).pop("forward", None)
            else:
                part.forward = forward
        if network.config._attn_implementation != implementation:
            network.set_attn_implementation(implementation)
