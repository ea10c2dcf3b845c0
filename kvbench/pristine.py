"""The model as it was loaded, to find out whether a press wrote to it, and to put it back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn
from transformers import PreTrainedModel

MOST_COPIED = 2 * 10**9  # bytes of weights of which a copy is kept; larger ones are checked, and cannot be put back
PLAIN = (bool, int, float, str)
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Pristine:
    """``attributes``: by module, the plain ones, such as the scale of an attention, and a forward of its own.
    ``weights``: by name a copy, or of a model that is too large the sum of the bits."""

    network: PreTrainedModel
    attributes: Mapping[str, Mapping[str, Any]]
    weights: Mapping[str, torch.Tensor | int]

    @classmethod
    def of(cls, network: PreTrainedModel, most_copied: int = MOST_COPIED) -> Self:
        weights = {name: weight.detach() for name, weight in network.named_parameters()}
        copied = sum(weight.numel() * weight.element_size() for weight in weights.values()) <= most_copied
        return cls(
            network,
            {name: _attributes(module) for name, module in network.named_modules() if _is_fixed(module)},
            {name: weight.clone() if copied else _sum(weight) for name, weight in weights.items()},
        )

    def written(self) -> str:
        """The name of the first thing that is no longer what it was; nothing if all is."""
        for name, attributes in self.attributes.items():
            now = _attributes(self.network.get_submodule(name))
            changed = [
                attribute for attribute in (*attributes, "forward") if now.get(attribute) != attributes.get(attribute)
            ]
            if changed:
                return f"{name}.{changed[0]}"
        own = dict(self.network.named_parameters())
        return next((name for name, was in self.weights.items() if name not in own or not _same(own[name], was)), "")

    def restore(self) -> bool:
        """Puts everything back; whether that was possible."""
        with torch.no_grad():
            for name, was in self.weights.items():
                if isinstance(was, torch.Tensor):
                    self.network.get_parameter(name).copy_(was)
        for name, attributes in self.attributes.items():
            module = self.network.get_submodule(name)
            vars(module).pop("forward", None)
            for attribute, value in attributes.items():
                setattr(module, attribute, value)
        return not self.written()


def _is_fixed(module: nn.Module) -> bool:
    """Rotary embeddings may follow the longest context that they have seen."""
    return "Rotary" not in type(module).__name__


def _attributes(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if isinstance(value, PLAIN) or name == "forward"}


def _same(weight: torch.Tensor, was: torch.Tensor | int) -> bool:
    return _sum(weight) == was if isinstance(was, int) else torch.equal(weight, was)


def _sum(weight: torch.Tensor) -> int:
    return int(weight.detach().contiguous().view(WORDS[weight.element_size()]).sum(dtype=torch.int64))
