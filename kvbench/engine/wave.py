"""Many branches of one trace in one padded cache, and the attention that reads it.

A row of the batch is a branch. Its questions lie side by side behind what is kept of the context, in columns that do
not see one another, so that the kept keys are held once and not once for every question. What all questions begin with
is read once and then counts as kept::

    | spare | padding, kept context, shared start | question 1 | question 2 | ... | step 1: q1 q2 ... | step 2: ... |

Kept rows end at one place, so that a pass over some rows of the wave can leave out the padding that they share. The
questions are read a few columns at a time, and for that time their keys stand a second time right before what is kept:
between columns that do not see one another nothing is computed then. Attention does not mind the order of keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

import torch
from torch.nn import functional as F
from transformers import AttentionInterface, Cache

from kvbench.engine.branch import Branch, Trace
from kvbench.engine.keep import LayerCache

BRANCH_ATTENTION = "kvbench_branches"
PLACES_AT_ONCE = 64  # as many questions as fit side by side are read together, one at least


@dataclass(frozen=True)
class Columns:
    """The questions of a wave as one token grid, shape (rows, width): questions end where their column ends.

    ``column``: the column of each place, shape (width,). ``last``: the last place of each column.
    ``padding``: bool, shape (rows, width). ``shared_ids`` and ``shared_positions``: the tokens that all questions begin
    with and that the grid leaves out, shape (rows, shared).
    """

    shared_ids: torch.Tensor
    shared_positions: torch.Tensor
    token_ids: torch.Tensor
    positions: torch.Tensor
    column: torch.Tensor
    last: torch.Tensor
    padding: torch.Tensor

    @property
    def count(self) -> int:
        return len(self.last)

    def portions(self, most: int) -> list[slice]:
        """The places of whole columns in turn, at most ``most`` together unless one column alone is wider."""
        ends = [0]
        for before, last in pairwise([-1, *self.last.tolist()]):
            if ends[-1] <= before and last + 1 - ends[-1] > most:
                ends.append(before + 1)
        return [slice(start, end) for start, end in pairwise([*ends, self.token_ids.shape[1]])]


def make_columns(trace: Trace, branches: Sequence[Branch], device: torch.device) -> Columns:
    """All branches ask as many questions. A column is as wide as its longest question; where all rows ask the same,
    nothing is padded."""
    asked = [[trace.prompt.asks[number].token_ids for number in b.treatment.asks] for b in branches]
    shared = shared_start(asked)
    widths = [max(len(ids) for ids in column) - shared for column in zip(*asked, strict=True)]
    token_ids = torch.zeros(len(branches), sum(widths), dtype=torch.long)
    first = torch.tensor([branch.next_position for branch in branches])[:, None]
    positions = (first + shared).repeat(1, token_ids.shape[1])
    padding = torch.ones_like(token_ids, dtype=torch.bool)
    for row, questions in enumerate(asked):
        end = 0
        for width, ids in zip(widths, questions, strict=True):
            end += width
            own = torch.tensor(ids[shared:])
            token_ids[row, end - len(own) : end] = own
            positions[row, end - len(own) : end] += torch.arange(len(own))
            padding[row, end - len(own) : end] = False
    shared_ids = torch.tensor(asked[0][0][:shared], dtype=torch.long).repeat(len(branches), 1)
    column = torch.arange(len(widths)).repeat_interleave(torch.tensor(widths))
    last = torch.tensor(widths).cumsum(0) - 1
    parts = (shared_ids, first + torch.arange(shared), token_ids, positions, column, last, padding)
    return Columns(*(part.to(device) for part in parts))


def shared_start(asked: Sequence[Sequence[Sequence[int]]]) -> int:
    """How many tokens all questions of all rows begin with; each has at least one more. A row that asks one question
    shares nothing."""
    if len(asked[0]) == 1:
        return 0
    own = [question[:-1] for questions in asked for question in questions]
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*own, strict=False)))


class Wave(Cache):
    """The preallocated cache of some branches of one trace.

    Keys and values of a layer: shape (rows, num_kv_heads, kept + grown, head_dim), kept rows first, padded in front to
    the longest branch of that layer. What questions begin with is read first and kept, then the columns.
    ``hidden``: by layer bool (rows, 1 or num_kv_heads, kept), that padding.
    ``spare``: by layer (rows,), how much of it all heads of a row have. ``skipped``: by layer, how much the rows of the
    pass announced last have in common.
    """

    def __init__(self, trace: Trace, branches: Sequence[Branch], columns: Columns, steps: int) -> None:
        super().__init__(layers=[])
        self.columns = columns
        self.portions = columns.portions(PLACES_AT_ONCE)
        self.front = max(portion.stop - portion.start for portion in self.portions)
        shared = columns.shared_ids.shape[1]
        self.grown_capacity = shared + columns.token_ids.shape[1] + columns.count * steps
        self.steps = steps
        self.grown = 0
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.hidden: list[torch.Tensor] = []
        self.spare: list[torch.Tensor] = []
        for layer, (keys, values) in enumerate(zip(trace.keys, trace.values, strict=True)):
            self._add_layer(keys, values, [branch.layers[layer] for branch in branches])
        self.kept = [hidden.shape[-1] for hidden in self.hidden]
        # Where every layer keeps as many rows of each branch, one mask serves all layers.
        self.uniform = all(torch.equal(self.hidden[0], hidden) for hidden in self.hidden[1:])
        self.column = torch.zeros_like(columns.shared_ids[0])
        self.padding = torch.zeros_like(columns.shared_ids, dtype=torch.bool)
        self.shared_bias: torch.Tensor | None = None
        self.wanted_last: torch.Tensor | None = None  # the only places whose queries the last layer need answer

    def _add_layer(self, keys: torch.Tensor, values: torch.Tensor, caches: Sequence[LayerCache]) -> None:
        heads, _, size = keys.shape
        if all(cache.keep is not None and cache.keys is None for cache in caches):
            keep = torch.stack([cache.keep for cache in caches if cache.keep is not None])
            counts = keep.sum(-1)
            longest = int(counts.max())
            index = _kept_last(keep, longest)
            rows = index[..., None].expand(-1, -1, -1, size)
            kept_keys = keys.expand(len(caches), -1, -1, -1).gather(2, rows)
            kept_values = values.expand(len(caches), -1, -1, -1).gather(2, rows)
        else:
            parts = [_own_rows(keys, values, cache) for cache in caches]
            counts = torch.stack([count for _, _, count in parts])
            longest = int(counts.max())
            kept_keys = torch.stack([F.pad(k, (0, 0, longest - k.shape[1], 0)) for k, _, _ in parts])
            kept_values = torch.stack([F.pad(v, (0, 0, longest - v.shape[1], 0)) for _, v, _ in parts])
        hidden = torch.arange(longest, device=keys.device) < longest - counts[..., None]
        if bool((counts == counts[:, :1]).all()):
            hidden = hidden[:, :1]
        shape = (len(caches), heads, self.front + longest + self.grown_capacity, size)
        for kept, held in ((kept_keys, self.keys), (kept_values, self.values)):
            buffer = torch.empty(shape, dtype=kept.dtype, device=kept.device)
            buffer[:, :, self.front : self.front + longest] = kept
            held.append(buffer)
        self.hidden.append(hidden)
        self.spare.append(hidden.sum(-1).amin(-1).cpu())

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.kept[layer_idx] + self.grown

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        first, behind = self.front + self.skipped[layer_idx], self.front + self.kept[layer_idx]
        start, end = behind + self.places.start, behind + self.places.stop
        read = []
        for held, states in ((self.keys, key_states), (self.values, value_states)):
            cache = held[layer_idx][self.rows]
            cache[:, :, start:end] = states
            if self.alone:  # in padding that all of these rows have, or in the spare places before it
                cache[:, :, first - states.shape[2] : first] = states
                read.append(cache[:, :, first - states.shape[2] : behind])
            else:
                read.append(cache[:, :, first:end])
        return read[0], read[1]

    def settle(self) -> None:
        """What was read, the shared start of all questions, counts as kept from now on; the columns come next."""
        self.hidden = [F.pad(hidden, (0, self.grown)) for hidden in self.hidden]
        self.kept = [kept + self.grown for kept in self.kept]
        self.grown = 0
        columns = self.columns
        steps_column = torch.arange(columns.count, device=columns.column.device).repeat(self.steps)
        self.column = torch.cat([columns.column, steps_column])
        self.padding = F.pad(columns.padding, (0, len(steps_column)))

    def begin_shared(self, rows: slice) -> None:
        """Announces a pass of some rows over the shared start of their questions."""
        self._begin(slice(0, self.columns.shared_ids.shape[1]), rows, alone=False)

    def begin_questions(self, places: slice, rows: slice) -> None:
        """Announces a pass of some rows over questions at these places."""
        self._begin(places, rows, alone=True)

    def begin_step(self) -> None:
        """Announces a pass of all rows over one more token of every column."""
        self._begin(slice(self.grown, self.grown + self.columns.count), slice(None), alone=False)

    def _begin(self, places: slice, rows: slice, alone: bool) -> None:
        self.shared_bias = None
        self.places, self.rows, self.alone = places, rows, alone
        self.skipped = [int(spare[rows].min()) for spare in self.spare]

    def grow(self, count: int) -> None:
        """Every row has passed over so many more places."""
        self.grown += count

    def bias(self, layer: int, groups: int, dtype: torch.dtype) -> torch.Tensor:
        """0 where a query sees a key and -inf elsewhere, shape (rows, 1 or num_kv_heads, groups * queries, keys).

        A place sees the kept context, its own column up to itself, and nothing else; padding sees itself as well, so
        that no row of the softmax is empty.
        """
        key = 0 if self.uniform else layer
        if self.shared_bias is None or not self.uniform:
            read = slice(self.places.start if self.alone else 0, self.places.stop)
            places = torch.arange(read.start, read.stop, device=self.column.device)
            query_places = places[self.places.start - read.start :, None]
            same = self.column[read] == self.column[self.places, None]
            seen = same & (places <= query_places) & ~self.padding[self.rows, None, read]
            seen = seen | (places == query_places)
            hidden = self.hidden[key][self.rows, :, self.skipped[key] :]
            rows, heads, kept = hidden.shape
            shape = (rows, heads, len(query_places), kept + len(places))
            mask = torch.zeros(shape, dtype=dtype, device=hidden.device)
            own = slice(0, len(places)) if self.alone else slice(kept, None)
            context = slice(len(places), None) if self.alone else slice(0, kept)
            mask[..., context].masked_fill_(hidden[:, :, None], float("-inf"))
            mask[..., own].masked_fill_(~seen[:, None], float("-inf"))
            self.shared_bias = mask.repeat(1, 1, groups, 1)
        return self.shared_bias

    def select(self, rows: torch.Tensor) -> None:
        """Keeps some rows of the batch: the others have finished."""
        for layer in range(len(self.keys)):
            end = self.front + self.get_seq_length(layer)
            for held in (self.keys, self.values):
                smaller = torch.empty_like(held[layer][: len(rows)])
                smaller[:, :, :end] = held[layer][rows, :, :end]
                held[layer] = smaller
            self.hidden[layer] = self.hidden[layer][rows]
            self.spare[layer] = self.spare[layer][rows.cpu()]
        self.padding = self.padding[rows]


def _kept_last(keep: torch.Tensor, longest: int) -> torch.Tensor:
    """Positions of the kept tokens in the order of the context, behind ``longest - kept`` others that mean nothing.

    ``keep``: bool (..., tokens). Returns int64 (..., longest).
    """
    return keep.to(torch.int8).sort(dim=-1, stable=True).indices[..., keep.shape[-1] - longest :]


def _own_rows(
    keys: torch.Tensor, values: torch.Tensor, cache: LayerCache
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys and values (heads, rows, size) of one branch where some of the wave have their own, and rows per head."""
    if cache.keys is not None and cache.values is not None:
        keys, values = cache.keys, cache.values
    if cache.keep is None:
        return keys, values, torch.full((keys.shape[0],), keys.shape[1], device=keys.device)
    counts = cache.keep.sum(-1)
    index = _kept_last(cache.keep, int(counts.max()))
    rows = index[..., None].expand(-1, -1, keys.shape[-1])
    return keys.gather(1, rows), values.gather(1, rows), counts


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
    """Attention of branches over their own caches. The query heads of a group share a key head: they are folded into
    the query length, (rows, num_kv_heads, groups * queries, head_dim), instead of repeating keys and values."""
    assert wave is not None
    key_heads = key.shape[1]
    groups = query.shape[1] // key_heads
    bias = wave.bias(module.layer_idx, groups, query.dtype)
    answered = query.unflatten(1, (key_heads, groups))
    wanted = wave.wanted_last if module.layer_idx == len(wave.keys) - 1 else None
    if wanted is not None:
        answered = answered[:, :, :, wanted]
        bias = bias.unflatten(2, (groups, -1))[:, :, :, wanted].flatten(2, 3)
    output = F.scaled_dot_product_attention(answered.flatten(2, 3), key, value, attn_mask=bias, scale=scaling)
    output = output.unflatten(2, (groups, -1)).flatten(1, 2).transpose(1, 2)
    if wanted is None:
        return output.contiguous(), None
    everywhere = output.new_zeros(query.transpose(1, 2).shape)
    everywhere[:, wanted] = output
    return everywhere, None


def register_branch_attention() -> None:
    """Makes the attention known to transformers; doing it again changes nothing."""
    AttentionInterface.register(BRANCH_ATTENTION, branch_attention)
