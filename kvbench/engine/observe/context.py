"""Observes the attention between the tokens of a context in the uncompressed prefill."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from kvbench.engine.observe.attention import observed, weights_of
from kvbench.models.load import LoadedModel, decoder_of
from kvbench.prompts.prompt import Prompt
from leaderboards.routing.edges import EPSILON, Edges, joined

WEIGHTS_AT_ONCE = 2**22  # of one head: 16 MiB in float32


@dataclass(frozen=True)
class ContextReading:
    """Holds the attention of a prefill: ``edges`` by layer, and ``top``, int32 (layers, heads, tokens), the token that
    each token attends to most."""

    edges: tuple[Edges, ...]
    top: npt.NDArray[np.int32]


@torch.inference_mode()
def read_context_attention(model: LoadedModel, prompt: Prompt, epsilon: float = EPSILON) -> ContextReading:
    """Reads a context once more and notes its attention, of one head and a block of queries at a time: no matrix of all
    tokens by all tokens is held."""
    watcher = _ContextWatcher(epsilon, model.windows)
    token_ids = torch.tensor([prompt.token_ids], device=model.device)
    with observed(model):
        decoder_of(model.network)(input_ids=token_ids, use_cache=False, watchers=[watcher])
    return ContextReading(tuple(watcher.edges), np.stack(watcher.top))


class _ContextWatcher:
    """Notes edges and top tokens, layer by layer. ``windows``: as :attr:`LoadedModel.windows`."""

    def __init__(self, epsilon: float, windows: Sequence[int | None]) -> None:
        self.edges: list[Edges] = []
        self.top: list[npt.NDArray[np.int32]] = []
        self._epsilon, self._windows = epsilon, windows

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        heads, tokens, _ = query.shape
        groups = heads // key.shape[0]
        places = torch.arange(tokens, device=query.device)
        output = query.new_empty(query.shape)
        top = torch.empty(heads, tokens, dtype=torch.int32)
        parts = []
        for block in places.split(max(1, WEIGHTS_AT_ONCE // tokens)):
            seen = places <= block[:, None]
            if window := self._windows[layer]:
                seen &= places > block[:, None] - window
            strongest = query.new_zeros(len(block), tokens, dtype=torch.float32)
            total = torch.zeros_like(strongest)
            for head in range(heads):
                weights = weights_of(query[head, block], key[head // groups], seen, scaling)
                output[head, block] = weights.to(value.dtype) @ value[head // groups]
                top[head, block.cpu()] = weights.argmax(-1).int().cpu()
                strongest = torch.maximum(strongest, weights)
                total += weights
            matrices = strongest.cpu().numpy(), (total / heads).cpu().numpy()
            parts.append(Edges.of(*matrices, self._epsilon, int(block[0])))
        self.edges.append(joined(parts))
        self.top.append(top.numpy())
        return output
