"""Branches of like length in one padded cache, and the attention of their questions over it.

A row is a branch. Its questions lie side by side behind what is kept of the context, in columns
that do not see one another, so that the kept keys are held once and not once for every question.
What all questions begin with is read once and then counts as kept::

    | spare | padding, kept context, shared start | question 1 | question 2 | ... | step 1: q1 q2 ... | step 2: ... |
                                                                                  | right answer 1 | 2 | ... |

Kept rows end at one place, so that a pass over some rows can leave out the padding that they share.
The questions are read a few columns at a time, and for that time their keys stand a second time
right before what is kept: between columns that do not see one another nothing is computed then.
Attention does not mind the order of keys.

Before answers are written, the right answers may be passed where the steps will stand, to learn how
likely they are; the steps are written over them. Where rows are treated between steps, a copy of
each passes its right answer step by step: copies stand behind the rows that read questions, and are
made when these have been treated for the first step.

A sliding layer that presses leave whole (:attr:`LoadedModel.windows`) holds the newest tokens of
the context. What a place sees of them, and of its own column, is counted in positions: those less
than a window back."""

from collections.abc import Mapping, Sequence

import torch
from torch.nn import functional as F

from kvbench.engine.decode.columns import PLACES_AT_ONCE, Row, make_columns, make_gold_columns
from kvbench.engine.decode.writing import Writing
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.keep import LayerCache, kept_last
from policies.declaration.steps import States

# A GPU's memory-efficient attention copies a mask in every layer whose rows are no multiple of so
# many numbers.
ALIGNED = 8


