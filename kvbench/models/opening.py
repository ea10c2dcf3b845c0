"""Opens the model of a name: one that is in memory as it is, any other by its files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from kvbench.handed.scope import HandedModel, find_handed_model
from kvbench.models import load
from kvbench.models.chat_date import date_told
from kvbench.models.digest import digest_model, list_hooks, list_packages
from kvbench.models.load import RUNNABLE_MODELS, LoadedModel, attention, find_decoder
from kvbench.models.snapshot import Snapshot
from kvbench.system.clock import today
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError, first_line
from policies.declaration.devices import DEVICE_KINDS

COUNTED = "kvbench_counted"
# The attention that transformers has, in place of which the engine puts its own.
USUAL_ATTENTION = ("sdpa", "eager", "flash_attention_2", "flash_attention_3", "flex_attention")
TRIED_TOKENS = 4  # in the pass that shows which layers call the attention that they are given
NAMED = 3  # hooks or layers of a message


def open_model(
    name: str,
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | None = None,
    date: str | None = None,
    why: str = "",
) -> LoadedModel:
    """Returns the model of a name, ready to run: :func:`kvbench.models.load.load_model`, or what is
    in memory under that name, on its device and in its dtype. ``why``: what it is loaded for, as is
    said. Raises :class:`KVBenchError` for a
    model that cannot be run."""
    handed = find_handed_model(name)
    if handed is None:
        console.print(f"loading {name}{why}", soft_wrap=True)
        return load.load_model(name, device, dtype, device_map, date)
    network, tokenizer = handed.network, handed.tokenizer
    _check_weights(handed)
    network.eval()
    network.set_attn_implementation("sdpa")
    _check_layers(handed)
    day = date_told(tokenizer, date or today())
    if hooks := list_hooks(network):
        places = ", ".join(place for place, _ in hooks[:NAMED])
        more = f" and {len(hooks) - NAMED} more" if len(hooks) > NAMED else ""
        line = f"hooks of your own stay on the model, and act in every pass: {places}{more}"
        console.print(line, soft_wrap=True, markup=False)
    return LoadedModel(
        name,
        network,
        tokenizer,
        digest_model(network, tokenizer),
        Snapshot.of(network),
        tuple(list_packages(network)),
        day,
    )


def open_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Returns the tokenizer of a model by its name, or the one that is in memory."""
    handed = find_handed_model(name)
    if handed is None:
        return load.load_tokenizer(name)
    return handed.tokenizer


def count_places(name: str) -> int | None:
    """Returns the most tokens, of context, question and answer together, that a model takes; None
    where its files cannot tell."""
    handed = find_handed_model(name)
    if handed is None:
        return load.count_places(name)
    return min(load.longest_read(handed.network), int(handed.tokenizer.model_max_length))


def check_kind(network: Any, tokenizer: Any) -> None:
    """Raises :class:`KVBenchError` for what is no model that can be measured, or has no tokenizer
    that can be read by."""
    kinds = [kind.__name__ for kind in type(network).__mro__]
    if "PeftModel" in kinds:
        raise KVBenchError(
            f"{kinds[0]} has its adapter beside the weights: hand in model.merge_and_unload()"
        )
    if not isinstance(network, PreTrainedModel):
        raise KVBenchError(
            f"a model is a name, a folder or a PreTrainedModel of transformers, not a {kinds[0]}"
        )
    supported = {kind.__name__ for kind in RUNNABLE_MODELS}
    if not supported & set(kinds):
        load.check_architecture("the model in memory", kinds[:1])
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise KVBenchError("a model in memory needs its tokenizer: give model=(model, tokenizer)")
    if not tokenizer.is_fast:
        raise KVBenchError(
            f"{type(tokenizer).__name__} does not tell which characters a token stands for: load "
            "the tokenizer with use_fast=True"
        )
    if network.device.type not in DEVICE_KINDS:
        raise KVBenchError(
            f"the model is on {network.device.type}, and kvbench computes on "
            f"{' or '.join(DEVICE_KINDS)}: move it there"
        )
    used = network.config._attn_implementation
    if used not in USUAL_ATTENTION:
        raise KVBenchError(
            f"the model runs an attention of your own, '{used}', and the engine answers all "
            "branches by one of its own: load it with attn_implementation='sdpa'"
        )


