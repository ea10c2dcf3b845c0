"""Quantises each row when the model writes it, as engines do whose prefill reads the cache too."""

from collections.abc import Sequence
from dataclasses import dataclass

from policies.declaration.lazy import torch
from policies.declaration.steps import NewRows
from policies.quantisation.quantisation import Format, StoredTensors
from policies.treatments.parts import Parts, chosen


@dataclass(frozen=True)
class QuantisedWrites:
    """Writes what is left of rows in their format. ``ways``: of each answer that it is built
    for."""

    ways: Sequence[StoredTensors]
    layers: Parts

    def on_write(self, new: NewRows) -> "torch.Tensor":
        """Quantises new rows, each by itself. Returns the shape and type of the states, (answers,
        num_kv_heads, tokens, head_dim)."""
        if new.layer not in chosen("layer", self.layers, new.layers):
            return new.states
        places_by_format: dict[Format, list[int]] = {}
        for place, answer in enumerate(new.answers):
            way = self.ways[answer].get(new.tensor)
            if way is not None:
                places_by_format.setdefault(way.format, []).append(place)
        states = new.states
        for stored, places in places_by_format.items():
            index = torch.tensor(places, device=states.device)
            # Heads of several answers are encoded as those of one: no group goes over heads.
            heads = states[index].flatten(0, 1)
            read = stored.encode(heads).read().to(states.dtype)
            states = states.index_copy(0, index, read.unflatten(0, (len(places), -1)))
        return states
