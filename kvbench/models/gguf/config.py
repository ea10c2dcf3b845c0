"""Reads configuration, tokenizer and weights of a GGUF file into classes of transformers. It mends
what transformers 5.2 leaves out of the configuration, with which it would compute something else
without a word."""

import atexit
import importlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from kvbench.models.gguf.header import Header, damaged, read_header, size_of_array
from kvbench.models.gguf.tokenizer import build_tokenizer, special_token
from kvbench.system.console import replaced
from kvbench.system.errors import KVBenchError

# What kvpress supports, by its name in the format: the type of model in transformers.
MODEL_TYPES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "phi3": "phi3",
    "gemma3": "gemma3_text",
}
# Fields that transformers does not take of every architecture: it leaves the heads of Qwen 3 at 128
# numbers.
MORE_FIELDS = {
    "context_length": "max_position_embeddings",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base_swa": "rope_local_base_freq",
}
LONG_CONTEXT = "rope_factors_"  # tensors of Phi 3
LAYERS_OF_GEMMA_27B = 62
# What the frequencies of positions are divided by: Llama 3.1 and later.
FREQUENCIES = "rope_freqs.weight"
LLAMA_3 = {  # how these models stretch their positions, but for the factor
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
CLOSE = 1e-4


def read_gguf_config(path: Path) -> Any:
    """Reads a configuration from the header alone. Raises :class:`KVBenchError` for an unknown
    architecture or scaling."""
    header = read_header(path)
    kind = MODEL_TYPES.get(header.architecture)
    if kind is None:
        supported = f"of GGUF files, {', '.join(MODEL_TYPES)} are known"
        raise KVBenchError(f"{path} holds the architecture '{header.architecture}': {supported}")
    names: dict[str, str | None] = {**GGUF_CONFIG_MAPPING[header.architecture], **MORE_FIELDS}  # type: ignore[dict-item]
    fields = {new: header.architecture_field(old) for old, new in names.items() if new}
    for name in ("bos_token_id", "eos_token_id"):
        fields[name] = header.tokenizer_field(name)
    fields["pad_token_id"] = header.tokenizer_field("padding_token_id")
    fields["vocab_size"] = fields["vocab_size"] or len(header.tokenizer_field("tokens") or ())
    config = AutoConfig.for_model(
        kind,
        **{name: value for name, value in fields.items() if value is not None},
        # A file without a table for the output has one for both ends.
        tie_word_embeddings="output.weight" not in header.tensors,
        architectures=[MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]],
    )
    if (
        kind == "gemma3_text"
    ):  # the format has no field for it, and llama.cpp decides in the same way
        is_27b = config.num_hidden_layers == LAYERS_OF_GEMMA_27B
        config.query_pre_attn_scalar = (
            config.hidden_size // config.num_attention_heads if is_27b else config.head_dim
        )
    _scale_positions(header, config)
    return config


def _scale_positions(header: Header, config: Any) -> None:
    """Sets a linear scaling, of Gemma 3 in its global layers alone, and refuses others."""
    kind, factor = (
        header.architecture_field("rope.scaling.type"),
        header.architecture_field("rope.scaling.factor"),
    )
    is_long = any(name.startswith(LONG_CONTEXT) for name in header.tensors)
    if kind not in (None, "none", "linear") or is_long:
        raise KVBenchError(
            f"{header.path} scales its positions ({'longrope' if is_long else kind}), which cannot "
            f"be read from a GGUF file: use the folder of the checkpoint"
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
        model_max_length=header.architecture_field("context_length"),
        clean_up_tokenization_spaces=False,
        **{f"{name}_token": special_token(header, field) for name, field in names.items()},
    )


def load_gguf(path: Path, config: Any, **options: Any) -> tuple[PreTrainedModel, Mapping[str, Any]]:
    """Loads the weights as numbers of the dtype among the options; returns the network and
    transformers' report. Raises :class:`KVBenchError` for a file that is damaged or lacks
    tensors."""
    # It takes seconds, and few models need it. A LazyModule would not do: functions of it are
    # replaced for a while, and they would be replaced in what stands for it.
    gguf: Any = importlib.import_module("gguf")
    with _in_seconds(gguf):
        try:
            tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
        except (ValueError, KeyError, IndexError) as error:
            raise damaged(path, error) from error
        frequencies = tensors.pop(FREQUENCIES, None)
        if frequencies is not None:
            # A copy: the array is a view of a file that cannot be written, of which torch warns.
            _stretch_positions(path, config, torch.from_numpy(frequencies.copy()))
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, config=config, output_loading_info=True, **options
        )
    network, report = loaded
    if len(tensors) > (
        needed := len(list(network.parameters()))
    ):  # transformers passes over those that it cannot name
        raise KVBenchError(
            f"{path} holds {len(tensors)} tensors where its architecture has {needed}"
        )
    network.generation_config.eos_token_id = list(read_header(path).end_tokens()) or None
    network.config._name_or_path = _folder_of_tokenizer(path)  # KVzip loads the tokenizer by it
    return network, report


@cache
def _folder_of_tokenizer(path: Path) -> str:
    """Keeps the tokenizer in the form that transformers reads, until this process ends."""
    folder = tempfile.mkdtemp(prefix="kvbench-tokenizer-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    read_gguf_tokenizer(path).save_pretrained(folder)
    return folder


@contextmanager
def _in_seconds(gguf: Any) -> Iterator[None]:
    """Spares the package ``gguf``, which transformers uses, work that weights do not need. Its
    reader makes a view of each of Gemma's 262,144 tokens (27 s): it passes over arrays here. And it
    makes a table of the names of tensors for each module of a network (7 s): it makes one here."""
    read = gguf.GGUFReader._get_field_parts
    conversion = importlib.import_module("transformers.modeling_gguf_pytorch_utils")

    def passing(reader: Any, start: int, kind: int) -> Any:
        if kind == gguf.GGUFValueType.ARRAY:
            return size_of_array(reader.data, start), [], [], [gguf.GGUFValueType.ARRAY]
        return read(reader, start, kind)

    # It takes seconds, and fills logs.
    no_bar = replaced(conversion, "tqdm", lambda tensors, **_: tensors)
    names = replaced(gguf, "get_tensor_name_map", cache(gguf.get_tensor_name_map))
    with replaced(gguf.GGUFReader, "_get_field_parts", passing), names, no_bar:
        yield


def _stretch_positions(path: Path, config: Any, divisors: torch.Tensor) -> None:
    """Finds the parameters that stretch positions as the file's own divisors do: transformers
    ignores the tensor."""
    plain = dict(config.rope_parameters)
    base, size = plain["rope_theta"], 2 * len(divisors)
    frequencies = 1 / base ** (torch.arange(0, size, 2) / size) / divisors
    config.rope_parameters = LLAMA_3 | {"rope_theta": base, "factor": float(divisors.max())}
    stretched, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    # The file holds no parameters but what comes of them: whether the usual ones fit shows here.
    if not torch.allclose(stretched, frequencies, rtol=CLOSE):
        advice = "use the folder of the checkpoint"
        raise KVBenchError(
            f"{path} stretches its positions in a way that is not known here: {advice}"
        )
