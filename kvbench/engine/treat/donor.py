"""Reads another context for treatments that put rows of it into a cache."""

from collections.abc import Callable
from functools import cache

import torch
from transformers import DynamicCache

from kvbench.engine.treat.branch import Trace
from kvbench.models.load import LoadedModel, attention, decoder_of
from kvbench.prompts.prompt import Prompt


def lazy_donor(model: LoadedModel, prompt: Callable[[], Prompt]) -> Callable[[], Trace]:
    """Returns a function that reads the prompt when it is first called; it holds one context."""
    return cache(lambda: read_context(model, prompt()))


@torch.inference_mode()
def read_context(model: LoadedModel, prompt: Prompt) -> Trace:
    """Reads a context without a press; waves may be under way, with an attention of their own."""
    plain, started = DynamicCache(), model.clock()
    with attention(model.network, "sdpa"):
        token_ids = torch.tensor([prompt.token_ids], device=model.device)
        decoder_of(model.network)(input_ids=token_ids, past_key_values=plain)
    keys = [layer.keys[0] for layer in plain.layers if layer.keys is not None]
    values = [layer.values[0] for layer in plain.layers if layer.values is not None]
    return Trace(prompt, keys, values, model.clock() - started, [], model.windows)
