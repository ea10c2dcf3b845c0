"""Adds an adapter that peft wrote to the weights of its base. What comes with it is used, or
refused by name.

peft passes over weights without a place with a warning, and the base alone would be scored under
the adapter's name."""

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from kvbench.models.names import ADAPTER, adapter_folder, base_model
from kvbench.system.errors import KVBenchError, first_line
from policies import LazyModule

peft = LazyModule("peft")  # which takes seconds to import
lora = LazyModule("peft.tuners.lora")

WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
VOCABULARIES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "tekken.json",
    "spiece.model",
)
ABOUT_TOKENS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TEMPLATE, GENERATION = "chat_template.jinja", "generation_config.json"
# Fields of an adapter with which it is more than weights that are added.
NOT_ADDED = ("alora_invocation_tokens", "arrow_config", "layer_replication", "monteclora_config")
EMBEDDINGS = re.compile(r".*\b(embed_tokens|lm_head)(\.base_layer|\.original_module)?\.weight")
NAMED = 2  # weights in a message


def add_adapter(
    name: str, network: PreTrainedModel, folder: Path, vocabulary: int | None
) -> PreTrainedModel:
    """Returns the network with the weights of an adapter added, which then runs as fast as without.
    Raises :class:`KVBenchError` for anything of it that would not be used. ``vocabulary``: tokens
    of the tokenizer beside it, if one is there."""
    _check_files(name, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what peft would pass over; all of it is refused here
        config = peft.PeftConfig.from_pretrained(folder)
        _check_config(name, network, config, folder)
        weights = peft.load_peft_weights(str(folder), device="cpu")
        _check_saved_modules(name, config, weights)
        _resize_embeddings(name, network, weights, vocabulary)
        try:
            adapted = peft.PeftModel.from_pretrained(network, folder)
            # Once more, as only this tells what had no place.
            report = adapted.load_adapter(str(folder), "default")
        except RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines() if "size mismatch" in line]
            misfit = lines[0] if lines else first_line(error)
            raise KVBenchError(
                f"the adapter '{name}' does not fit its base '{base_model(folder)}': {misfit}"
            ) from error
        _check_report(name, folder, report)
        _check_patterns(name, adapted, config)
        merged: PreTrainedModel = adapted.merge_and_unload()
    # A fine-tuned model may end its answers by other tokens than its base.
    if (folder / GENERATION).is_file():
        merged.generation_config = GenerationConfig.from_pretrained(folder)
    return merged


def has_own_tokenizer(folder: Path) -> bool:
    """Tells whether a whole tokenizer lies beside an adapter. Raises :class:`KVBenchError` for a
    part of a tokenizer."""
    if any((folder / file).is_file() for file in VOCABULARIES):
        return True
    if parts := [file for file in ABOUT_TOKENS if (folder / file).is_file()]:
        lack = f"{parts[0]} lies beside the adapter in '{folder}' and its vocabulary does not"
        raise KVBenchError(
            f"{lack}: add {VOCABULARIES[0]}, or take {parts[0]} away to use the base's tokenizer"
        )
    return False


