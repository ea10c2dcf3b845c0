"""Damages what is written into the cache while the context is read."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from kvpress import BasePress
from torch import nn

# Of a layer, one of so many, keys and values of new tokens, shape (num_kv_heads, tokens, head_dim) each, and the
# position of the first one, to what is written instead.
Write = Callable[[int, int, torch.Tensor, torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]


@dataclass
class WriteFaultPress(BasePress):
    """Changes keys and values as they are written into the cache, so that later tokens and layers read them so, and
    then lets another press act as it would."""

    press: BasePress
    write: Write

    @contextmanager
    def __call__(self, model: Any) -> Iterator[None]:
        decoder = getattr(model.model, "language_model", model.model)
        with ExitStack() as stack:
            divert = partial(self._divert, len(decoder.layers))
            for layer in decoder.layers:
                hook = layer.self_attn.register_forward_pre_hook(divert, with_kwargs=True)
                stack.callback(hook.remove)
            stack.enter_context(self.press(model))
            yield

    def _divert(self, layers: int, module: nn.Module, positional: Any, named: dict[str, Any]) -> None:
        """Puts the change before ``update`` of the cache for the one call that this layer makes."""
        cache = named["past_key_values"]

        def update(keys: torch.Tensor, values: torch.Tensor, layer: int, *others: Any, **more: Any) -> Any:
            del cache.update
            replacement = self.write(layer, layers, keys[0], values[0], cache.get_seq_length(layer))
            return cache.update(*(states[None] for states in replacement), layer, *others, **more)

        cache.update = update
