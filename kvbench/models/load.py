"""Loads the model under test: the reference model that ships with kvbench, a local folder, or a hub
model."""

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import logging as hub_logging
from huggingface_hub import try_to_load_from_cache
from kvpress import SUPPORTED_MODELS
from transformers import (
    AutoModelForCausalLM,
    Gemma3ForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from kvbench.models.adapters import add_adapter, has_own_tokenizer, use_own_template
from kvbench.models.chat_date import date_told, set_date
from kvbench.models.gguf.config import load_gguf
from kvbench.models.gguf.header import is_gguf
from kvbench.models.names import adapter_folder, local_source, model_source, parameters_text
from kvbench.models.precision import NetworkCopies, choose_device, choose_dtype
from kvbench.models.pretrained import (
    NO_CODE,
    Ends,
    check_fields,
    end_of_turn,
    read_config,
    read_tokenizer,
)
from kvbench.models.snapshot import Snapshot
from kvbench.system.clock import today
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.hub import look_for_hub
from policies import Policy, attention_window, is_left_whole
from policies.declaration.devices import device_kind

# Files beside the weights that nothing reads: texts for people, and the state of a training.
DESCRIPTIONS = re.compile(
    r"(README|LICENSE|LICENCE|NOTICE|USE_POLICY|CHANGELOG)(\..*)?|.*\.(md|csv|png|jpe?g|gif|svg|pdf|log|html|py)"
    r"|full_cache\.json|trainer_state\.json|(all|train|eval)_results\.json"
    r"|(optimizer|scheduler|scaler|rng_state\w*)\.(pt|pth|bin)|training_args\.(bin|json|yaml)",
    re.IGNORECASE,
)
# kvpress names Gemma 3 with its images alone; of the text model it says "not tested".
RUNNABLE_MODELS = (*SUPPORTED_MODELS, Gemma3ForCausalLM)


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to run."""

    name: str
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    fingerprint: str  # hash of configuration and weights
    snapshot: Snapshot  # what no press may change
    # Libraries that its weights were read with, beside those of every model.
    packages: tuple[str, ...] = ()
    date: str = ""  # the day that its chat template tells, if it tells one

    @cached_property
    def device(self) -> torch.device:
        """Returns the device of the network, which would search its modules each time."""
        return self.network.device

    @property
    def in_words(self) -> str:
        """Describes the model for readers to whom its name says nothing."""
        template = (
            "without a chat template"
            if self.tokenizer.chat_template is None
            else "with a chat template"
        )
        return f"a model of {parameters_text(self.network.num_parameters())} {template}"

    @cached_property
    def windows(self) -> tuple[int | None, ...]:
        """Returns by layer how far back a sliding layer sees that presses leave whole; ``None`` for
        all others."""
        layers = [layer.self_attn for layer in find_decoder(self.network).layers]
        return tuple(attention_window(layer) if is_left_whole(layer) else None for layer in layers)

    @cached_property
    def copies(self) -> NetworkCopies:
        """Holds the same network in other dtypes, from one context to the next."""
        return NetworkCopies(self.network)

    @property
    def dtype_name(self) -> str:
        return str(self.network.dtype).removeprefix("torch.")

    def clock(self) -> float:
        """Waits until the device has done all its work, and returns seconds."""
        device_kind(self.device).synchronize(self.device)
        return time.perf_counter()

    def count_tokens(self, text: str) -> int:
        return len(self.tokenizer.encode(text, add_special_tokens=False))

    @cached_property
    def _end_of_turn(self) -> tuple[int, ...]:
        return end_of_turn(self.tokenizer)

    def end_tokens(self) -> tuple[int, ...]:
        """Returns the tokens that end an answer: those that kvpress's pipeline reads, and the end
        of a turn in the chat template, without which a chat model goes on to answer itself."""
        ends = self.network.generation_config.eos_token_id
        listed = ends if isinstance(ends, list) else [] if ends is None else [ends]
        return tuple(dict.fromkeys((*listed, *self._end_of_turn)))


def find_decoder(network: PreTrainedModel) -> Any:
    """Returns the stack of decoder layers, where kvpress looks for it (Gemma 3 has it inside a
    multi-modal model)."""
    return getattr(network.model, "language_model", None) or network.model


def count_embeddings(network: PreTrainedModel) -> int:
    embedding: Any = network.get_input_embeddings()
    return int(embedding.weight.shape[0])


def longest_sequence(model: LoadedModel) -> int:
    """Returns the most tokens, of context, question and answer together, that the model can be
    measured on.

    A token that falls out of a layer's attention window is lost by the model and not by the press.
    Where presses compress a sliding layer (Mistral), the two cannot be told apart, and longer
    sequences are refused; a sliding layer that presses leave whole (Gemma 3) sets no limit."""
    # A tokenizer without a limit says 10**30.
    return min(int(model.tokenizer.model_max_length), longest_read(model.network))


def longest_read(network: PreTrainedModel) -> int:
    """Returns the same without the tokenizer's own limit."""
    layers = [layer.self_attn for layer in find_decoder(network).layers]
    windows = [attention_window(layer) for layer in layers if not is_left_whole(layer)]
    positions = int(network.config.get_text_config().max_position_embeddings)
    return min([positions, *(window for window in windows if window is not None)])


@cache
def count_places(name: str) -> int | None:
    """Returns the most tokens, of context, question and answer together, that a model on this
    machine takes; None where its files cannot tell, which whoever loads it hears of, and for one
    that would have to be fetched."""
    source = local_source(name)
    if source is None:
        return None
    try:
        config = read_config(str(source))
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config)
        return min(longest_read(network), int(load_tokenizer(name).model_max_length))
    except (KVBenchError, ValueError, KeyError, AttributeError, OSError):
        return None


