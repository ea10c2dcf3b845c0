"""The presses of the controls."""

from dataclasses import dataclass
from typing import Any

import torch
from kvpress import BasePress, ScorerPress

from policies.declaration.draws import derive_seed


@dataclass
class FullPress(BasePress):
    """Keeps everything, whatever the ratio."""

    def compress(
        self,
        module: Any,
        hidden_states: Any,
        keys: torch.Tensor,
        values: torch.Tensor,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns keys and values as they are, shape (batch_size, num_kv_heads, seq_len,
        head_dim)."""
        return keys, values


@dataclass
class RandomControlPress(ScorerPress):
    """Draws scores independently for each layer, head and example from (seed, example, layer).

    kvpress's own ``RandomPress``, when seeded, evicts the same tokens in every layer and in every
    example of one length, which inflates the Global Eviction Ratio. Drawn in float32 on the CPU, so
    that every device agrees."""

    seed: int = 0
    example_id: str = ""

    def score(
        self, module: Any, hidden_states: Any, keys: torch.Tensor, *_: Any, **__: Any
    ) -> torch.Tensor:
        """Returns scores in [0, 1), shape (batch_size, num_kv_heads, seq_len)."""
        generator = torch.Generator().manual_seed(
            derive_seed(self.seed, self.example_id, module.layer_idx)
        )
        return torch.rand(keys.shape[:-1], generator=generator, dtype=torch.float32).to(keys.device)


@dataclass
class RecencyPress(ScorerPress):
    """Keeps the last tokens and nothing else, not even the attention sink."""

    def score(
        self, module: Any, hidden_states: Any, keys: torch.Tensor, *_: Any, **__: Any
    ) -> torch.Tensor:
        """Returns the position of each token, shape (batch_size, num_kv_heads, seq_len)."""
        # Float32 tells all positions apart up to 2**24; bfloat16 would tie them from 256 on.
        return torch.arange(keys.shape[2], device=keys.device, dtype=torch.float32).expand(
            keys.shape[:-1]
        )


@dataclass
class OraclePress(ScorerPress):
    """Keeps the evidence of the question asked: its answer first, then the rest of the evidence,
    then the first token (the attention sink), then the most recent ones.

    Not an upper bound by construction: a model may have moved what it read elsewhere by the time
    the cache is cut."""

    answer_tokens: tuple[int, ...] = ()
    evidence_tokens: tuple[int, ...] = ()

    def score(
        self, module: Any, hidden_states: Any, keys: torch.Tensor, *_: Any, **__: Any
    ) -> torch.Tensor:
        """Returns the rank of each token, shape (batch_size, num_kv_heads, seq_len)."""
        length = keys.shape[2]
        # Tiers that are a length apart, with the most recent first in each. Tokens of the answer
        # are evidence too, and so stand two tiers above the rest of it.
        scores = torch.arange(length, dtype=torch.float32)
        scores[0] += length
        scores[list(self.evidence_tokens)] += 2 * length
        scores[list(self.answer_tokens)] += 2 * length
        return scores.to(keys.device).expand(keys.shape[:-1])