def use_own_template(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Gives the tokenizer of the base the chat template that lies beside an adapter, if one
    does."""
    if (folder / TEMPLATE).is_file():
        tokenizer.chat_template = (folder / TEMPLATE).read_text(encoding="utf-8")


def _refuse(
    name: str,
    fault: str,
    advice: str = "merge it into its base with peft, and name the folder of that",
) -> None:
    raise KVBenchError(f"the adapter '{name}' {fault}: {advice}")


def _check_files(name: str, folder: Path) -> None:
    if not any((folder / file).is_file() for file in WEIGHTS):
        _refuse(name, f"has no weights ({' or '.join(WEIGHTS)})", "add them to its folder")
    others = [
        *folder.glob("*.safetensors"),
        *folder.glob("non_lora*.bin"),
        *folder.glob("pytorch_model*.bin"),
    ]
    if more := sorted(file.name for file in others if file.name not in WEIGHTS):
        _refuse(name, f"has weights in {more[0]}, which peft does not read")
    if adapter_folder(base_model(folder)) is not None:
        _refuse(
            name,
            f"has a base that is an adapter itself, '{base_model(folder)}', and only one is added",
        )


def _check_config(name: str, network: PreTrainedModel, config: Any, folder: Path) -> None:
    """Refuses an adapter that is of another kind of model or task, or acts otherwise than by added
    weights."""
    if config.is_prompt_learning or config.is_adaption_prompt:
        _refuse(
            name,
            f"is of the kind {config.peft_type.value}, which cannot be merged into weights",
            "use a LoRA",
        )
    if config.task_type not in (None, "CAUSAL_LM"):
        _refuse(
            name,
            f"was made for the task {config.task_type}, not for CAUSAL_LM",
            "use one that writes text",
        )
    of_class = (config.auto_mapping or {}).get("base_model_class")
    if of_class and of_class != type(network).__name__:
        _refuse(
            name,
            f"was made for a {of_class}, and its base is a {type(network).__name__}",
            "check its base",
        )
    if used := [field for field in NOT_ADDED if getattr(config, field, None)]:
        _refuse(name, f"has {used[0]}, with which it is more than added weights", "use one without")
    if config.revision not in (None, "main") and not Path(base_model(folder)).exists():
        fault = f"needs the revision {config.revision} of '{base_model(folder)}'"
        _refuse(name, fault, f"download that, and put its folder into {ADAPTER}")


def _check_saved_modules(name: str, config: Any, weights: Mapping[str, torch.Tensor]) -> None:
    for module in getattr(config, "modules_to_save", None) or ():
        if not any(f".{module}." in key for key in weights):
            _refuse(
                name,
                f"names {module} in modules_to_save and has no weights of it",
                "save it again with them",
            )


def _resize_embeddings(
    name: str, network: PreTrainedModel, weights: Mapping[str, torch.Tensor], vocabulary: int | None
) -> None:
    """Makes room for the tokens that were added with an adapter, whose embeddings it brings."""
    tensors = [weight for key, weight in weights.items() if EMBEDDINGS.fullmatch(key)]
    embedding: Any = network.get_input_embeddings()
    rows = int(embedding.weight.shape[0])
    sizes = {int(weight.shape[0]) for weight in tensors}
    if len(sizes) > 1:
        _refuse(
            name,
            f"has embeddings of {' and '.join(map(str, sorted(sizes)))} tokens",
            "save it again",
        )
    if network.config.tie_word_embeddings and any(
        not torch.equal(tensors[0], tensor) for tensor in tensors[1:]
    ):
        _refuse(name, "has two tables of embeddings, and its base has one for both ends")
    if sizes and sizes != {rows}:
        if vocabulary is None:
            added = f"has embeddings of {sizes.pop()} tokens, its base of {rows}"
            _refuse(name, added, "put the tokenizer with the added tokens beside it")
        # Without the mean: these rows are replaced by those of the adapter.
        network.resize_token_embeddings(sizes.pop(), mean_resizing=False)
    elif vocabulary is not None and vocabulary > max(rows, *sizes, 0):
        added = f"has a tokenizer of {vocabulary} tokens, its base embeddings of {rows}, and it brings none"
        _refuse(name, added, "save it with save_embedding_layers=True")


def _check_report(name: str, folder: Path, report: Any) -> None:
    """Refuses weights that have no place in the base, and places that have no weights."""
    for misfit, keys in (
        ("has weights without a place in", report.unexpected_keys),
        ("lacks", report.missing_keys),
    ):
        if keys:
            names = f"{', '.join(sorted(keys)[:NAMED])} ({len(keys)} in all)"
            fault = f"{misfit} its base '{base_model(folder)}': {names}"
            if misfit == "lacks":
                fault = f"lacks weights for {names}"
            raise KVBenchError(
                f"the adapter '{name}' {fault}; it was made for another model, or saved in part"
            )


def _check_patterns(name: str, adapted: Any, config: Any) -> None:
    """Refuses a rank or scale that belongs to no module: peft would use the usual one."""
    modules = []
    for place, module in adapted.named_modules():
        if isinstance(module, lora.LoraLayer):
            modules.append(place)
    for field in ("rank_pattern", "alpha_pattern"):
        patterns: Sequence[str] = list(getattr(config, field, None) or ())
        # As peft itself matches them: by the end of a module's place.
        for pattern in patterns:
            if not any(
                re.match(rf"(.*\.)?({pattern.removeprefix('^')})$", place) for place in modules
            ):
                _refuse(
                    name,
                    f"has a {field} for '{pattern}', which names no module of it",
                    "correct the name",
                )
