"""Gives access to the cache of a branch as one answer reads it, apart from the attention that reads it."""

import torch
from transformers import DynamicCache

from kvbench.engine.decode.bundle import Bundle
from kvbench.engine.treat.branch import Branch
from policies import ABSENT, UNKNOWN, CacheRows


class BranchCache(CacheRows):
    """Gives access to the rows that one answer reads. It hides how a batch stores them: padding, the questions of other
    columns and rows that have moved. It is valid until the next pass."""

    def row(self, layer: int, head: int, token: int) -> int:
        """Finds the row of a layer in which a head holds a token; raises :class:`KeyError` if there is none."""
        rows = (self.tokens(layer)[head] == token).nonzero()
        if not len(rows):
            raise KeyError(f"head {head} of layer {layer} holds no row of token {token}")
        return int(rows[0, 0])


class BundleCache(BranchCache):
    """Finds the rows of one answer in the storage of a bundle.

    Once a question is read, only a row that asks one can be written to: others share what is kept of the context.
    """

    def __init__(self, bundle: Bundle, branch: Branch, row: int, column: int, question_read: bool) -> None:
        """``row``: where it stands now. ``question_read``: whether keys and values of the question are there."""
        self._bundle, self._branch, self._row = bundle, branch, row
        self._shared = question_read and bundle.columns.count > 1
        columns, number = bundle.columns, bundle.row_numbers[row]
        question_places = (columns.column == column) & ~columns.padding[number]
        question = question_places.nonzero()[:, 0].tolist() if question_read else []
        steps = range(columns.token_ids.shape[1] + column, bundle.grown, columns.count) if question_read else []
        self._behind = torch.tensor([*question, *steps], dtype=torch.long)
        self._positions = branch.next_position + torch.arange(bundle.shared_kept + len(self._behind))

    @property
    def layers(self) -> int:
        return len(self._bundle.keys)

    def tokens(self, layer: int) -> torch.Tensor:
        keys = self._bundle.keys[layer]
        context = self._branch.layers[layer].tokens.to(keys.device)
        behind = self._positions.to(keys.device).expand(keys.shape[1], -1)
        return torch.cat([context, behind], dim=1)

    def keys(self, layer: int) -> torch.Tensor:
        return self._bundle.keys[layer][self._row][:, self._places(layer)]

    def values(self, layer: int) -> torch.Tensor:
        return self._bundle.values[layer][self._row][:, self._places(layer)]

    def write(self, layer: int, keys: torch.Tensor | None = None, values: torch.Tensor | None = None) -> None:
        if self._shared:
            raise ValueError("questions share the kept rows of this branch: only a policy with a step treatment writes")
        present = (self.tokens(layer) != ABSENT)[..., None]
        places = self._places(layer)
        for storage, states in ((self._bundle.keys[layer], keys), (self._bundle.values[layer], values)):
            if states is not None:
                stored = storage[self._row]
                stored[:, places] = torch.where(present, states.to(stored.dtype), stored[:, places])

    def _places(self, layer: int) -> torch.Tensor:
        """Returns the places of the rows in the storage."""
        bundle, device = self._bundle, self._bundle.keys[layer].device
        end = bundle.front + bundle.kept[layer]
        start = end - bundle.shared_kept - self._branch.layers[layer].tokens.shape[1]
        return torch.cat([torch.arange(start, end), end + self._behind]).to(device)


class PlainCache(BranchCache):
    """Gives access to the rows of a branch whose press goes on cutting them in a separate cache. Only the press knows
    which tokens are left."""

    def __init__(self, cache: DynamicCache) -> None:
        self._layers = cache.layers

    @property
    def layers(self) -> int:
        return len(self._layers)

    def tokens(self, layer: int) -> torch.Tensor:
        keys = self._of(layer)[0]
        return torch.full(keys.shape[:2], UNKNOWN, device=keys.device)

    def keys(self, layer: int) -> torch.Tensor:
        return self._of(layer)[0].clone()

    def values(self, layer: int) -> torch.Tensor:
        return self._of(layer)[1].clone()

    def write(self, layer: int, keys: torch.Tensor | None = None, values: torch.Tensor | None = None) -> None:
        for stored, states in zip(self._of(layer), (keys, values), strict=True):
            if states is not None:
                stored.copy_(states)

    def _of(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self._layers[layer].keys, self._layers[layer].values
        assert keys is not None
        assert values is not None
        return keys[0], values[0]
