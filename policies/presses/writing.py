"""Changes what is written into the cache while the context is read."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from kvpress import BasePress
from torch import nn

from policies.declaration.steps import NewRows, States, WriteTreatment


@dataclass
class WrittenRowsPress(BasePress):
    """Changes keys and values as they are written into the cache, so that later tokens and layers
    read them so, and then lets another press act as it would."""

    press: BasePress
    treatment: WriteTreatment  # of one branch

    @contextmanager
    def __call__(self, model: Any) -> Iterator[None]:
        decoder = getattr(model.model, "language_model", model.model)
        with ExitStack() as stack:
            divert = partial(self._divert, len(decoder.layers))
            for layer in decoder.layers:
                hook = layer.self_attn.register_forward_pre_hook(divert, with_kwargs=True)
                stack.callback(hook.remove)
            # Its hooks come behind: what it keeps are rows as they were written.
            stack.enter_context(self.press(model))
            yield

    def _divert(
        self, layers: int, module: nn.Module, positional: Any, named: dict[str, Any]
    ) -> None:
        """Puts the change before ``update`` of the cache for the one call that this layer makes."""
        cache = named["past_key_values"]
        # Of the cache, or of such a press around this one, which acts afterwards.
        next_update = cache.update

        def update(
            keys: torch.Tensor, values: torch.Tensor, layer: int, *others: Any, **more: Any
        ) -> Any:
            # The method of its class is back for the next layer, whose own hook puts the change in
            # again.
            vars(cache).pop("update", None)
            # Before the rows are added, as a context may be read in several passes.
            first = cache.get_seq_length(layer)
            end = first + keys.shape[2]
            positions = torch.arange(first, end, device=keys.device)[None]

            def write(tensor: States, states: torch.Tensor) -> torch.Tensor:
                # The treatment was built for one branch, so that its answer is the first.
                new = NewRows(layer, layers, tensor, [0], states, positions, end)
                return self.treatment.on_write(new)

            written_keys = write("keys", keys)
            written_values = write("values", values)
            return next_update(written_keys, written_values, layer, *others, **more)

        cache.update = update
