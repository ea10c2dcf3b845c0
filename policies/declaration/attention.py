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


def is_left_whole(module: Any) -> bool:
    """Tells whether presses leave the layer whole: a sliding layer of Gemma 3, whose attention alone says that it
    slides.

    kvpress 0.5.5 skips these layers by the class ``Gemma3ForConditionalGeneration``, and compresses them in the text
    model ``Gemma3ForCausalLM``, whose layers are the same. What is kept of a context would then stand right before the
    question, within a window of 512 tokens that the model has learned to be the latest text. Here both are treated as
    the first.
    """
    return bool(getattr(module, "is_sliding", False))
