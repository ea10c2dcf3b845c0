"""Randomness that is the same in every run: drawn from (run seed, example, layer), whatever ran
before."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


def derive_seed(seed: int, example_id: str, part: int | str) -> int:
    """Returns a seed for torch, of a run's seed, an example, and a layer or another part of it; of
    the draws of a random policy after the first, which has the run's own seed, ``repeat`` stands in
    place of the example."""
    digest = hashlib.sha256(f"{seed}/{example_id}/{part}".encode()).digest()
    # Seven bytes, so that the number is positive in an int64 too.
    return int.from_bytes(digest[:7], "big")


@contextmanager
def drawing_from(seed: int, device: torch.device) -> Iterator[None]:
    """Lets whatever draws from torch's own generator inside draw from this seed; nothing outside
    notices."""
    # Without a list it would save and restore the generators of all devices, and warn of many.
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        # Not torch.manual_seed: it also notes where it was called from, once for each kind of
        # device that is not there, which takes half a millisecond and is never freed.
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


# Goes before the press among the bases of a class, so that ``super().score`` is the press's own.
@dataclass
class SeededScore:
    """Makes the scores of a press that draws from torch's generator the same in every run."""

    seed: int = 0
    example_id: str = ""

    def score(
        self, module: Any, hidden_states: torch.Tensor, *others: Any, **named: Any
    ) -> torch.Tensor:
        """Returns the press's own scores, shape (batch_size, num_kv_heads, seq_len)."""
        with drawing_from(
            derive_seed(self.seed, self.example_id, module.layer_idx), hidden_states.device
        ):
            scores: torch.Tensor = super().score(module, hidden_states, *others, **named)  # type: ignore[misc]
            return scores
