"""Reads the configuration and the tokenizer of a GGUF file into the classes of transformers. It mends what transformers
5.2 leaves out of the configuration, with which it would compute something else without a word."""

from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedTokenizerFast
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from kvbench.models.gguf.header import Header, read_header
from kvbench.models.gguf.tokenizer import build_tokenizer, special_token
from kvbench.system.errors import KVBenchError

# What kvpress supports, by its name in the format: the type of model in transformers.
MODEL_TYPES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "phi3": "phi3", "gemma3": "gemma3_text"}
# Fields that transformers does not take of every architecture: it leaves the heads of Qwen 3 at 128 numbers.
MORE_FIELDS = {
    "context_length": "max_position_embeddings",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base_swa": "rope_local_base_freq",
}
LONG_CONTEXT = "rope_factors_"  # tensors of Phi 3
LAYERS_OF_GEMMA_27B = 62


def read_gguf_config(path: Path) -> Any:
    """Reads a configuration from the header alone; raises :class:`KVBenchError` for an architecture that is not known
    here, or for positions that transformers would scale otherwise."""
    header = read_header(path)
    kind = MODEL_TYPES.get(header.architecture)
    if kind is None:
        raise KVBenchError(
            f"{path} holds the architecture '{header.architecture}': of GGUF files, {', '.join(MODEL_TYPES)} are known"
        )
    names: dict[str, str | None] = {**GGUF_CONFIG_MAPPING[header.architecture], **MORE_FIELDS}  # type: ignore[dict-item]
    fields = {new: header.of_architecture(old) for old, new in names.items() if new}
    fields |= {f"{name}_token_id": header.of_tokenizer(f"{name}_token_id") for name in ("bos", "eos")}
    fields["pad_token_id"] = header.of_tokenizer("padding_token_id")
    fields["vocab_size"] = fields["vocab_size"] or len(header.of_tokenizer("tokens") or ())
    config = AutoConfig.for_model(
        kind,
        **{name: value for name, value in fields.items() if value is not None},
        tie_word_embeddings="output.weight" not in header.tensors,
        architectures=[MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]],
    )
    if kind == "gemma3_text":  # the format has no field for it, and llama.cpp decides in the same way
        is_27b = config.num_hidden_layers == LAYERS_OF_GEMMA_27B
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads if is_27b else config.head_dim
    _scale_positions(header, config)
    return config


def _scale_positions(header: Header, config: Any) -> None:
    """Sets a linear scaling, of Gemma 3 in its global layers alone, and refuses others."""
    kind, factor = header.of_architecture("rope.scaling.type"), header.of_architecture("rope.scaling.factor")
    is_long = any(name.startswith(LONG_CONTEXT) for name in header.tensors)
    if kind not in (None, "none", "linear") or is_long:
        raise KVBenchError(
            f"{header.path} scales its positions ({'longrope' if is_long else kind}), which cannot be read from a GGUF "
            "file: use the folder of the checkpoint"
        )
    if kind == "linear" and factor:
        scaled = config.rope_parameters.get("full_attention", config.rope_parameters)
        scaled |= {"rope_type": "linear", "factor": factor}


def read_gguf_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """Reads the tokenizer, with the chat template as it stands in the file."""
    header = read_header(path)
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return PreTrainedTokenizerFast(
        tokenizer_object=build_tokenizer(header),
        chat_template=header.fields.get("tokenizer.chat_template"),
        model_max_length=header.of_architecture("context_length"),
        clean_up_tokenization_spaces=False,
        **{f"{name}_token": special_token(header, field) for name, field in names.items()},
    )
