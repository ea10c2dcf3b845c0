"""Remembers the model as it was loaded, to notice whether a press changed it, and to restore it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn
from transformers import PreTrainedModel

MOST_COPIED = 2 * 10**9  # bytes of weights that are copied; those of a larger model are checked, and cannot be restored
PLAIN = (bool, int, float, str)
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class TensorState:
    """A weight or buffer as it was when the model was loaded."""

    place: dict[str, Any]  # of a module
    name: str  # in the place
    tensor: torch.Tensor
    data: torch.Tensor
    content: torch.Tensor | int  # a copy, or the sum of the bits where the model is too large

    @property
    def is_same(self) -> bool:
        now = self.place.get(self.name)
        if now is not self.tensor or (now.dtype, now.shape) != (self.data.dtype, self.data.shape):
            return False
        if isinstance(self.content, int):
            return _sum(now.detach()) == self.content
        return torch.equal(now, self.content)

    def restore(self) -> None:
        self.place[self.name] = self.tensor
        self.tensor.data = self.data
        if isinstance(self.content, torch.Tensor):
            self.data.copy_(self.content)


@dataclass(frozen=True)
class Pristine:
    """The state of a model when it was loaded."""

    parts: Mapping[str, Any]  # modules and the configuration, by name
    attributes: Mapping[str, Mapping[str, Any]]  # plain values of each part, such as a scale, and a replaced forward
    children: Mapping[str, Mapping[str, nn.Module | None]]  # the modules inside each module
    tensors: Mapping[str, TensorState]  # weights and buffers by name

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
                f"{name}.{key}": TensorState(
                    place, key, tensor, tensor.data, _content(tensor.data, size <= most_copied)
                )
                for name, module in modules.items()
                for place in (module._parameters, module._buffers)
                for key, tensor in place.items()
                if tensor is not None
            },
        )

    def first_change(self) -> str:
        """Names the first part that has changed; an empty text if none has."""
        for name, children in self.children.items():
            present = self.parts[name]._modules
            for key, child in children.items():
                if present.get(key) is not child:
                    return f"{name}.{key}"
        for name, part in self.parts.items():
            if hooks := _strange_hooks(part):
                return f"{name}.{hooks[0][0]}"
            now, was = _attributes(part), self.attributes[name]
            for attribute in (*was, "forward"):
                if now.get(attribute) != was.get(attribute):
                    return f"{name}.{attribute}"
        return next((name for name, tensor in self.tensors.items() if not tensor.is_same), "")

    def restore(self) -> bool:
        """Restores everything, and tells whether that was possible."""
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
        return not self.first_change()


def _parts(network: PreTrainedModel) -> Iterator[tuple[str, Any]]:
    """Yields modules and the configuration, except rotary embeddings that may change with the longest context."""
    yield "config", network.config
    yield "text config", network.config.get_text_config()
    yield from ((name or "network", part) for name, part in network.named_modules() if not _is_dynamic(part))


def _is_dynamic(module: nn.Module) -> bool:
    return getattr(module, "rope_type", "default") not in ("default", "linear", "llama3", "yarn")


def _attributes(part: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(part).items() if isinstance(value, PLAIN) or name == "forward"}


def is_of_transformers(hook: Any) -> bool:
    """Tells whether a hook is from transformers, which adds its own when a model first returns hidden states."""
    return str(getattr(hook, "__module__", "")).startswith("transformers.")


def _strange_hooks(part: Any) -> list[tuple[str, int]]:
    return [
        (kind, key) for kind in HOOKS for key, hook in getattr(part, kind, {}).items() if not is_of_transformers(hook)
    ]


def _content(tensor: torch.Tensor, whole: bool) -> torch.Tensor | int:
    return tensor.clone() if whole else _sum(tensor)


def _sum(tensor: torch.Tensor) -> int:
    return int(tensor.contiguous().view(WORDS[tensor.element_size()]).sum(dtype=torch.int64))
