"""The shape of a model, as its configuration tells it before any weight is loaded."""

from dataclasses import dataclass

MOST_LAYERS = 1000  # of a model: each is an object, and a number of every record


@dataclass(frozen=True)
class ModelShape:
    """Tells how large the cache of a model is, and of which numbers."""

    layers: int
    kv_heads: int
    head_size: int  # numbers in a key, and in a value
    dtype: str  # as torch names it, such as bfloat16
