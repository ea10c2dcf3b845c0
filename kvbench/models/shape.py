"""The shape of a model, read from its configuration before any weight is."""

from typing import Any

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
        return ModelShape(config.num_hidden_layers, config.num_key_value_heads, head_size_of(config), numbers)
    except Exception:  # damaged files raise anything
        return None


def head_size_of(config: Any) -> int:
    """Returns the numbers in a key; ``config``: that of a decoder of text, which may leave it to the width."""
    size: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return size
