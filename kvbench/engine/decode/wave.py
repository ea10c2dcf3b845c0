"""Decodes branches together: every pass has the tokens of all of them, one after the other, as one sequence.

What every token passes alone, the matrix products above all, is done for all of them at once; attention is done bundle
by bundle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, Cache

from kvbench.engine.decode.bundle import Bundle
from kvbench.engine.decode.columns import Row
from kvbench.engine.treat.branch import Branch, Trace

BRANCH_ATTENTION = "kvbench_branches"


@dataclass(frozen=True)
class BundlePass:
    """Describes the tokens of a pass that belong to one bundle."""

    bundle: Bundle
    tokens: slice  # their places in the pass
    query_places: torch.Tensor | None = None  # the only places of a row whose queries matter in the last layer


class Wave(Cache):
    """Holds the cache of all bundles that are decoded together. ``parts``: the tokens of the next pass."""

    def __init__(self, trace: Trace, rows: Sequence[Sequence[Row[Branch]]], gold: bool = True) -> None:
        """``rows``: of each bundle. ``gold``: whether the right answers are passed."""
        super().__init__(layers=[])
        self.prompt = trace.prompt
        self.last_layer = len(trace.keys) - 1
        self.bundles = [Bundle(trace, of_bundle, gold) for of_bundle in rows]
        self.parts: list[BundlePass] = []

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return max(bundle.kept[layer_idx] + bundle.grown for bundle in self.bundles)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns keys and values as they are: bundles write them where they are attended to."""
        return key_states, value_states

    def begin_step(self) -> None:
        """Announces a pass over one more token of every answer that is still written."""
        self.parts, start = [], 0
        for bundle in self.bundles:
            bundle.begin_step()
            end = start + bundle.answering
            self.parts.append(BundlePass(bundle, slice(start, end)))
            start = end

    def grow_step(self) -> None:
        for bundle in self.bundles:
            bundle.grow(bundle.columns.count)

    def keep_answering(self, going: torch.Tensor) -> None:
        """Drops answers that have ended. ``going``: bool, bundle by bundle, whether each is still written."""
        counts = [bundle.answering for bundle in self.bundles]
        for bundle, of_bundle in zip(self.bundles, going.split(counts), strict=True):
            if not bool(of_bundle.all()):
                bundle.keep_answering(of_bundle)
        self.bundles = [bundle for bundle in self.bundles if bundle.rows > 0]


def branch_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    wave: Wave | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Computes the attention of the tokens of a pass, shape (1, heads, tokens, head_dim) each, over their bundles."""
    assert wave is not None
    layer: int = module.layer_idx
    queries, keys, values = (states[0].transpose(0, 1) for states in (query, key, value))
    narrow = layer == wave.last_layer and any(part.query_places is not None for part in wave.parts)
    output = queries.new_zeros(queries.shape) if narrow else queries.new_empty(queries.shape)
    for part in wave.parts:
        tokens, query_places = part.tokens, part.query_places if narrow else None
        states = queries[tokens], keys[tokens], values[tokens]
        part.bundle.attend(layer, *states, scaling, query_places, output[tokens])
    return output[None], None


def register_branch_attention() -> None:
    """Makes the attention known to transformers; doing it again changes nothing."""
    AttentionInterface.register(BRANCH_ATTENTION, branch_attention)
