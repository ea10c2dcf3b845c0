"""The model as it was loaded, to find out whether a press wrote to it, and to put it back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn
from transformers import PreTrainedModel

MOST_COPIED = 2 * 10**9  # bytes of weights of which a copy is kept; larger ones are checked, and cannot be put back
PLAIN = (bool, int, float, str)
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Pristine:
    """``parts``: modules and the configuration, by the names that they had. ``attributes``: the plain ones of each,
    such as the scale of an attention, and a forward of its own. ``tensors``: weights and buffers, by name a copy, or of
    a model that is too large the sum of the bits."""

    parts: Mapping[str, Any]
    attributes: Mapping[str, Mapping[str, Any]]
    tensors: Mapping[str, torch.Tensor | int]

    @classmethod
    def of(cls, network: PreTrainedModel, most_copied: int = MOST_COPIED) -> Self:
        parts = dict(_parts(network))
        tensors = _tensors(parts)
        copied = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) <= most_copied
        return cls(
            parts,
            {name: _attributes(part) for name, part in parts.items()},
            {name: tensor.clone() if copied else _sum(tensor) for name, tensor in tensors.items()},
        )

    def written(self) -> str:
        """The name of the first thing that is no longer what it was; nothing if all is."""
        for name, part in self.parts.items():
            if hooks := _strange_hooks(part):
                return f"{name}.{hooks[0][0]}"
            now, was = _attributes(part), self.attributes[name]
            for attribute in (*was, "forward"):
                if now.get(attribute) != was.get(attribute):
                    return f"{name}.{attribute}"
        own = _tensors(self.parts)
        return next((name for name, was in self.tensors.items() if name not in own or not _same(own[name], was)), "")

    def restore(self) -> bool:
        """Puts everything back; whether that was possible."""
        own = _tensors(self.parts)
        with torch.no_grad():
            for name, was in self.tensors.items():
                if isinstance(was, torch.Tensor) and name in own:
                    own[name].copy_(was)
        for name, part in self.parts.items():
            for kind, key in _strange_hooks(part):
                del getattr(part, kind)[key]
            vars(part).pop("forward", None)
            vars(part).update(self.attributes[name])
        return not self.written()


def _parts(network: PreTrainedModel) -> Iterator[tuple[str, Any]]:
    """Modules and the configuration. A rotary embedding that follows the longest context it has seen may change."""
    yield "config", network.config
    yield "text config", network.config.get_text_config()
    yield from ((name or "network", part) for name, part in network.named_modules() if not _is_dynamic(part))


def _is_dynamic(module: nn.Module) -> bool:
    return getattr(module, "rope_type", "default") not in ("default", "linear", "llama3", "yarn")


def _attributes(part: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(part).items() if isinstance(value, PLAIN) or name == "forward"}


def is_of_transformers(hook: Any) -> bool:
    """It puts hooks there once, when hidden states are first asked for."""
    return str(getattr(hook, "__module__", "")).startswith("transformers.")


def _strange_hooks(part: Any) -> list[tuple[str, int]]:
    return [
        (kind, key) for kind in HOOKS for key, hook in getattr(part, kind, {}).items() if not is_of_transformers(hook)
    ]


def _tensors(parts: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    modules = ((name, part) for name, part in parts.items() if isinstance(part, nn.Module))
    return {
        f"{name}.{own}": tensor.detach()
        for name, module in modules
        for own, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    }


def _same(tensor: torch.Tensor, was: torch.Tensor | int) -> bool:
    return _sum(tensor) == was if isinstance(was, int) else torch.equal(tensor, was)


def _sum(tensor: torch.Tensor) -> int:
    return int(tensor.contiguous().view(WORDS[tensor.element_size()]).sum(dtype=torch.int64))