@contextmanager
def left_as_it_was(handed: HandedModel) -> Iterator[None]:
    """Gives a model and its tokenizer back as they were before the body: modes of training, the
    attention, hooks, and what the tokenizer was told last."""
    network, tokenizer = handed.network, handed.tokenizer
    check_kind(network, tokenizer)
    modes = {module: module.training for module in network.modules()}
    # Presses put the rotation of the model, and what they mask, on its layers.
    attributes = {module: (dict(vars(module)), dict(module._modules)) for module in modes}
    # transformers notes in an attribute that its own hooks are there: without the note, and with
    # the hooks, it would set them once more, and record each layer twice.
    hooks = {module: _copy_hooks(module) for module in modes}
    used, attributes_before = network.config._attn_implementation, dict(vars(tokenizer))
    backend: Any = tokenizer.backend_tokenizer
    truncation, padding = backend.truncation, backend.padding
    try:
        yield
    finally:
        for module, is_training in modes.items():
            module.training = is_training
            own_attributes, inner = attributes[module]
            for name in vars(module).keys() - own_attributes.keys():
                delattr(module, name)
            module._modules.clear()
            module._modules.update(inner)
            for name, registered in hooks[module].items():
                vars(module)[name].clear()
                vars(module)[name].update(registered)
        network.set_attn_implementation(used)
        vars(tokenizer).clear()
        vars(tokenizer).update(attributes_before)
        for options, turn_on, turn_off in (
            (truncation, backend.enable_truncation, backend.no_truncation),
            (padding, backend.enable_padding, backend.no_padding),
        ):
            if options is None:
                turn_off()
            else:
                turn_on(**options)


def _copy_hooks(module: Any) -> dict[str, dict[Any, Any]]:
    """Copies the hooks of a module and what torch notes of each, by the attribute that holds
    them."""
    copies: dict[str, dict[Any, Any]] = {}
    for name, value in vars(module).items():
        if "hooks" in name and isinstance(value, dict):
            copies[name] = dict(value)
    return copies


def _check_weights(handed: HandedModel) -> None:
    for name, weight in handed.network.named_parameters():
        if weight.is_meta:
            raise KVBenchError(
                f"{name} of the model is on no device, but offloaded: move the model to one"
            )
        if weight.is_floating_point() and not weight.isfinite().all():
            raise KVBenchError(f"{name} of the model is infinite or NaN")


def _check_layers(handed: HandedModel) -> None:
    """Raises :class:`KVBenchError` where a layer does not call the attention that transformers
    gives it, as one may whose forward pass was replaced: the engine would be passed over, and
    measure nothing."""
    seen: set[int] = set()

    def attend(module: Any, *states: Any, **options: Any) -> Any:
        seen.add(module.layer_idx)
        return sdpa_attention_forward(module, *states, **options)

    AttentionInterface.register(COUNTED, attend)
    AttentionMaskInterface.register(COUNTED, sdpa_mask)
    network = handed.network
    ids = torch.zeros(1, TRIED_TOKENS, dtype=torch.long, device=network.device)
    try:
        with torch.inference_mode(), attention(network, COUNTED):
            find_decoder(network)(input_ids=ids)
    except Exception as error:  # of a model that somebody changed
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise KVBenchError(f"the model cannot read {TRIED_TOKENS} tokens: {reason}") from error
    layers = range(len(find_decoder(network).layers))
    _refuse_layers([layer for layer in layers if layer not in seen])


def _refuse_layers(passing: Sequence[int]) -> None:
    if passing:
        layers = ", ".join(map(str, passing[:NAMED]))
        raise KVBenchError(
            f"the attention of layer {layers} was replaced, and does not call the one that "
            "transformers gives it, by which branches are answered: it cannot be measured"
        )
