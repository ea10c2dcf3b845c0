"""Presses and engine read these properties off an attention layer of any architecture."""

from typing import Any


def attention_window(module: Any) -> int | None:
    """Counts the tokens back that the layer sees, ``None`` if it sees all.

    Qwen and Gemma say it on the layer, where ``None`` is an answer; Mistral and Phi say it in the configuration alone.
    """
    if "sliding_window" in vars(module):
        window: int | None = module.sliding_window
        return window
    return getattr(module.config, "sliding_window", None)