class Bundle:
    """Holds the preallocated cache of rows of one trace that have the same number of questions.

    ``keys`` and ``values``: by layer, shape (rows, num_kv_heads, front + kept + room, head_dim):
    ``front`` spare places; what is kept, padded in front to the longest branch of that layer; room
    for questions and answers, of which ``grown`` places have been passed. ``reading``: how many
    rows read questions; behind them stand so many ``copies``. ``shared_kept``: how many places of
    the shared start count as kept. ``hidden``: by layer bool (rows, 1 or num_kv_heads, kept), that
    padding, and ``spare``, shape (rows,), how much of it all heads of a row have. ``positions``:
    int64 (rows, places), of what follows the context, and ``kept_positions``, by sliding layer,
    int64 of the shape of ``hidden``, of what is kept. ``places``, ``rows_read``, ``skipped``: of
    the pass announced last, ``skipped`` by layer: how much padding its rows have in common.
    ``active``: bool (rows, columns), the answers that are still written, and ``answering``, how
    many these are. ``row_numbers``: the original index of each remaining row.

    A model may be spread over several devices: keys and values lie where their layer does, all else
    where questions come in."""

    def __init__(self, trace: Trace, rows: Sequence[Row[Branch]], gold: bool = True) -> None:
        """``gold``: whether the right answers are passed."""
        self.device = device = trace.keys[0].device
        self.prompt = trace.prompt
        self.reading, self.copies = len(rows), len(rows) if rows[0].paired else 0
        # A copy asks the same question of the same branch: its tokens and positions are equal.
        if self.copies:
            rows = [*rows, *rows]
        self.steps = rows[0].steps
        self.columns = columns = make_columns(trace, rows, device)
        self.golds = make_gold_columns(trace, rows, device, gold)
        self.question_slices = columns.slices(PLACES_AT_ONCE)
        self.gold_slices = self.golds.slices(PLACES_AT_ONCE)
        # In these places the keys of the widest portion of questions stand while it is read.
        self.front = _widest(self.question_slices)
        answers = max(columns.count * self.steps, _widest(self.gold_slices))
        self.room = columns.shared.stop + columns.token_ids.shape[1] + answers
        self.grown = self.shared_kept = 0
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.hidden: list[torch.Tensor] = []
        self.spare: list[torch.Tensor] = []
        self.windows = trace.windows
        self.kept_positions: dict[int, torch.Tensor] = {}
        for layer, (keys, values) in enumerate(zip(trace.keys, trace.values, strict=True)):
            self._add_layer(keys, values, [row.of.layers[layer] for row in rows[: self.reading]])
        self.kept = [hidden.shape[-1] for hidden in self.hidden]
        # Where every layer keeps as many rows of each branch, one mask serves all layers of a
        # window.
        self.uniform = True
        for layer, window in enumerate(self.windows):
            first_alike = self.windows.index(window)
            self.uniform = self.uniform and self._masked_alike(first_alike, layer)
        # Where nothing is padded, one mask serves all rows.
        self.padded = bool(columns.padding.any())
        self.padded |= any(bool(hidden.any()) for hidden in self.hidden)
        self.padded |= any(bool((kept != kept[:1]).any()) for kept in self.kept_positions.values())
        self._golds_padded = self.padded or bool(self.golds.padding.any())
        self._spare_of_all = self._least_spare(slice(None))
        self.column = torch.zeros_like(columns.shared_ids[0])
        self.padding = torch.zeros_like(columns.shared_ids, dtype=torch.bool)
        self.positions = columns.shared_positions
        # A NaN in padding would be read through any mask.
        policies = [row.of.treatment.policy for row in rows]
        self._may_overflow = any(policy.treatment.own_rows for policy in policies)
        self._writing = Writing(rows, len(self.keys), self.room, device)
        self.active = torch.ones(len(rows), columns.count, dtype=torch.bool, device=device)
        self.row_numbers = list(range(len(rows)))
        self.answering = self.active.numel()
        self._answering: tuple[torch.Tensor, torch.Tensor] | None = None
        self._biases: dict[int | None, torch.Tensor] = {}  # by window

    @property
    def rows(self) -> int:
        """Counts the rows that are left: rows that have finished may be gone."""
        return len(self.active)

    def _add_layer(
        self, keys: torch.Tensor, values: torch.Tensor, caches: Sequence[LayerCache]
    ) -> None:
        heads, tokens, size = keys.shape
        # (rows, heads): how many rows each head of each branch reads.
        counts = torch.stack([_counts(cache, keys) for cache in caches])
        longest = int(counts.max())
        index: torch.Tensor | None = None
        # Where branches only select rows of the trace, one index into its (heads * tokens) rows
        # fills the whole bundle at once. Its padding is other rows of the trace, which are finite.
        if all(cache.keep is not None and cache.keys is None for cache in caches):
            keep = torch.stack([cache.keep for cache in caches if cache.keep is not None])
            head_starts = tokens * torch.arange(heads, device=keys.device)[:, None]
            # (rows, heads, longest).
            index = kept_last(keep, longest) + head_starts
        places = self.front + longest + self.room
        for states, rewrites, storage in (
            (keys, [cache.keys for cache in caches], self.keys),
            (values, [cache.values for cache in caches], self.values),
        ):
            # What is in front and behind is written before it is read.
            buffer = states.new_empty(len(caches) + self.copies, heads, places, size)
            kept = buffer[: len(caches), :, self.front : self.front + longest]
            if index is not None:
                rows = states.reshape(-1, size).index_select(0, index.flatten())
                kept.copy_(rows.view(*index.shape, size))
            else:  # one by one: together they would take as much memory once more
                for row, cache, rewritten in zip(kept, caches, rewrites, strict=True):
                    read = _kept_rows(states if rewritten is None else rewritten, cache.keep)
                    # Zeros and not what the memory held: a NaN in padding would be read through any
                    # mask.
                    row[:, : longest - read.shape[1]] = 0
                    row[:, longest - read.shape[1] :] = read
            storage.append(buffer)
        padding = longest - counts[..., None]
        hidden = (torch.arange(longest, device=keys.device) < padding).to(self.device)
        # Where all heads keep as many, attention broadcasts one mask over them.
        if bool((counts == counts[:, :1]).all()):
            hidden = hidden[:, :1]
        if self.windows[len(self.hidden)] is not None:
            self.kept_positions[len(self.hidden)] = self._place_rows(caches, hidden)
        if self.copies:
            hidden = hidden.repeat(2, 1, 1)
        self.hidden.append(hidden)
        # On the host: each pass asks for the least of it, and must not wait for the device.
        self.spare.append(hidden.sum(-1).amin(-1).cpu())

    def _place_rows(self, caches: Sequence[LayerCache], hidden: torch.Tensor) -> torch.Tensor:
        """Returns the position of each row that is kept, shape (rows, 1 or num_kv_heads, kept)."""
        width = hidden.shape[-1]
        tokens = [F.pad(cache.tokens, (width - cache.tokens.shape[1], 0)) for cache in caches]
        positions = torch.stack(tokens).to(self.device)
        if bool((positions == positions[:, :1]).all()):
            positions = positions[:, :1]
        return positions.repeat(1 + (self.copies > 0), 1, 1)

    def _masked_alike(self, layer: int, other: int) -> bool:
        """Tells whether the same mask serves two layers of one window."""
        alike = torch.equal(self.hidden[layer], self.hidden[other])
        return alike and (
            layer not in self.kept_positions
            or torch.equal(self.kept_positions[layer], self.kept_positions[other])
        )

    def settle(self) -> None:
        """Counts the shared start of all questions, which has been read, as kept from now on; the
        columns come next."""
        self.hidden = [F.pad(hidden, (0, self.grown)) for hidden in self.hidden]
        self.kept = [kept + self.grown for kept in self.kept]
        self.shared_kept = self.grown
        self.grown = 0
        steps_column = torch.arange(self.columns.count, device=self.column.device).repeat(
            self.steps
        )
        self.column = torch.cat([self.columns.column, steps_column])
        self.padding = F.pad(self.columns.padding, (0, len(steps_column)))
        for layer, kept in self.kept_positions.items():
            shared = self.columns.shared_positions[:, None].expand(-1, kept.shape[1], -1)
            self.kept_positions[layer] = torch.cat([kept, shared], dim=-1)
        last = self.columns.positions[:, None, self.columns.last]
        # (rows, steps, columns); then one step behind the other, as they are written.
        of_steps = last + torch.arange(1, self.steps + 1, device=last.device)[:, None]
        self.positions = torch.cat([self.columns.positions, of_steps.flatten(1)], dim=1)

    def copy_rows(self, copies: Mapping[int, int]) -> None:
        """Copies what is kept and passed so far, before any row has finished. ``copies``: by row,
        the one that it is a copy of."""
        if not copies:
            return
        for layer, kept in enumerate(self.kept):
            passed = slice(self.front, self.front + kept + self.grown)
            for storage in (self.keys[layer], self.values[layer]):
                storage[list(copies), :, passed] = storage[list(copies.values()), :, passed]

    def begin_golds(self, places: slice, rows: slice) -> None:
        """Announces a pass of some rows over some places of the right answers, right behind the
        questions."""
        start = self.columns.token_ids.shape[1]
        self.begin(slice(start, start + places.stop - places.start), rows)
        self._column = torch.cat([self.columns.column, self.golds.column[places]])
        self._padding = torch.cat([self.columns.padding, self.golds.padding[:, places]], dim=1)
        self._positions = torch.cat(
            [self.columns.positions, self.golds.positions[:, places]], dim=1
        )
        self._by_row = self._golds_padded

    def begin_step(self) -> None:
        """Announces a pass of all rows over one more token of every answer that is still
        written."""
        self.begin(slice(self.grown, self.grown + self.columns.count), slice(None))

    def begin(self, places: slice, rows: slice, alone: bool = False) -> None:
        """Announces a pass of some rows over these places. ``alone``: of questions, which see none
        of those before."""
        # A mask holds for one pass: its places, its rows and what was passed before have changed.
        self._biases.clear()
        self._column, self._padding, self._by_row = self.column, self.padding, self.padded
        self._positions = self.positions
        self.places, self.rows_read, self.alone = places, rows, alone
        self._writing.begin(self.row_numbers[rows])
        self.skipped = self._spare_of_all if rows == slice(None) else self._least_spare(rows)

    def _least_spare(self, rows: slice) -> list[int]:
        """Counts by layer the padding that some rows have in common."""
        if not self.padded:
            return [0] * len(self.spare)
        return [int(spare[rows].min()) for spare in self.spare]

    def grow(self, count: int) -> None:
        """Notes that every row has passed over so many more places."""
        self.grown += count

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        query_places: torch.Tensor | None,
        output: torch.Tensor,
    ) -> None:
        """Computes the attention of the tokens of the pass over the rows that their branches keep
        and over their own columns, into ``output``.

        All have the shape (tokens, heads, head_dim): row by row, and in steps the answers that are
        still written. ``query_places``: the only places of a row that need an answer. The query
        heads of a group share a key head: they are folded into the query length, (rows,
        num_kv_heads, places * groups, head_dim), instead of repeating keys and values."""
        # Written before anything is read, since a token attends to itself.
        keys = self._write_and_read("keys", key, layer)
        values = self._write_and_read("values", value, layer)
        rows, key_heads = keys.shape[:2]
        query = self._in_rows(query, rows)
        groups = query.shape[2] // key_heads
        bias = self._attention_bias(layer, groups, query.dtype).to(keys.device)
        if query_places is not None:
            query = query[:, query_places]
            bias = bias.unflatten(2, (-1, groups))[:, :, query_places].flatten(2, 3)
        # (rows, num_kv_heads, places, groups, head_dim); places and groups then become one query
        # length, place by place, as the mask repeats its rows.
        folded = query.unflatten(2, (key_heads, groups)).transpose(1, 2)
        shape = folded.shape[:-1]
        # The mask is wider than the keys. A view of it keeps the aligned rows of ALIGNED.
        seen = bias[..., : keys.shape[2]]
        result = F.scaled_dot_product_attention(
            folded.flatten(2, 3), keys, values, attn_mask=seen, scale=scaling
        )
        # (rows, places, num_kv_heads, groups, head_dim).
        result = result.view(*shape, -1).transpose(1, 2)
        # Rows have a place for every column, also for an answer that has ended; the pass has tokens
        # of the live ones alone.
        if self._answering is not None:
            numbers = self._answering[1].to(output.device)
            output.copy_(result.reshape(-1, *output.shape[1:])[numbers])
            return
        into = output.unflatten(0, (rows, -1)).unflatten(2, (key_heads, -1))
        if query_places is None:
            into.copy_(result)
        else:
            into[:, query_places] = result

    def _in_rows(self, tokens: torch.Tensor, rows: int) -> torch.Tensor:
        """Arranges tokens in rows, shape (rows, places, heads, head_dim), with any token for an
        ended answer."""
        if self._answering is not None:
            tokens = tokens[self._answering[0].to(tokens.device)]
        return tokens.view(rows, -1, *tokens.shape[1:])

    def _write_and_read(self, tensor: States, states: torch.Tensor, layer: int) -> torch.Tensor:
        """Writes the keys or values of the pass into the storage of a layer, and returns all that
        the pass reads."""
        storage = (self.keys if tensor == "keys" else self.values)[layer]
        first, behind = self.front + self.skipped[layer], self.front + self.kept[layer]
        # A slice, and so a view: what is written to it below stands in the storage.
        cache = storage[self.rows_read]
        new = self._in_rows(states, len(cache)).transpose(1, 2)
        positions = self._positions[self.rows_read, self.places]
        new = self._writing.changed(layer, tensor, new, positions)
        if self._may_overflow:
            padding = self._padding[self.rows_read, None, self.places, None]
            new = new.masked_fill(padding.to(new.device), 0.0)
        cache[:, :, behind + self.places.start : behind + self.places.stop] = new
        if self.alone:  # in padding that all of these rows have, or in the spare places before it
            cache[:, :, first - new.shape[2] : first] = new
            return cache[:, :, first - new.shape[2] : behind]
        return cache[:, :, first : behind + self.places.stop]

    def _attention_bias(self, layer: int, groups: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns 0 where a query sees a key, else -inf; shape (1 or rows, 1 or num_kv_heads,
        places * groups, keys and unused columns behind them, up to a multiple of :data:`ALIGNED`).

        A place sees the kept context, its own column up to itself, and nothing else, and of both
        only what is within the window of a sliding layer; padding sees itself as well, so that no
        row of the softmax is empty."""
        window = self.windows[layer]
        # One mask serves all layers of a window if they keep alike; else each layer makes its own.
        if window not in self._biases or not self.uniform:
            read = slice(self.places.start if self.alone else 0, self.places.stop)
            places = torch.arange(read.start, read.stop, device=self._column.device)
            query_places = places[self.places.start - read.start :, None]
            same = self._column[read] == self._column[self.places, None]
            chosen = self.rows_read
            if not self._by_row:  # one row stands for all
                chosen = slice(chosen.start, (chosen.start or 0) + 1)
            hidden = self.hidden[layer][chosen, :, None, self.skipped[layer] :]
            seen = same & (places <= query_places) & ~self._padding[chosen, None, read]
            if window is not None:
                positions = self._positions[chosen]
                kept_positions = self.kept_positions[layer][chosen, :, None, self.skipped[layer] :]
                first = positions[:, self.places, None] - window + 1  # that each place sees
                hidden = hidden | (kept_positions < first[:, None])
                seen &= positions[:, None, read] >= first
            seen = seen | (places == query_places)
            (rows, heads, _, kept), width = hidden.shape, len(query_places)
            keys = kept + len(places)
            columns = slice(0, len(places)) if self.alone else slice(kept, keys)
            context = slice(len(places), keys) if self.alone else slice(0, kept)
            aligned = -(-keys // ALIGNED) * ALIGNED
            mask = torch.zeros((rows, heads, width, aligned), dtype=dtype, device=hidden.device)
            mask[..., context].masked_fill_(hidden, float("-inf"))
            mask[..., columns].masked_fill_(~seen[:, None], float("-inf"))
            self._biases[window] = mask.repeat_interleave(groups, dim=2)
        return self._biases[window]

    def keep_answering(self, going: torch.Tensor) -> None:
        """Drops answers that have ended. ``going``: bool (answers,), whether each of the answers so
        far is still written."""
        # Selected by a copy, as the tensor itself is written to meanwhile.
        self.active[self.active.clone()] = going
        live = self.active.any(dim=1).nonzero()[:, 0]
        if len(live) <= 0.75 * self.rows:  # copying the cache pays from here on
            self._select(live)
        active = self.active.flatten()
        numbers = active.nonzero()[:, 0]
        self.answering = len(numbers)
        self._answering = None
        if self.answering < len(active):
            # By place of the rows, the token of the pass that stands there: its own, or for an
            # ended answer that of the live one before it.
            self._answering = (active.cumsum(0) - 1).clamp(min=0), numbers

    def _select(self, rows: torch.Tensor) -> None:
        """Drops all rows but these, because the others have finished."""
        for layer in range(len(self.keys)):
            end = self.front + self.kept[layer] + self.grown
            for storage in (self.keys, self.values):
                smaller = torch.empty_like(storage[layer][: len(rows)])
                smaller[:, :, :end] = storage[layer][rows.to(smaller.device), :, :end]
                storage[layer] = smaller
            self.hidden[layer] = self.hidden[layer][rows]
            self.spare[layer] = self.spare[layer][rows.cpu()]
        self.kept_positions = {layer: kept[rows] for layer, kept in self.kept_positions.items()}
        self.padding = self.padding[rows]
        self.active = self.active[rows]
        self.positions = self.positions[rows]
        self.row_numbers = [self.row_numbers[row] for row in rows.tolist()]
        # All rows may have finished, and the least of none is an error.
        self._spare_of_all = self._least_spare(slice(None)) if len(rows) else []


def _widest(slices: Sequence[slice]) -> int:
    return max(int(part.stop - part.start) for part in slices)


def _counts(cache: LayerCache, keys: torch.Tensor) -> torch.Tensor:
    """Counts the rows that each head reads, shape (heads,)."""
    if cache.keep is not None:
        return cache.keep.sum(-1)
    rows = keys.shape[1] if cache.keys is None else cache.keys.shape[1]
    return torch.full((keys.shape[0],), rows, device=keys.device)


def _kept_rows(states: torch.Tensor, keep: torch.Tensor | None) -> torch.Tensor:
    """Returns the kept rows, shape (heads, rows, size), behind any others where a head keeps fewer
    than another."""
    if keep is None:
        return states
    index = kept_last(keep, int(keep.sum(-1).max()))
    rows = states.gather(1, index[..., None].expand(-1, -1, states.shape[-1]))
    # A NaN would be read through any mask.
    return rows.masked_fill(~keep.gather(1, index)[..., None], 0.0)
