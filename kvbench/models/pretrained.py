"""Reads configurations, tokenizers and chat templates from the files of a model before any weight.
Code beside them is never run: transformers would ask on a terminal, and run it on "y"."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError
from transformers import AutoConfig, AutoTokenizer, Gemma3TextConfig, PreTrainedTokenizerBase

from kvbench.handed.scope import find_handed_model
from kvbench.models.gguf.config import read_gguf_config, read_gguf_tokenizer
from kvbench.models.gguf.header import is_gguf
from kvbench.models.names import model_source
from kvbench.models.precision import choose_device, choose_dtype
from kvbench.system.errors import KVBenchError, fault_of_fields
from kvbench.system.memory import memory_bound
from policies import describe_error
from policies.declaration.foreign_code import TookTooLongError, time_bound
from policies.declaration.shape import MOST_LAYERS, ModelShape

CPU = torch.device("cpu")
TEMPLATE_SECONDS = 10.0
TEMPLATE_CHARACTERS = 10**6  # around a context: a tenth of that is a long template
TEMPLATE_BYTES = 10**9  # that memory may grow by meanwhile
ANSWER = "#" * 16
NO_CODE = {"trust_remote_code": False}
Count = Annotated[StrictInt, Field(ge=1, le=10**9)]
Layers = Annotated[StrictInt, Field(ge=1, le=MOST_LAYERS)]
Heads = Annotated[StrictInt, Field(ge=1, le=10_000)]
Token = Annotated[StrictInt, Field(ge=0, le=10**9)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class _Sizes(BaseModel):
    """The fields of a decoder's configuration that are computed with; one that a model does not
    have is None."""

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
    """Reads a configuration. Raises :class:`KVBenchError` for a size that no model has, and any error of
    transformers."""
    place = Path(source)
    if is_gguf(place):
        config = read_gguf_config(place)
    else:
        config = AutoConfig.from_pretrained(source, **NO_CODE)
    if is_gguf(place):
        place_name = f"the header of '{source}'"
    else:
        place_name = f"config.json of '{source}'"
    # Of a multi-modal model the sizes of the decoder stand in the second.
    for part in (config, config.get_text_config()):
        check_fields(place_name, _Sizes, part)
    return config


def check_fields(file: str, fields: type[BaseModel], content: object) -> None:
    """Raises :class:`KVBenchError` for a field of a file of a model that cannot be computed
    with."""
    try:
        fields.model_validate(content)
    except ValidationError as error:
        raise KVBenchError(f"{file} describes no model ({fault_of_fields(error)})") from error


def read_tokenizer(source: str) -> PreTrainedTokenizerBase:
    if is_gguf(Path(source)):
        return read_gguf_tokenizer(Path(source))
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, **NO_CODE)
    return tokenizer


def run_template(
    tokenizer: PreTrainedTokenizerBase, turns: Sequence[dict[str, str]], begin_answer: bool = True
) -> str:
    """Returns the text of a conversation; raises :class:`KVBenchError` for a template that is
    broken."""
    try:
        # A template is code of a stranger: it may run for ever or fill the memory.
        with (
            time_bound(TEMPLATE_SECONDS, "it takes longer than ten seconds"),
            memory_bound(CPU, TEMPLATE_BYTES),
        ):
            options: dict[str, Any] = {
                "add_generation_prompt": begin_answer,
                "tokenize": False,
                # As kvpress's pipeline does unless it is told otherwise.
                "enable_thinking": False,
            }
            text = str(tokenizer.apply_chat_template([dict(turn) for turn in turns], **options))
    except (Exception, TookTooLongError) as error:
        raise KVBenchError(
            f"the chat template of the tokenizer is broken: {describe_error(error)}"
        ) from error
    if len(text) > TEMPLATE_CHARACTERS:
        raise KVBenchError(
            f"the chat template of the tokenizer is broken: it makes {len(text):,} characters of a "
            f"turn"
        )
    return text


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Returns the special token, if any, that the chat template writes behind an answer: a
    checkpoint may lack it."""
    if tokenizer.chat_template is None:
        return ()
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": ANSWER}]
    try:
        text = run_template(tokenizer, turns, begin_answer=False)
    except KVBenchError:  # whoever asks a question through it hears of it
        return ()
    behind = tokenizer.encode(text.rpartition(ANSWER)[2].lstrip(), add_special_tokens=False)
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return tuple(behind[:1]) if special & set(behind[:1]) else ()


def read_cache_shape(model: str, device: str = "auto", dtype: str = "auto") -> ModelShape | None:
    """Returns the shape of the cache; ``None`` for a configuration that cannot be read, of which
    loading tells."""
    if handed := find_handed_model(model):
        return cache_shape(handed.network.config.get_text_config(), handed.dtype)
    numbers = str(choose_dtype(dtype, choose_device(device), model)).removeprefix("torch.")
    try:
        return cache_shape(read_config(model_source(model)).get_text_config(), numbers)
    except Exception:  # damaged files raise anything
        return None


def cache_shape(config: Any, dtype: str) -> ModelShape:
    """Returns the shape of a cache of such numbers, with the windows of the sliding layers that
    presses leave whole (:func:`is_left_whole`); ``config``: that of a decoder of text."""
    windows: tuple[int, ...] = ()
    # Only where presses leave such layers whole; the windows of other models bound the context.
    if (
        isinstance(config, Gemma3TextConfig)
        and config.layer_types is not None
        and config.sliding_window is not None
    ):
        windows = (config.sliding_window,) * config.layer_types.count("sliding_attention")
    return ModelShape(
        config.num_hidden_layers, config.num_key_value_heads, read_head_size(config), dtype, windows
    )


def read_head_size(config: Any) -> int:
    """Returns the numbers in a key; ``config``: that of a decoder of text, which may leave it to
    the width."""
    size: int = (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    return size
