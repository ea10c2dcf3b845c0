"""The cache of a branch as one answer reads it, apart from the attention that reads it."""

from abc import ABC, abstractmethod

import torch
from transformers import DynamicCache

from kvbench.engine.decode.bundle import Bundle, kept_last
from kvbench.engine.treat.branch import Branch
from kvbench.engine.treat.keep import LayerCache
from policies import ABSENT, UNKNOWN


class BranchCache(ABC):
    """Rows of keys and values that can be read and written by layer, head and token.

    It implements :class:`policies.CacheRows`. It hides how a batch stores them: padding, the questions of other columns
    and rows that have moved. It is valid until the next pass.
    """

    @property
    @abstractmethod
    def layers(self) -> int:
        """How many layers there are."""

    @abstractmethod
    def tokens(self, layer: int) -> torch.Tensor:
        """The position of each row's token, ``ABSENT`` or ``UNKNOWN``: int64 (num_kv_heads, rows)."""

    @abstractmethod
    def keys(self, layer: int) -> torch.Tensor:
        """A copy, shape (num_kv_heads, rows, head_dim)."""

    @abstractmethod
    def values(self, layer: int) -> torch.Tensor:
        """A copy, shape (num_kv_heads, rows, head_dim)."""

    @abstractmethod
    def write(self, layer: int, keys: torch.Tensor | None = None, values: torch.Tensor | None = None) -> None:
        """Puts these into the cache; absent rows stay as they are."""

    def row(self, layer: int, head: int, token: int) -> int:
        """Where among the rows of a layer a head holds that token; :class:`KeyError` if it does not."""
        rows = (self.tokens(layer)[head] == token).nonzero()
        if not len(rows):
            raise KeyError(f"head {head} of layer {layer} holds no row of token {token}")
        return int(rows[0, 0])


class BundleCache(BranchCache):
    """The rows of one answer in the storage of a bundle.

    Only a row that asks one question can be written to: others share what is kept of the context.
    """

    def __init__(self, bundle: Bundle, branch: Branch, row: int, column: int, question_read: bool) -> None:
        """``row``: where it stands now. ``question_read``: whether keys and values of the question are there."""
        self._bundle, self._branch, self._row = bundle, branch, row
        columns, number = bundle.columns, bundle.row_numbers[row]
        own = (columns.column == column) & ~columns.padding[number]
        question = own.nonzero()[:, 0].tolist() if question_read else []
        steps = range(columns.token_ids.shape[1] + column, bundle.grown, columns.count) if question_read else []
        self._behind = torch.tensor([*question, *steps], dtype=torch.long)
        self._positions = branch.next_position + torch.arange(bundle.shared_kept + len(self._behind))

    @property
    def layers(self) -> int:
        return len(self._bundle.keys)

    def tokens(self, layer: int) -> torch.Tensor:
        keys = self._bundle.keys[layer]
        context = _tokens_of(self._branch.layers[layer]).to(keys.device)
        behind = self._positions.to(keys.device).expand(keys.shape[1], -1)
        return torch.cat([context, behind], dim=1)

    def keys(self, layer: int) -> torch.Tensor:
        return self._bundle.keys[layer][self._row][:, self._places(layer)]

    def values(self, layer: int) -> torch.Tensor:
        return self._bundle.values[layer][self._row][:, self._places(layer)]

    def write(self, layer: int, keys: torch.Tensor | None = None, values: torch.Tensor | None = None) -> None:
        if self._bundle.columns.count > 1:
            raise ValueError("questions share the kept rows of this branch: only a policy with a step treatment writes")
        present = (self.tokens(layer) != ABSENT)[..., None]
        places = self._places(layer)
        for storage, states in ((self._bundle.keys[layer], keys), (self._bundle.values[layer], values)):
            if states is not None:
                stored = storage[self._row]
                stored[:, places] = torch.where(present, states.to(stored.dtype), stored[:, places])

    def _places(self, layer: int) -> torch.Tensor:
        """Where in the storage of the row its rows stand."""
        bundle, device = self._bundle, self._bundle.keys[layer].device
        end = bundle.front + bundle.kept[layer]
        start = end - bundle.shared_kept - _tokens_of(self._branch.layers[layer]).shape[1]
        return torch.cat([torch.arange(start, end), end + self._behind]).to(device)


class PlainCache(BranchCache):
    """The rows of a branch whose press goes on cutting them, in a cache of its own: which tokens are left, only the
    press knows."""

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


def _tokens_of(left: LayerCache) -> torch.Tensor:
    """The token of each row that a layer keeps of the context, int64 (num_kv_heads, rows): heads that keep fewer begin
    with absent rows."""
    if left.keep is None:
        assert left.keys is not None
        return torch.full(left.keys.shape[:2], UNKNOWN, device=left.keys.device)
    rows = int(left.keep.sum(-1).max())
    tokens = kept_last(left.keep, rows)
    absent = torch.arange(rows, device=tokens.device) < rows - left.keep.sum(-1, keepdim=True)
    return tokens.masked_fill(absent, ABSENT)
