"""Makes branches whose keep mask is given, to see what single rows cause.

They are ordinary branches: the same loop decodes them under the treatment of the branch that they come from, and one
with that branch's own mask writes its tokens. Nothing here knows which layer or head reads the answer.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from kvbench.engine.treat.branch import Branch
from kvbench.engine.treat.keep import LayerCache


def reason_without_mask(branch: Branch) -> str:
    """Says why no mask describes what a branch reads, or nothing if one does."""
    if branch.error is not None:
        return "it failed"
    if branch.press_cache is not None:
        return "it goes on cutting while an answer is written"
    if any(layer.keep is None for layer in branch.layers):
        return "it merges or rewrites rows"
    return ""


def mask_of(branch: Branch) -> torch.Tensor:
    """Returns which rows a branch reads, bool (layers, num_kv_heads, seq_len), in the memory of the host: layers may
    lie on several devices.

    Raises :class:`ValueError` where no mask tells that (:func:`reason_without_mask`).
    """
    if reason := reason_without_mask(branch):
        raise ValueError(f"{branch.treatment.policy.name} has no keep mask: {reason}")
    return torch.stack([layer.keep.cpu() for layer in branch.layers if layer.keep is not None])


def with_mask(branch: Branch, keep: torch.Tensor, questions: Sequence[int] | None = None) -> Branch:
    """Makes a branch that reads the rows of ``keep``, of the same cache and under the same treatment as ``branch``.

    ``keep``: as :func:`mask_of` returns it. What is restored has the keys and values of the prefill from which
    ``branch`` was cut. ``questions``: the numbers of those that it answers; by default those of ``branch``.
    """
    if reason := reason_without_mask(branch):
        raise ValueError(f"{branch.treatment.policy.name} has no keep mask: {reason}")
    treatment = branch.treatment if questions is None else replace(branch.treatment, questions=tuple(questions))
    layers = []
    for kept, layer in zip(keep, branch.layers, strict=True):
        assert layer.keep is not None
        layers.append(LayerCache(kept.to(layer.keep.device), int(kept.sum()), layer.keys, layer.values))
    return Branch(treatment, branch.press, branch.arguments, layers)
