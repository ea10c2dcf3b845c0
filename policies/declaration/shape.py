"""The shape of a model, as its configuration tells it before any weight is loaded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from policies.declaration.names import PolicyError

MOST_LAYERS = 1000  # of a model: each is an object, and a number of every record


@dataclass(frozen=True)
class ModelShape:
    """Tells how large the cache of a model is, and of which numbers."""

    layers: int
    kv_heads: int
    head_size: int  # numbers in a key, and in a value
    dtype: str  # as torch names it, such as bfloat16
    # Tokens that each sliding layer sees, of those that presses leave whole.
    windows: tuple[int, ...] = ()

    @property
    def slots(self) -> int:
        return (self.layers - len(self.windows)) * self.kv_heads

    @property
    def number_bytes(self) -> int:
        return 4 if self.dtype == "float32" else 2


def without_sliding(reason: str) -> Callable[[ModelShape], None]:
    """Makes the check of a policy that cannot treat a model with sliding layers that presses leave
    whole."""

    def check(shape: ModelShape) -> None:
        if shape.windows:
            raise PolicyError(
                f"{len(shape.windows)} of {shape.layers} layers of this model slide, and {reason}"
            )

    return check


# What presses of kvpress 0.5.5 do that fails on Gemma 3, or means something else there.
ONE_ROTATION = without_sliding("its press takes the rotation of keys to be the same in all of them")
EVERY_LAYER = without_sliding("its press compresses these too, which are to stay whole")
NOT_GEMMA = without_sliding("kvpress says that its press does not support such a model")
LEVEL_QUESTION = without_sliding(
    "it reads a question with one mask for all layers, which are then of different length"
)


def attention_window(module: Any) -> int | None:
    """Counts the tokens back that the layer sees, ``None`` if it sees all.

    Qwen and Gemma say it on the layer, where ``None`` is an answer; Mistral and Phi say it in the
    configuration alone."""
    if "sliding_window" in vars(module):
        window: int | None = module.sliding_window
        return window
    return getattr(module.config, "sliding_window", None)


def is_left_whole(module: Any) -> bool:
    """Tells whether presses leave the layer whole: a sliding layer of Gemma 3, whose attention
    alone says that it slides.

    kvpress 0.5.5 skips these layers by the class ``Gemma3ForConditionalGeneration``, and compresses
    them in the text model ``Gemma3ForCausalLM``, whose layers are the same. What is kept of a
    context would then stand right before the question, within a window of 512 tokens that the model
    has learned to be the latest text. Here both are treated as the first."""
    return bool(getattr(module, "is_sliding", False))
