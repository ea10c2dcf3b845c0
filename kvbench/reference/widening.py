"""A wider model begun with the weights of a narrow one of as many layers, which it equals but for what is new.

The narrow models read their context in one layer. The new heads of some of the upper layers begin as copies of those
that read there: from such a start a short training in which reads are hidden made reading redundant, and without it
none did (docs/training.md).
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from kvbench.reference.architecture import SHAPES, new_model
from kvbench.reference.conversion import under_tokens

READER = 1  # the layer in which the narrow models read
COPIED_INTO = (3, 5, 7, 9)
COPY_STRENGTH = 0.3  # of what the copies add: with 0.3 scores fall by some points, with 1 to nothing
NEW_SPREAD = 0.3  # of the embeddings in the dimensions that are new, by their spread in the others


def narrow_model(folder: Path, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The narrow model of a folder under the tokens of another tokenizer."""
    shipped = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    known = PreTrainedTokenizerFast.from_pretrained(folder).get_vocab()
    narrow = new_model(tokenizer, "reference-qwen", SHAPES["narrow"])
    narrow.load_state_dict(under_tokens(shipped.state_dict(), known, tokenizer.get_vocab()))
    return narrow


@torch.no_grad()
def widen(model: PreTrainedModel, narrow: PreTrainedModel, strength: float = COPY_STRENGTH) -> None:
    """Gives the model the weights of the narrow one, which has the same tokens. What is new adds nothing at first, the
    copies of the reading heads excepted."""
    old, new = narrow.config.hidden_size, model.config.hidden_size
    table = narrow.model.embed_tokens.weight
    embeddings = torch.randn(model.model.embed_tokens.weight.shape) * table.std() * NEW_SPREAD
    embeddings[:, :old] = table
    model.model.embed_tokens.weight.copy_(embeddings)
    # A root mean square over more dimensions of which the new ones hold little is smaller.
    shrink = math.sqrt(old / new)
    _widen_norm(model.model.norm, narrow.model.norm, shrink)
    for layer, source in zip(model.model.layers, narrow.model.layers, strict=True):
        for name in ("input_layernorm", "post_attention_layernorm"):
            _widen_norm(getattr(layer, name), getattr(source, name), shrink)
        for name in ("q_norm", "k_norm"):
            getattr(layer.self_attn, name).weight.copy_(getattr(source.self_attn, name).weight)
        for name in ("q_proj", "k_proj", "v_proj"):
            _widen_inwards(getattr(layer.self_attn, name), getattr(source.self_attn, name))
        for name in ("gate_proj", "up_proj"):
            _widen_inwards(getattr(layer.mlp, name), getattr(source.mlp, name))
        _widen_outwards(layer.self_attn.o_proj, source.self_attn.o_proj)
        _widen_outwards(layer.mlp.down_proj, source.mlp.down_proj)
    if strength:
        for number in COPIED_INTO:
            _copy_reader(model.model.layers[number], narrow.model.layers[READER], narrow.model.layers[number], strength)


def _widen_norm(norm: nn.Module, narrow: nn.Module, shrink: float) -> None:
    weights, known = norm.weight, narrow.weight
    assert isinstance(weights, torch.Tensor)
    assert isinstance(known, torch.Tensor)
    weights.fill_(float(known.mean()) * shrink)
    weights[: len(known)] = known * shrink


def _widen_inwards(linear: nn.Linear, narrow: nn.Linear) -> None:
    """Rows that are new stay as they were drawn; those of before read nothing in the new dimensions."""
    rows, columns = narrow.weight.shape
    linear.weight[:rows].zero_()
    linear.weight[:rows, :columns] = narrow.weight


def _widen_outwards(linear: nn.Linear, narrow: nn.Linear) -> None:
    """What is new writes nothing, and nothing is written into the new dimensions."""
    rows, columns = narrow.weight.shape
    linear.weight.zero_()
    linear.weight[:rows, :columns] = narrow.weight


def _copy_reader(layer: Any, reader: Any, source: Any, strength: float) -> None:
    """The new heads of a layer do what those of the reader do, seen through the norms of this layer: ``source`` is the
    same layer of the narrow model."""
    seen = reader.input_layernorm.weight / source.input_layernorm.weight.clamp_min(1e-2)
    for name, norm in (("q_proj", "q_norm"), ("k_proj", "k_norm"), ("v_proj", None)):
        weights, known = getattr(layer.self_attn, name).weight, getattr(reader.self_attn, name).weight
        copied = known * seen
        if norm:  # gains come behind the norm and are shared by all heads of a layer
            gains = getattr(reader.self_attn, norm).weight / getattr(source.self_attn, norm).weight.clamp_min(1e-2)
            copied = copied * gains.repeat(len(known) // len(gains))[:, None]
        rows, columns = known.shape
        weights[rows : 2 * rows].zero_()
        weights[rows : 2 * rows, :columns] = copied
    rows, columns = reader.self_attn.o_proj.weight.shape
    layer.self_attn.o_proj.weight[:rows, columns : 2 * columns] = reader.self_attn.o_proj.weight * strength
