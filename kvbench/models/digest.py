"""Tells a model in memory from every other one, by its weights, its configuration, its template and
the code that was put into it."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kvbench.models.libraries import hash_of_code
from kvbench.models.snapshot import HOOKS, inner_tensors

# Of a configuration, what says where it came from and not what the model does. The attention is
# chosen by kvbench.
WITHOUT_EFFECT = ("_name_or_path", "transformers_version", "_attn_implementation")
# Of a tokenizer, what the last caller asked of it.
OF_THE_LAST_CALL = ("truncation", "padding")
ROTATION = "rotary_emb"
LIBRARIES = ("torch", "transformers")
BOUND_ARGUMENTS = ("func", "__wrapped__", "__func__")  # where a function is kept in what wraps it


def digest_model(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Returns a hash of a model: two that differ in a weight, in a hook, in a forward pass that was
    replaced, or in the chat template have different ones. All weights are read."""
    digest = hashlib.sha256()
    for text in (*sorted(_describe_modules(network)), *_describe_files(network, tokenizer)):
        digest.update(f"{text}\n".encode())
    named = [*network.named_parameters(), *network.named_buffers()]
    by_place = {_place(name): tensor for name, tensor in named}
    for name, tensor in sorted(by_place.items()):
        for part in inner_tensors(tensor.detach()):
            digest.update(f"{name} {part.dtype} {tuple(part.shape)}\n".encode())
            plain = part.cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(plain.numpy().data)
    return digest.hexdigest()[:16]


def _place(name: str) -> str:
    """Returns the name of a part. kvpress puts the rotation of a model into each of its layers too,
    and leaves it there: wherever it is met first, it has one name."""
    before, rotation, rest = name.partition(ROTATION)
    return rotation + rest if rotation else before


def list_hooks(network: PreTrainedModel) -> list[tuple[str, Any]]:
    """Lists the hooks on the modules of a model that are of no library, each with its place."""
    hooks = []
    for name, module in network.named_modules():
        for kind in HOOKS:
            for hook in getattr(module, kind).values():
                package = str(getattr(hook, "__module__", "")).partition(".")[0]
                if package not in (*LIBRARIES, "kvbench", "accelerate"):
                    hooks.append((f"{name or 'the model'}.{kind.strip('_')}", hook))
    return hooks


def list_packages(network: PreTrainedModel) -> list[str]:
    """Lists the packages that the modules of a model come from, beside torch and transformers."""
    packages: dict[str, None] = {}
    for module in network.modules():
        package = type(module).__module__.partition(".")[0]
        if package not in (*LIBRARIES, "__main__"):
            packages[package] = None
    return list(packages)


def _describe_modules(network: PreTrainedModel) -> Iterator[str]:
    """Yields the kind of each module, and the code that is on it beside that of its library."""
    for name, module in network.named_modules():
        kind = type(module)
        yield f"module {_place(name)} {kind.__module__}.{kind.__qualname__}"
        if kind.__module__.partition(".")[0] not in LIBRARIES:
            for attribute, value in sorted(vars(kind).items()):
                yield f"{attribute} {hash_of_code(_unwrapped(value))}"
        if "forward" in vars(module):
            yield f"forward {hash_of_code(_unwrapped(vars(module)['forward']))}"
    for place, hook in list_hooks(network):
        yield f"hook {place} {hash_of_code(_unwrapped(hook))}"


def _unwrapped(value: Any) -> Any:
    """Returns the function inside a bound method, a partial or a decorator."""
    for name in BOUND_ARGUMENTS:
        inner = getattr(value, name, None)
        if callable(inner):
            return _unwrapped(inner)
    return value


def _describe_files(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Yields what would stand in the files of a model beside its weights."""
    for config in (network.config, network.generation_config):
        fields = {} if config is None else config.to_dict()
        for name in WITHOUT_EFFECT:
            fields.pop(name, None)
        yield json.dumps(fields, sort_keys=True, default=str)
    yield json.dumps([tokenizer.chat_template, tokenizer.special_tokens_map], default=str)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        fields = json.loads(backend.to_str())
        for name in OF_THE_LAST_CALL:
            fields.pop(name, None)
        yield json.dumps(fields, sort_keys=True)