def check_places(reader: str, model: str, tokens: int, limit: int) -> None:
    """Raises :class:`KVBenchError` where so many tokens are more than a model takes."""
    if tokens > limit:
        raise KVBenchError(
            f"{reader} needs {tokens} tokens and {model} takes {limit}, the least of its positions, "
            f"its tokenizer's limit and its attention windows: use shorter contexts or answers "
            "(run --max-new-tokens), or another model"
        )


def rotation_switch(model: LoadedModel) -> int | None:
    """Returns the tokens beyond which longrope turns all keys of a pass by other angles, if a model
    has it."""
    parameters = getattr(model.network.config.get_text_config(), "rope_parameters", None) or {}
    is_longrope = parameters.get("rope_type") == "longrope"
    return int(parameters["original_max_position_embeddings"]) if is_longrope else None


@contextmanager
def attention(network: PreTrainedModel, name: str) -> Iterator[None]:
    """Switches the network to another attention implementation inside a ``with`` block."""
    before = network.config._attn_implementation
    # By transformers' own method, which sets it for models inside the network too.
    network.set_attn_implementation(name)
    try:
        yield
    finally:
        network.set_attn_implementation(before)


def load_model(
    name: str,
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    date: str | None = None,
) -> LoadedModel:
    """Loads a model with fused attention; the ``device_map`` ``auto`` spreads it over all GPUs of
    the process. ``date``: the day that its chat template tells, as 2026-11-28; today if none is
    given. Raises :class:`KVBenchError` for a model that cannot be loaded, whose weights are not
    finite, or that this machine cannot spread."""
    source, adapter = model_source(name), adapter_folder(name)
    where = choose_device(device)
    if device_map is not None and where.type != "cuda":
        raise KVBenchError(
            "map=auto of --device spreads weights over GPUs, and there is none: leave it out"
        )
    if device_map is not None and find_spec("accelerate") is None:
        raise KVBenchError(
            "map=auto of --device needs accelerate, which is not installed: pip install accelerate"
        )
    precision = choose_dtype(dtype, where, name)
    transformers_logging.set_verbosity_error()
    # Some presses say for each context how slow they are.
    logging.getLogger("kvpress").setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()
    hub_logging.set_verbosity_error()  # without a network, attempts would fill the screen
    if not Path(source).exists():
        look_for_hub()
    try:
        config = read_config(source)
        check_architecture(name, config.architectures or [])
        text = config.get_text_config()
        check_heads(text.num_attention_heads, getattr(text, "num_key_value_heads", None))
        # sdpa for every model: head-wise presses refuse the eager attention, and h2o sums up its
        # weights by itself.
        options = {"dtype": precision, "attn_implementation": "sdpa", "device_map": device_map}
        if is_gguf(Path(source)):
            loaded: Any = load_gguf(Path(source), config, **options)
        else:
            loaded = AutoModelForCausalLM.from_pretrained(
                source, output_loading_info=True, **NO_CODE, **options
            )
        network, report = loaded
        check_fields(f"generation_config.json of '{name}'", Ends, network.generation_config)
        _check_weights(name, report)
        tokenizer = _load_tokenizer(source, adapter)
        _check_tokenizer(name, tokenizer)
        # Behind the tokenizer, whose added tokens need rows in the embeddings.
        if adapter is not None:
            vocabulary = len(tokenizer) if has_own_tokenizer(adapter) else None
            network = add_adapter(name, network, adapter, vocabulary)
    except KVBenchError:
        raise
    except Exception as error:  # damaged files raise anything
        hint = "" if Path(source).exists() else " (--model reference needs no network)"
        reason = f"{type(error).__name__}: {first_line(error)}{hint}"
        raise KVBenchError(f"cannot load the model '{name}': {reason}") from error
    if device_map is None:
        network = network.to(where)
    else:
        check_spread(
            name,
            {parameter: weight.device.type for parameter, weight in network.named_parameters()},
        )
    # Before any press runs, which would be blamed for the NaN.
    for parameter, weight in network.named_parameters():
        if not weight.isfinite().all():
            raise KVBenchError(
                f"the checkpoint '{name}' is damaged: its weight {parameter} is infinite or NaN"
            )
    packages = {
        "peft": adapter is not None,
        "gguf": is_gguf(Path(source)),
        "accelerate": device_map is not None,
    }
    used = tuple(package for package, is_used in packages.items() if is_used)
    return wrap_model(name, network, tokenizer, hash_files(source, config, adapter), used, date)


