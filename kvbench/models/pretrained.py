"""Reads configurations and tokenizers from the files of a model. Code beside them is never run: transformers would ask
on a terminal, and run it on "y"."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from kvbench.models.gguf.config import read_gguf_config, read_gguf_tokenizer
from kvbench.models.gguf.header import is_gguf, read_header
from kvbench.system.errors import KVBenchError, fault_of_fields
from policies.declaration.shape import MOST_LAYERS

NO_CODE = {"trust_remote_code": False}
LAYER = re.compile(r"\b(?:layers|blk)\.(\d{1,9})\.")
Count = Annotated[StrictInt, Field(ge=1, le=10**9)]
Layers = Annotated[StrictInt, Field(ge=1, le=MOST_LAYERS)]
Heads = Annotated[StrictInt, Field(ge=1, le=10_000)]
Token = Annotated[StrictInt, Field(ge=0, le=10**9)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class _Sizes(BaseModel):
    """The fields of a decoder's configuration that are computed with; one that a model does not have is None."""

    model_config = ConfigDict(from_attributes=True)

    num_hidden_layers: Layers | None = None
    num_attention_heads: Heads | None = None
    num_key_value_heads: Heads | None = None
    head_dim: Heads | None = None
    hidden_size: Annotated[StrictInt, Field(ge=1, le=10**6)] | None = None
    intermediate_size: Annotated[StrictInt, Field(ge=1, le=10**7)] | list[int] | None = None
    vocab_size: Annotated[StrictInt, Field(ge=1, le=10**8)] | None = None
    max_position_embeddings: Count | None = None
    sliding_window: Count | None = None
    rms_norm_eps: Number | None = None
    architectures: list[str] | None = None


class Ends(BaseModel):
    """The tokens of a generation configuration that end an answer."""

    model_config = ConfigDict(from_attributes=True)

    eos_token_id: Token | list[Token] | None = None


def read_config(source: str) -> Any:
    """Reads a configuration; raises :class:`KVBenchError` for a size that no model has, and whatever transformers
    raises of files that it cannot read."""
    place = Path(source)
    config = read_gguf_config(place) if is_gguf(place) else AutoConfig.from_pretrained(source, **NO_CODE)
    what = f"the header of '{source}'" if is_gguf(place) else f"config.json of '{source}'"
    for part in (config, config.get_text_config()):
        check_fields(what, _Sizes, part)
    asked, held = config.get_text_config().num_hidden_layers, layers_held(place)
    if held and asked > held:
        raise KVBenchError(f"{what} tells of {asked:,} layers, its weights have {held:,}")
    return config


def layers_held(place: Path) -> int | None:
    """Counts the layers that have weights, by the names in the index or the header of the weights, without loading
    any; None of a folder without them."""
    index, whole = place / "model.safetensors.index.json", place / "model.safetensors"
    if is_gguf(place):
        names = read_header(place).tensors
    elif index.is_file():
        names = json.loads(index.read_bytes()).get("weight_map", ())
    elif whole.is_file():
        with safe_open(whole, "pt") as weights:
            names = weights.keys()
    else:
        return None
    numbers = [int(found[1]) for name in names if (found := LAYER.search(name))]
    return 1 + max(numbers) if numbers else None


def check_fields(file: str, fields: type[BaseModel], content: object) -> None:
    """Raises :class:`KVBenchError` for a field of a file of a model that cannot be computed with."""
    try:
        fields.model_validate(content)
    except ValidationError as error:
        raise KVBenchError(f"{file} describes no model ({fault_of_fields(error)})") from error


def with_end_of_turn(ends: int | list[int] | None, of_template: tuple[int, ...]) -> tuple[int, ...]:
    """Joins the end tokens of a generation configuration with the one of a chat template, each once."""
    listed = ends if isinstance(ends, list) else [] if ends is None else [ends]
    return tuple(dict.fromkeys((*listed, *of_template)))


def read_tokenizer(source: str) -> PreTrainedTokenizerBase:
    if is_gguf(Path(source)):
        return read_gguf_tokenizer(Path(source))
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, **NO_CODE)
    return tokenizer
