"""Reads what a server tells of itself: its model, its version, and its settings if it tells them.

What a server says is text of a stranger: only fields that are listed here are stored, and none that
may hold a path, an address or a key."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from kvbench.models.gguf.header import SUFFIX
from kvbench.publish.places import name_of_place
from kvbench.served.client import Client
from kvbench.system.console import printable
from kvbench.system.errors import KVBenchError

# Documents beside the address: llama.cpp's, vLLM's, and SGLang's.
DOCUMENTS = ("/props", "/version", "/get_server_info")
# Fields of the model in /v1/models that another cache or another number of slots leaves as they
# are: by these a model is known again.
OF_MODEL = ("vocab_type", "n_vocab", "n_ctx_train", "n_embd", "n_params", "size", "ftype")
SETTINGS = (
    # llama.cpp
    *("build_info", "n_ctx", "total_slots", "model_ftype"),
    # llama.cpp tells no types of its cache; servers that have these fields do.
    *("cache_type_k", "cache_type_v", "flash_attn"),
    # vLLM and SGLang
    *("version", "max_model_len", "kv_cache_dtype", "quantization", "dtype", "attention_backend"),
    *("context_length", "chunked_prefill_size", "page_size", "disable_radix_cache"),
)
LONGEST = 100  # characters of a name or setting


@dataclass(frozen=True)
class ServerFacts:
    """Holds what a server tells."""

    model: str  # as requests name it; it may be a path of the server
    name: str  # as it is stored and shown
    fingerprint: str  # hash of what is told of the model
    settings: Mapping[str, str]


def read_facts(client: Client) -> ServerFacts:
    """Asks a server for its model and its settings. Raises :class:`KVBenchError` where it has
    several models, or none of the name that was given."""
    entry = _choose_model(client.look_up("/models"), client.address.options.name)
    model = str(entry["id"])
    name = printable(_name_of_model(model))[:LONGEST]
    meta = entry.get("meta")
    details = _scalars(meta if isinstance(meta, Mapping) else {}, OF_MODEL)
    digest = hashlib.sha256(json.dumps([name, details], sort_keys=True).encode()).hexdigest()[:16]
    settings = _scalars({"server": entry.get("owned_by")}, ("server",))
    settings |= _scalars(entry, SETTINGS)
    for path in DOCUMENTS:
        settings |= _settings_in(client.look_up(path, at_root=True))
    return ServerFacts(model, name, digest, settings)


def _name_of_model(model: str) -> str:
    """Returns the name of a model without the place that a server may list it by: llama.cpp lists
    the path of its file, as it was given."""
    if "\\" in model:
        return PureWindowsPath(model).name
    if model.endswith(SUFFIX):
        return PurePosixPath(model).name
    return name_of_place(model)


def _choose_model(listed: Any, name: str | None) -> Mapping[str, Any]:
    """Returns what a server says of the model that is meant."""
    entries: dict[str, Mapping[str, Any]] = {}
    data = listed.get("data") if isinstance(listed, Mapping) else None
    for entry in data if isinstance(data, list) else ():
        if isinstance(entry, Mapping) and entry.get("id"):
            entries[str(entry["id"])] = entry
    if name is not None:
        if entries and name not in entries:
            names = ", ".join(entries)
            raise KVBenchError(f"--model: the server has no model {name}: it has {names}")
        return entries.get(name, {"id": name})
    if len(entries) == 1:
        return next(iter(entries.values()))
    if not entries:
        raise KVBenchError(
            "--model: the server lists no model: see whether the address ends with /v1, or name "
            "the model as ADDRESS(name=MODEL)"
        )
    names = ", ".join(entries)
    raise KVBenchError(f"--model: the server has several models: ADDRESS(name=MODEL), of {names}")


def _settings_in(document: Any) -> dict[str, str]:
    """Returns the settings that a document tells, those of llama.cpp's slots among them."""
    if not isinstance(document, Mapping):
        return {}
    settings = _scalars(document, SETTINGS)
    defaults = document.get("default_generation_settings")
    if isinstance(defaults, Mapping):
        settings |= _scalars(defaults, ("n_ctx",))
    template = document.get("chat_template")
    if isinstance(template, str):
        settings["chat_template"] = hashlib.sha256(template.encode()).hexdigest()[:16]
    return settings


def _scalars(document: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    """Returns as texts the named fields that hold a number or a short word, and no path."""
    chosen: dict[str, str] = {}
    for name in names:
        value = document.get(name)
        if isinstance(value, bool | int | float | str):
            text = printable(str(value))
            if text and len(text) <= LONGEST and "/" not in text and "\\" not in text:
                chosen[name] = text
    return chosen