def _load_tokenizer(source: str, adapter: Path | None) -> PreTrainedTokenizerBase:
    """Reads the tokenizer that lies beside an adapter, or that of the base, with the adapter's chat
    template."""
    if adapter is not None and has_own_tokenizer(adapter):
        return read_tokenizer(str(adapter))
    tokenizer = read_tokenizer(source)
    if adapter is not None:
        use_own_template(tokenizer, adapter)
    return tokenizer


def check_heads(heads: int, key_heads: int | None) -> None:
    """Raises :class:`KVBenchError` where query heads cannot share the heads that have keys."""
    if key_heads and heads % key_heads:
        raise KVBenchError(f"{heads} heads cannot share {key_heads} key heads evenly")


def check_spread(name: str, kinds: Mapping[str, str]) -> None:
    """Raises :class:`KVBenchError` if a weight is not on a GPU: it would be fetched for every
    token, and presses read it where it is. ``kinds`` maps weights to kinds of device; accelerate
    puts weights on the disk on ``meta``."""
    if elsewhere := [weight for weight, kind in kinds.items() if kind != "cuda"]:
        outside = f"{elsewhere[0]} and {len(elsewhere) - 1} more weights would stay outside"
        advice = "use more or larger ones (on Ray: gpus=2), or --dtype bfloat16"
        raise KVBenchError(f"'{name}' does not fit on the GPUs ({outside}): {advice}")


def load_tokenizer(name: str, date: str | None = None) -> PreTrainedTokenizerBase:
    """Loads the tokenizer alone: a process that only sends work to others needs no weights. Raises
    :class:`KVBenchError` where there is none that can be loaded."""
    try:
        tokenizer = _load_tokenizer(model_source(name), adapter_folder(name))
        set_date(tokenizer, date or today())
        return tokenizer
    except KVBenchError:
        raise
    except Exception as error:
        raise KVBenchError(f"cannot load the tokenizer of '{name}': {first_line(error)}") from error


def check_architecture(name: str, architectures: Sequence[str]) -> None:
    """Raises :class:`KVBenchError` for an architecture that kvpress does not know, before any
    weight is read."""
    supported = sorted(model.__name__ for model in RUNNABLE_MODELS)
    if architectures and not set(architectures) & set(supported):
        raise KVBenchError(
            f"kvpress does not support {architectures[0]} ('{name}'): use one of {', '.join(supported)}"
        )


