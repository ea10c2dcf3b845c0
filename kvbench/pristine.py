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
class Kept:
    """A weight or buffer in its place. ``was``: a copy of it, or of a model that is too large the sum of its bits."""

    place: dict[str, Any]
    own_name: str
    tensor: torch.Tensor
    data: torch.Tensor
    was: torch.Tensor | int

    @property
    def is_same(self) -> bool:
        now = self.place.get(self.own_name)
        if now is not self.tensor or (now.dtype, now.shape) != (self.data.dtype, self.data.shape):
            return False
        return _sum(now.detach()) == self.was if isinstance(self.was, int) else torch.equal(now, self.was)

    def restore(self) -> None:
        self.place[self.own_name] = self.tensor
        self.tensor.data = self.data
        if isinstance(self.was, torch.Tensor):
            self.data.copy_(self.was)


@dataclass(frozen=True)
class Pristine:
    """``parts``: modules and the configuration, by the names that they had. ``attributes``: the plain ones of each,
    such as the scale of an attention, and a forward of its own. ``children``: the modules in each. ``tensors``: weights
    and buffers by name."""

    parts: Mapping[str, Any]
    attributes: Mapping[str, Mapping[str, Any]]
    children: Mapping[str, Mapping[str, nn.Module | None]]
    tensors: Mapping[str, Kept]

    @classmethod
    def of(cls, network: PreTrainedModel, most_copied: int = MOST_COPIED) -> Self:
        parts = dict(_parts(network))
        size = sum(weight.numel() * weight.element_size() for weight in network.parameters())
        modules = {name: part for name, part in parts.items() if isinstance(part, nn.Module)}
        return cls(
            parts,
            {name: _attributes(part) for name, part in parts.items()},
            {name: dict(module._modules) for name, module in modules.items()},
            {
                f"{name}.{own}": Kept(place, own, tensor, tensor.data, _kept(tensor.data, size <= most_copied))
                for name, module in modules.items()
                for place in (module._parameters, module._buffers)
                for own, tensor in place.items()
                if tensor is not None
            },
        )

    def written(self) -> str:
        """The name of the first thing that is no longer what it was; nothing if all is."""
        for name, children in self.children.items():
            now_in = self.parts[name]._modules
            for own, child in children.items():
                if now_in.get(own) is not child:
                    return f"{name}.{own}"
        for name, part in self.parts.items():
            if hooks := _strange_hooks(part):
                return f"{name}.{hooks[0][0]}"
            now, was = _attributes(part), self.attributes[name]
            for attribute in (*was, "forward"):
                if now.get(attribute) != was.get(attribute):
                    return f"{name}.{attribute}"
        return next((name for name, tensor in self.tensors.items() if not tensor.is_same), "")

    def restore(self) -> bool:
        """Puts everything back; whether that was possible."""
        for name, children in self.children.items():
            self.parts[name]._modules.update(children)
        with torch.no_grad():
            for tensor in self.tensors.values():
                tensor.restore()
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


def _kept(tensor: torch.Tensor, whole: bool) -> torch.Tensor | int:
    return tensor.clone() if whole else _sum(tensor)


def _sum(tensor: torch.Tensor) -> int:
    return int(tensor.contiguous().view(WORDS[tensor.element_size()]).sum(dtype=torch.int64))
