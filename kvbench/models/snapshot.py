"""A snapshot of a model as it was loaded, which tells whether a press has written to it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from transformers import PreTrainedModel

from kvbench.system.errors import KVBenchError

OF_CLASS = object()  # stands for the forward pass of a class, where a module has none of its own
PLAIN = (bool, int, float, str)
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ModelChangedError(KVBenchError):
    """A press wrote to the model, so that no later result of this process means anything."""

    def __init__(self, policies: Sequence[str], place: str) -> None:
        """``place``: the changed part of the model. ``policies``: which of them have done it; none
        if unknown."""
        super().__init__(policies, place)
        self.policies, self.place = policies, place

    def __str__(self) -> str:
        culprit = " or ".join(self.policies) or "a press"
        return f"{culprit} changed {self.place} of the model: run without it, and see python -m kvbench doctor"


@dataclass(frozen=True)
class TensorState:
    """A weight or buffer as it was when the model was loaded."""

    place: dict[str, Any]  # of a module
    name: str  # in the place
    tensor: torch.Tensor
    dtype: torch.dtype
    shape: torch.Size
    version: int  # how often it had been written to, as torch counts
    checksum: int  # the sum of its bits

    @classmethod
    def of(cls, place: dict[str, Any], name: str, tensor: torch.Tensor) -> Self:
        return cls(
            place, name, tensor, tensor.dtype, tensor.shape, tensor._version, _sum(tensor.detach())
        )

    def is_same(self, by_content: bool) -> bool:
        """Compares the tensor with its state by its bits, or else by the number of times that it
        was written to."""
        now = self.place.get(self.name)
        # Another tensor in its place is a change, whatever numbers it holds.
        if now is not self.tensor or (now.dtype, now.shape) != (self.dtype, self.shape):
            return False
        if by_content:
            return _sum(now.detach()) == self.checksum
        return now._version == self.version


@dataclass(frozen=True)
class Snapshot:
    """The state of a model when it was loaded."""

    parts: Mapping[str, Any]  # modules and the configuration, by name
    # Of each part its plain values, such as a scale, the modules inside it, and a replaced forward.
    attributes: Mapping[str, Mapping[str, Any]]
    tensors: Mapping[str, TensorState]  # weights and buffers by name
    # The hooks that were there, by their identities: those of who handed the model in stay.
    hooks: frozenset[int] = frozenset()

    @classmethod
    def of(cls, network: PreTrainedModel) -> Self:
        parts = dict(_parts(network))
        hooks: set[int] = set()
        attributes = {}
        tensors = {}
        for name, part in parts.items():
            attributes[name] = _attributes(part)
            for kind in HOOKS:
                hooks.update(map(id, getattr(part, kind, {}).values()))
            for place in (getattr(part, "_parameters", {}), getattr(part, "_buffers", {})):
                for key, tensor in place.items():
                    if tensor is not None:
                        tensors[f"{name}.{key}"] = TensorState.of(place, key, tensor)
        return cls(parts, attributes, tensors, frozenset(hooks))

    def first_change(self, by_content: bool = True) -> str:
        """Names the first part that has changed; an empty text if none has.

        Without ``by_content`` no weight is read, which is fast; then only a write through ``.data``
        is not seen."""
        for name, part in self.parts.items():
            if hook := _strange_hook(part, self.hooks):
                return f"{name}.{hook}"
            now, was = _attributes(part), self.attributes[name]
            # A forward pass is among them only where it is not the class's own, now or then.
            for attribute in (*was, "forward"):
                if now.get(attribute) != was.get(attribute):
                    return f"{name}.{attribute}"
        for name, tensor in self.tensors.items():
            if not tensor.is_same(by_content):
                return name
        return ""


def _parts(network: PreTrainedModel) -> Iterator[tuple[str, Any]]:
    """Yields modules and the configuration, except rotary embeddings that may change with the
    longest context."""
    yield "config", network.config
    yield "text config", network.config.get_text_config()
    for name, part in network.named_modules():
        if getattr(part, "rope_type", "default") in ("default", "linear", "llama3", "yarn"):
            yield name or "network", part


def _attributes(part: Any) -> dict[str, Any]:
    """Returns the plain values of a part, its modules, and its forward pass if it is not that of
    its class.

    A press that puts its own in place and then the old one back leaves the class's own on the part
    itself."""
    values = {name: value for name, value in vars(part).items() if isinstance(value, PLAIN)}
    values |= vars(part).get("_modules", {})
    forward = vars(part).get("forward", OF_CLASS)
    is_own = forward is OF_CLASS or getattr(forward, "__func__", None) is type(part).forward
    if not is_own:
        values["forward"] = forward or "none"
    return values


def _strange_hook(part: Any, before: frozenset[int]) -> str:
    """Names the kind of the first hook that was not there before, and is neither kvbench's nor that
    of transformers for hidden states."""
    # Hooks of kvpress are gone whenever this is asked: one that is there was left behind.
    expected = ("kvbench.", "transformers.")
    for kind in HOOKS:
        for hook in getattr(part, kind, {}).values():
            module = str(getattr(hook, "__module__", ""))
            if not module.startswith(expected) and id(hook) not in before:
                return kind
    return ""


def inner_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields the plain tensors that hold a tensor's numbers: of weights that a library keeps in few
    bits, their codes and their scales; of any other, itself."""
    holder: Any = tensor  # of which type checkers know no such kind
    if not is_traceable_wrapper_subclass(holder):
        yield tensor
        return
    names, _ = holder.__tensor_flatten__()
    for name in names:
        yield from inner_tensors(getattr(holder, name))


def _sum(tensor: torch.Tensor) -> int:
    total = 0
    for part in inner_tensors(tensor):
        # Bits as integers: NaN would hide every other change in a sum of floats.
        words = part.contiguous().view(WORDS[part.element_size()])
        total += int(words.sum(dtype=torch.int64))
    return total
