"""Finds what a policy leaves of the rows of a whole context, by its own treatment alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from kvbench.engine.decode.cache import PlainRows
from policies import Policy, Situation


@dataclass(frozen=True)
class StoredRows:
    """Keys and values by layer, shape (num_kv_heads, tokens, head_dim)."""

    keys: list[torch.Tensor]
    values: list[torch.Tensor]


def store_rows(
    policy: Policy,
    situation: Situation,
    keys: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
) -> StoredRows:
    """Has a policy treat the rows of a context as it does after a prefill. ``keys``, ``values``: by
    layer, shape (num_kv_heads, tokens, head_dim); they are left as they are."""
    cache = _fill_cache(StoredRows(list(keys), list(values)))
    treatment = policy.treatment
    if treatment.prefill_treatment:
        treatment.prefill_treatment([situation]).after_prefill(PlainRows(cache))
    if treatment.step_treatment:
        # Any id of a question: what a step treatment does to the context must not depend on one.
        treatment.step_treatment([situation], ["question"]).after_prefill(PlainRows(cache))
    treated_keys = [layer.keys[0] for layer in cache.layers]
    treated_values = [layer.values[0] for layer in cache.layers]
    return StoredRows(treated_keys, treated_values)


def _fill_cache(rows: StoredRows) -> Any:
    """Fills a cache of transformers with copies of rows."""
    cache = DynamicCache()
    for layer, (keys, values) in enumerate(zip(rows.keys, rows.values, strict=True)):
        cache.update(keys[None].clone(), values[None].clone(), layer)
    return cache


@torch.inference_mode()
def answer_log_probabilities(
    network: Any, rows: StoredRows, question: Sequence[int], answer: Sequence[int]
) -> torch.Tensor:
    """Returns how likely a network takes every token where a right answer stands, over the rows of
    a context: log-probabilities in float32, shape (answer tokens, vocabulary).

    ``question``, ``answer``: token ids. An answer without tokens counts as one token, the first."""
    # The last token of the answer is not read: nothing of the answer stands behind it.
    ids = torch.tensor([[*question, *answer[:-1]]], device=rows.keys[0].device)
    logits = network(input_ids=ids, past_key_values=_fill_cache(rows)).logits[0]
    return torch.log_softmax(logits[len(question) - 1 :].float(), dim=-1)


def mean_divergence(exact: torch.Tensor, other: torch.Tensor) -> float:
    """Returns the KL divergence of other log-probabilities from the exact ones in nats, mean over
    tokens. Both have the shape (tokens, vocabulary)."""
    by_token = torch.nn.functional.kl_div(other, exact, reduction="none", log_target=True).sum(-1)
    return float(by_token.double().mean())


def relative_errors(exact: Sequence[torch.Tensor], stored: Sequence[torch.Tensor]) -> list[float]:
    """Returns by layer how far rows are from the exact ones, as a share of the length of these; 0
    where the exact ones are 0."""
    errors: list[float] = []
    for before, after in zip(exact, stored, strict=True):
        errors.append(relative_error(before, after))
    return errors


def relative_error(exact: torch.Tensor, other: torch.Tensor) -> float:
    """Returns how far numbers are from the exact ones, of the same shape, as a share of the length
    of these; 0 where the exact ones are 0."""
    length = float(exact.float().norm())
    error = float((other.float() - exact.float()).norm())
    return error / length if length else 0.0