def _check_weights(name: str, report: Mapping[str, Any]) -> None:
    """Refuses weights that do not match the configuration, which transformers ignores or draws at
    random."""
    surplus = []
    for key in report["unexpected_keys"]:
        if ".layers." in key and "inv_freq" not in key:
            surplus.append(key)
    for misfit, keys in (("lacks", report["missing_keys"]), ("has, beyond its config,", surplus)):
        if keys:
            strange = f"the checkpoint '{name}' {misfit} {min(keys)} ({len(keys)} in all)"
            raise KVBenchError(f"{strange}: its config.json and its weights do not belong together")


def _check_tokenizer(name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuses a damaged tokenizer: for a folder without one, transformers makes an empty tokenizer,
    which turns every context into one token."""
    words = "Where does the mentor of Ana live?"
    if (count := len(tokenizer.encode(words, add_special_tokens=False))) < len(words.split()):
        result = f"the tokenizer of '{name}' makes {count} tokens of '{words}'"
        raise KVBenchError(f"{result}: its files are missing or damaged")


def wrap_model(
    name: str,
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    fingerprint: str,
    packages: tuple[str, ...] = (),
    date: str | None = None,
) -> LoadedModel:
    """Wraps a network that is in memory; raises :class:`KVBenchError` if kvpress does not know its
    architecture."""
    check_architecture(name, [type(network).__name__])
    network, day = network.eval(), date_told(tokenizer, date or today())
    # Behind eval(): the mode of a module is among what a snapshot compares.
    return LoadedModel(name, network, tokenizer, fingerprint, Snapshot.of(network), packages, day)


def hash_files(source: str, config: Any = None, adapter: Path | None = None) -> str:
    """Hashes the files of a model except descriptions, the shards of its weights wherever they lie,
    and those of an adapter. Of a hub model these are its files in the cache; where they are not
    found there, it is its configuration (``config``) and commit."""
    digest = hashlib.sha256(hash_files(str(adapter)).encode() if adapter else b"")
    place = Path(source) if Path(source).exists() else _cached_folder(source, config)
    if place is None:
        digest.update(f"{config._commit_hash} {config.to_json_string()}".encode())
    for name, file in _list_files(place) if place is not None else ():
        digest.update(name.encode())
        with file.open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()[:16]


def _cached_folder(source: str, config: Any) -> Path | None:
    """Returns the folder in the cache of the hub that a model was read from."""
    file = try_to_load_from_cache(
        source, "config.json", revision=getattr(config, "_commit_hash", None)
    )
    return Path(file).parent if isinstance(file, str) else None


def _list_files(place: Path) -> list[tuple[str, Path]]:
    """Lists the files of a model that decide on its answers, each with its name, by which it is
    read; a GGUF file may have any."""
    if place.is_file():
        return [("", place)]
    files = {path for path in place.iterdir() if path.is_file() and not path.name.startswith(".")}
    files |= set(place.glob("additional_chat_templates/*"))
    files = {path for path in files if not DESCRIPTIONS.fullmatch(path.name)} | _list_shards(place)
    return [(str(file.relative_to(place)), file) for file in sorted(files)]


def _list_shards(folder: Path) -> set[Path]:
    """Returns the files that the index of the weights names; raises :class:`KVBenchError` for one
    outside."""
    names = set[str]()
    for index in folder.glob("*.index.json"):
        weight_map = json.loads(index.read_text(encoding="utf-8")).get("weight_map", {})
        names.update(map(str, weight_map.values()))
    for name in names:
        # By their names: in a snapshot of the hub every file is a link to one outside.
        if not Path(os.path.normpath(folder / name)).is_relative_to(os.path.normpath(folder)):
            raise KVBenchError(
                f"the weights of '{folder}' lie outside of it, in {name}: put them into the folder"
            )
    return {folder / name for name in names}


def missing_weights(policies: Sequence[Policy], model: LoadedModel) -> dict[str, str]:
    """Lists the policies whose weights for this model are not there, each with one line that says
    so."""
    needing = [policy for policy in policies if policy.needs.weights]
    if needing:
        look_for_hub()
    missing = {}
    for policy in needing:
        try:
            policy.build(policy.typical_situation(1024)).post_init_from_model(model.network)
        except Exception as error:  # the hub's, a press's
            weights = f"{policy.needs.weights} for '{model.name}'"
            needed = f"{policy.name} needs {weights}, which cannot be loaded"
            missing[policy.name] = f"{needed} ({type(error).__name__}: {first_line(error)[:100]})"
    return missing
