"""The shape of a model, read from its configuration before any weight is."""

from typing import Any

from transformers import Gemma3TextConfig

from kvbench.models.load import choose_device, choose_dtype
from kvbench.models.names import model_source
from kvbench.models.pretrained import read_config
from policies.declaration.shape import ModelShape


def shape_of(model: str, device: str = "auto", dtype: str = "auto") -> ModelShape | None:
    """Returns the shape of the cache, in the dtype that the model is loaded in; ``None`` for a configuration that
    cannot be read, of which loading tells."""
    numbers = str(choose_dtype(dtype, choose_device(device), model)).removeprefix("torch.")
    try:
        config = read_config(model_source(model)).get_text_config()
        return cache_shape(config, numbers)
    except Exception:  # damaged files raise anything
        return None


def has_one_key_head(model: str) -> bool:
    """Tells whether each layer of a model has one key head; of one whose configuration cannot be read it is not
    known to have."""
    shape = shape_of(model)
    return shape is not None and shape.kv_heads == 1


def cache_shape(config: Any, dtype: str) -> ModelShape:
    """Returns the shape of a cache of such numbers; ``config``: that of a decoder of text."""
    heads = config.num_key_value_heads
    return ModelShape(config.num_hidden_layers, heads, head_size_of(config), dtype, windows_of(config))


def windows_of(config: Any) -> tuple[int, ...]:
    """Returns the windows of the sliding layers that presses leave whole (:func:`is_left_whole`); ``config``: that of a
    decoder of text."""
    if not isinstance(config, Gemma3TextConfig) or config.layer_types is None or config.sliding_window is None:
        return ()
    return (config.sliding_window,) * config.layer_types.count("sliding_attention")


def head_size_of(config: Any) -> int:
    """Returns the numbers in a key; ``config``: that of a decoder of text, which may leave it to the width."""
    size: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return size
