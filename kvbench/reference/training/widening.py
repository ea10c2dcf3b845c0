"""Begins a model with the weights of a narrow one, which it equals but for what is new: one that is wider, or has more
heads and fewer layers.

The narrow models read their context in one layer. The attention of some of the upper layers begins as a copy of the one
that reads there: from such a start a short training in which reads are hidden made reading redundant, and without it
none did.
"""

import math
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from kvbench.reference.training.architecture import SHAPES, new_model
from kvbench.reference.training.conversion import under_tokens

READER = 1  # the layer in which the narrow models read
COPIED_INTO = (3, 5, 7, 9)
KEPT = (0, 1, 4, 6, 7, 8, 10, 11)  # in a model of eight layers: without any other the narrow one answers as before
NEW_SPREAD = 0.3  # of the embeddings in the dimensions that are new, by their spread in the others


def narrow_model(folder: Path, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Loads the narrow model of a folder under the tokens of another tokenizer."""
    shipped = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    known = PreTrainedTokenizerFast.from_pretrained(folder).get_vocab()
    narrow = new_model(tokenizer, "reference-qwen", SHAPES["narrow"])
    narrow.load_state_dict(under_tokens(shipped.state_dict(), known, tokenizer.get_vocab()))
    return narrow


@torch.no_grad()
def widen(model: PreTrainedModel, narrow: PreTrainedModel) -> None:
    """Gives the model the weights of the narrow one, which has the same tokens. What is new adds nothing at first."""
    old, new = narrow.config.hidden_size, model.config.hidden_size
    table = narrow.model.embed_tokens.weight
    embeddings = torch.randn(model.model.embed_tokens.weight.shape) * table.std() * NEW_SPREAD
    embeddings[:, :old] = table
    model.model.embed_tokens.weight.copy_(embeddings)
    # A root mean square over more dimensions of which the new ones hold little is smaller.
    shrink = math.sqrt(old / new)
    _widen_norm(model.model.norm, narrow.model.norm, shrink)
    layers = narrow.model.layers
    if len(model.model.layers) == len(KEPT):
        layers = [layers[number] for number in KEPT]
    for layer, source in zip(model.model.layers, layers, strict=True):
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


def _widen_norm(norm: nn.Module, narrow: nn.Module, shrink: float) -> None:
    weights, known = norm.weight, narrow.weight
    assert isinstance(weights, torch.Tensor)
    assert isinstance(known, torch.Tensor)
    weights.fill_(float(known.mean()) * shrink)
    weights[: len(known)] = known * shrink


def _widen_inwards(linear: nn.Linear, narrow: nn.Linear) -> None:
    """Widens what a layer reads: new rows stay as they were drawn, earlier ones read nothing in the new dimensions."""
    rows, columns = narrow.weight.shape
    linear.weight[:rows].zero_()
    linear.weight[:rows, :columns] = narrow.weight


def _widen_outwards(linear: nn.Linear, narrow: nn.Linear) -> None:
    """Widens what a layer writes: new columns write nothing, and nothing is written into the new dimensions."""
    rows, columns = narrow.weight.shape
    linear.weight.zero_()
    linear.weight[:rows, :columns] = narrow.weight


@torch.no_grad()
def spread_reader(model: PreTrainedModel) -> None:
    """Copies the attention of the layer that reads, and its norm, into some of the layers above it. The model answers
    nothing right at first, and reads in all of these layers after a short training in which reads are hidden."""
    reader = model.model.layers[READER]
    layers = model.model.layers
    for layer in (layers[number] for number in COPIED_INTO if number < len(layers) - 2):
        layer.self_attn.load_state_dict(reader.self_attn.state_dict())
        layer.input_layernorm.load_state_dict(reader.input_layernorm.state_dict())
