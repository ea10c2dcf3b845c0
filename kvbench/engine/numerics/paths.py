"""The ways to compute the logits of the next token: on a cache, or from the whole sequence anew."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from transformers import DynamicCache, PreTrainedModel

from kvbench.engine.numerics.attending import attending


class Path(Protocol):
    """Gives the logits behind tokens, shape (vocabulary,): first behind a prompt, then behind each token more."""

    ids: list[int]  # that it was given so far

    def begin(self, ids: Sequence[int]) -> torch.Tensor: ...

    def extend(self, token: int) -> torch.Tensor: ...


@dataclass
class Cached:
    """Cache on: reads the prompt at once, then one token at a time on the cache."""

    network: PreTrainedModel
    ids: list[int] = field(default_factory=list)
    cache: DynamicCache = field(default_factory=DynamicCache)
    float32_attention: bool = False

    def begin(self, ids: Sequence[int]) -> torch.Tensor:
        self.ids, self.cache = list(ids), DynamicCache()
        return logits_of(self.network, self.ids, self.cache, 1, self.float32_attention)

    def extend(self, token: int) -> torch.Tensor:
        self.ids.append(token)
        return logits_of(self.network, [token], self.cache, 1, self.float32_attention)


@dataclass
class Whole:
    """Cache off: reads the whole sequence again at every step."""

    network: PreTrainedModel
    batch: int = 1  # copies of the sequence that are read together
    chunk: int | None = None  # tokens that are read at once; None: all
    threads: int | None = None  # of the processor; None: as many as there are
    ids: list[int] = field(default_factory=list)
    float32_attention: bool = False

    def begin(self, ids: Sequence[int]) -> torch.Tensor:
        self.ids = list(ids)
        return self._read()

    def extend(self, token: int) -> torch.Tensor:
        self.ids.append(token)
        return self._read()

    def _read(self) -> torch.Tensor:
        with _threads(self.threads):
            cache = DynamicCache()
            size = self.chunk or len(self.ids)
            parts = [self.ids[start : start + size] for start in range(0, len(self.ids), size)]
            return [logits_of(self.network, part, cache, self.batch, self.float32_attention) for part in parts][-1]


@torch.no_grad()
def logits_of(
    network: PreTrainedModel,
    ids: Sequence[int],
    cache: DynamicCache,
    batch: int = 1,
    float32_attention: bool = False,
) -> torch.Tensor:
    """Reads tokens behind those of a cache, which it adds to; returns the logits behind the last one."""
    tokens = torch.tensor([ids], device=network.device).expand(batch, -1)
    asked: dict[str, Any] = {"input_ids": tokens, "past_key_values": cache, "logits_to_keep": 1}
    if not float32_attention:
        row: torch.Tensor = network(**asked).logits[0, -1]
    else:
        with attending(network):
            row = network(**asked, in_float32=True).logits[0, -1]
    return row


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
