"""Small GGUF files, written in the test process."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFWriter, TokenType
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM

NORMAL, CONTROL, USER_DEFINED, BYTE = (
    TokenType.NORMAL,
    TokenType.CONTROL,
    TokenType.USER_DEFINED,
    TokenType.BYTE,
)
SPECIAL = ["<|none|>", "<|begin|>", "<|end|>"]
LETTERS = sorted(ByteLevel.alphabet())
MERGES = ["1 2", "12 3", "h e", "Ġ he", "Ċ Ċ"]
BYTE_LEVEL = [*SPECIAL, *LETTERS, *(merge.replace(" ", "") for merge in MERGES)]
SENTENCE_PIECE = [
    *SPECIAL,
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "▁",
    "a",
    "b",
    "ab",
    "▁ab",
    "▁a",
    "  ",
]
TEMPLATE = (
    "{% for turn in messages %}<|begin|>{{ turn.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|begin|>{% endif %}"
)
FIELDS: dict[str, Any] = {
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.add_space_prefix": False,
}
NAMES = {  # of the parts of a layer: in transformers, and in the format
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def toy_llama(vocabulary: Sequence[str] = BYTE_LEVEL, **options: Any) -> LlamaForCausalLM:
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        max_position_embeddings=4096,
        initializer_range=0.25,
        **sizes,
        **heads,
        **options,
    )
    network = LlamaForCausalLM(config)
    network.eval()
    return network


def sizes_of(network: LlamaForCausalLM) -> Any:
    return network.config


def _interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Orders the rows of a projection as llama.cpp does, which turns neighbours and not halves of a
    head."""
    return weight.view(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def _tensors(network: LlamaForCausalLM) -> dict[str, torch.Tensor]:
    state, config = network.state_dict(), sizes_of(network)
    tensors = {
        "token_embd.weight": state["model.embed_tokens.weight"],
        "output_norm.weight": state["model.norm.weight"],
        "output.weight": state["lm_head.weight"],
    }
    for layer in range(config.num_hidden_layers):
        for name, written in NAMES.items():
            weight = state[f"model.layers.{layer}.{name}.weight"]
            if written in ("attn_q", "attn_k"):
                heads = (
                    config.num_attention_heads
                    if written == "attn_q"
                    else config.num_key_value_heads
                )
                weight = _interleaved(weight, heads)
            tensors[f"blk.{layer}.{written}.weight"] = weight
    return tensors


def write_gguf(
    path: Path,
    network: LlamaForCausalLM | None = None,
    architecture: str = "llama",
    pre: str = "gpt-2",
    tensors: Mapping[str, torch.Tensor] | None = None,
    **fields: Any,
) -> Path:
    """Writes a toy Llama with a byte-level vocabulary; ``fields``: others, with ``__`` for
    points."""
    network = network or toy_llama()
    config = sizes_of(network)
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(BYTE_LEVEL)
    writer.add_token_types([CONTROL] * len(SPECIAL) + [NORMAL] * (len(BYTE_LEVEL) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_chat_template(TEMPLATE)
    return _finish(
        writer,
        FIELDS | {name.replace("__", "."): value for name, value in fields.items()},
        {**_tensors(network), **(tensors or {})},
    )


def write_sentence_piece(path: Path, **fields: Any) -> Path:
    """Writes a vocabulary of the kind of Llama and Gemma, without a model."""
    kinds = [CONTROL] * 3 + [BYTE] * 256 + [NORMAL] * 6 + [USER_DEFINED]
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(SENTENCE_PIECE)
    writer.add_token_types(kinds)
    writer.add_token_scores([-1000.0] * 259 + [-float(place) for place in range(7)])
    return _finish(
        writer, FIELDS | {name.replace("__", "."): value for name, value in fields.items()}, {}
    )


def _finish(
    writer: GGUFWriter, fields: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> Path:
    kinds: dict[type, Any] = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
    for name, value in fields.items():
        kinds[type(value)](name, value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.detach().float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(str(writer.path))
