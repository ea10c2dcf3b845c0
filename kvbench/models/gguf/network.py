"""Loads the weights of a GGUF file through transformers."""

import atexit
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import torch
from gguf import GGUFReader, GGUFValueType
from transformers import AutoModelForCausalLM, PreTrainedModel, modeling_gguf_pytorch_utils
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from kvbench.models.gguf.config import read_gguf_tokenizer
from kvbench.models.gguf.header import damaged, read_header, size_of_array
from kvbench.system.errors import KVBenchError

FREQUENCIES = "rope_freqs.weight"  # what the frequencies of positions are divided by: Llama 3.1 and later
LLAMA_3 = {  # how these models stretch their positions, but for the factor
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
CLOSE = 1e-4


def load_gguf(path: Path, config: Any, **options: Any) -> tuple[PreTrainedModel, Mapping[str, Any]]:
    """Loads the weights, which are stored in few bits, as numbers of the dtype among the options. Returns the network
    and what transformers reports of it."""
    with _in_seconds():
        try:
            tensors = {tensor.name: tensor.data for tensor in GGUFReader(path).tensors}
        except (ValueError, KeyError, IndexError) as error:
            raise damaged(path, error) from error
        frequencies = tensors.pop(FREQUENCIES, None)
        if frequencies is not None:
            _stretch_positions(path, config, torch.from_numpy(frequencies.copy()))
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, config=config, output_loading_info=True, **options
        )
    network, report = loaded
    if len(tensors) > (needed := len(list(network.parameters()))):  # transformers passes over those that it cannot name
        raise KVBenchError(f"{path} holds {len(tensors)} tensors where its architecture has {needed}")
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
def _in_seconds() -> Iterator[None]:
    """Spares the package ``gguf``, which transformers uses, work that weights do not need. Its reader makes a view of
    each of Gemma's 262,144 tokens (27 s): it passes over arrays here. And it makes a table of the names of tensors for
    each module of a network (7 s): it makes one here."""
    read, names = GGUFReader._get_field_parts, gguf.get_tensor_name_map
    conversion: Any = modeling_gguf_pytorch_utils  # which has no types for what it imports itself

    def passing(reader: GGUFReader, start: int, kind: int) -> Any:
        if kind == GGUFValueType.ARRAY:
            return size_of_array(reader.data, start), [], [], [GGUFValueType.ARRAY]
        return read(reader, start, kind)

    GGUFReader._get_field_parts = passing  # type: ignore[method-assign,assignment]
    gguf.get_tensor_name_map = cache(names)
    progress = conversion.tqdm
    conversion.tqdm = lambda tensors, **_: tensors  # it takes seconds, and fills logs
    try:
        yield
    finally:
        conversion.tqdm = progress
        GGUFReader._get_field_parts = read  # type: ignore[method-assign]
        gguf.get_tensor_name_map = names


def _stretch_positions(path: Path, config: Any, divisors: torch.Tensor) -> None:
    """Finds the parameters that stretch positions as the file's own divisors do: transformers ignores the tensor."""
    plain = dict(config.rope_parameters)
    base, size = plain["rope_theta"], 2 * len(divisors)
    frequencies = 1 / base ** (torch.arange(0, size, 2) / size) / divisors
    config.rope_parameters = LLAMA_3 | {"rope_theta": base, "factor": float(divisors.max())}
    stretched, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    if not torch.allclose(stretched, frequencies, rtol=CLOSE):
        raise KVBenchError(
            f"{path} stretches its positions in a way that is not known here: use the folder of the checkpoint"
        )
