"""How far a format moves what attention does: the format's own code acts on the keys and values of
one text, and the queries behind them look at the result."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvbench.engine.studies.stored_rows import relative_error, store_rows
from kvbench.passport.probe import LayerStates
from policies import Policy
from policies.declaration.policy import Situation


@dataclass(frozen=True)
class LayerShift:
    """Holds what a format does to one layer.

    ``moved``: the attention that goes to other tokens, 0 to 1 (total variation), mean over queries
    and heads. ``output_error``: the error of what attention hands on, as a share of its length.
    ``key_error``, ``value_error``: the error of the rows themselves, likewise, which
    reconstruction is measured by."""

    layer: int
    moved: float
    output_error: float
    key_error: float
    value_error: float


def measure_shifts(policy: Policy, states: Sequence[LayerStates]) -> list[LayerShift]:
    """Measures a format on all layers: it treats the context, which ends where the question
    begins, as it does after a prefill."""
    context = states[0].tokens - states[0].queries.shape[1]
    situation = Situation(ratio=0.0, context_length=context, seed=0, example_id="passport")
    keys = [each.keys[:, :context] for each in states]
    values = [each.values[:, :context] for each in states]
    rows = store_rows(policy, situation, keys, values)
    shifts: list[LayerShift] = []
    for each, of_keys, of_values in zip(states, rows.keys, rows.values, strict=True):
        shifts.append(_shift_of_layer(each, of_keys, of_values))
    return shifts


def _shift_of_layer(states: LayerStates, keys: torch.Tensor, values: torch.Tensor) -> LayerShift:
    """Compares a layer with what a format left of its context, (num_kv_heads, context,
    head_dim)."""
    context = keys.shape[1]
    # The rows of the question itself are exact: it is read behind what the format has stored.
    read_keys = torch.cat([keys, states.keys[:, context:]], dim=1)
    read_values = torch.cat([values, states.values[:, context:]], dim=1)
    weights = states.attention(read_keys)
    return LayerShift(
        layer=states.layer,
        moved=float((states.own_attention - weights).abs().sum(-1).mean()) / 2,
        output_error=relative_error(states.own_output, states.output(weights, read_values)),
        key_error=relative_error(states.keys[:, :context], keys),
        value_error=relative_error(states.values[:, :context], values),
    )
