"""A fault damages rows of the cache. Which rows, and when, is the same for every kind; how is what
a kind declares."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from policies.declaration.lazy import torch
from policies.declaration.levels import RATE
from policies.declaration.policy import Situation
from policies.declaration.steps import ABSENT, TENSORS, CacheRows, NewRows, States
from policies.faults.counter_based import Distribution, draw_numbers
from policies.faults.options import FIRST, FaultOptions
from policies.quantisation.window import QuantisedRows

BEFORE_THE_QUESTION = 0
# The papers that the kinds are from.
MORE_ROBUST = "KV Cache is More Robust Than You Think"
EFFECT_OF_ERROR = "Effect of KV Cache Error on Inference Accuracy"
HEADS = 2**16  # more than a layer has


def draw(
    distribution: Distribution, key: str, positions: "torch.Tensor", end: int, *channels: int
) -> "torch.Tensor":
    """Returns the numbers of some places, float32, on [0, 1) or of mean 0 and spread 1, on the
    device of the positions.

    The numbers of a place follow from the seed of the draw, example, layer, tensor, step, token,
    head and channel. So a fault is the same alone and in a batch and on every device, hits the same
    rows behind a press that evicts others, and hits at a higher rate what it hits at a lower one.

    ``key`` names all but token, head and channel. ``positions``: int64 (..., heads, rows), the
    tokens of the places; what is drawn for a negative one means nothing. ``end``: a position behind
    all of these. Returns (..., heads, rows, *channels)."""
    device = positions.device
    heads = positions.shape[-2]
    size = math.prod(channels)
    shape = (*positions.shape, *channels)
    tokens = positions.clamp(min=0)
    head = torch.arange(heads, device=device)[:, None]
    if positions.numel() <= heads * end:
        # A number for each place that does not depend on how many heads the model has.
        places = tokens * HEADS + head
        return draw_numbers(distribution, key, places.flatten(), size).view(shape)
    # Several answers hold the same tokens: what is drawn once for each token costs less than a
    # number for every row.
    # (heads, end): each place once, and below each row takes that of its token.
    every_place = torch.arange(end, device=device) * HEADS + head
    numbers = draw_numbers(distribution, key, every_place.flatten(), size)
    index = head * end + tokens
    return numbers.index_select(0, index.flatten()).view(shape)


@dataclass(frozen=True)
class Rows:
    """Tells which tokens the rows of a layer hold."""

    tokens: "torch.Tensor"  # as :meth:`CacheRows.tokens` gives them
    end: int  # behind all tokens, and no smaller than the number of rows

    @cached_property
    def positions(self) -> "torch.Tensor":
        """Returns the tokens of the rows, int64 (answers, num_kv_heads, rows). A row that is no
        single token is told by its place among those of the answer."""
        # (answers, rows): what is absent in every head, as other answers are longer, counts as no
        # place.
        absent = (self.tokens == ABSENT).all(1)
        first = absent.sum(-1)[:, None, None]
        places = torch.arange(self.tokens.shape[2], device=self.tokens.device) - first
        return torch.where(self.tokens < 0, places, self.tokens)


@dataclass(frozen=True)
class Site:
    """Describes the rows of one layer and tensor that a fault may damage, of some answers."""

    situations: Sequence[Situation]  # by answer
    options: Any  # a FaultOptions, or what the kind derives from it
    layer: int
    tensor: States
    step: int  # 0 before the question is read, 1 before the first token of the answer is, and so on
    rows: Rows
    states: "torch.Tensor"  # as they are: (answers, num_kv_heads, rows, head_dim)
    rates: "torch.Tensor"  # the share of the units that are hit, float64 (answers, 1, 1, 1)
    codeword_bits: int | None = None  # the states are codewords, of so many bits

    @cached_property
    def mean_and_spread(self) -> "tuple[torch.Tensor, torch.Tensor]":
        """Returns mean and standard deviation over the rows that are there of an answer: each of
        shape (answers, 1, 1, 1), float32."""
        present = (self.rows.tokens != ABSENT)[..., None]
        absent = ~present
        all_but_answers = (1, 2, 3)
        rows = present.sum(all_but_answers, keepdim=True).double()
        count = rows * self.states.shape[-1]
        # In float64: the order of the sums, which differs with the absent rows of a batch, then
        # does not show in float32.
        states = self.states.double().masked_fill(absent, 0.0)
        mean = states.sum(all_but_answers, keepdim=True) / count
        squares = (states - mean).square().masked_fill(absent, 0.0)
        variance = squares.sum(all_but_answers, keepdim=True) / (count - 1)
        return mean.float(), variance.sqrt().float()

    def draw(self, distribution: Distribution, use: str, *channels: int) -> "torch.Tensor":
        """Draws a number for each row, or each channel of it, for one use: (answers, num_kv_heads,
        rows, *channels)."""
        use_here = f"{self.layer}/{self.step}/{use}"
        return self.draw_at(self.rows.positions, distribution, use_here, *channels)

    def draw_at(
        self, positions: "torch.Tensor", distribution: Distribution, use: str, *channels: int
    ) -> "torch.Tensor":
        """Draws numbers for these positions of each answer, with one call for all answers of an
        example and seed.

        ``positions``: int64 (answers, heads, rows). Returns float32 (answers, heads, rows,
        *channels)."""
        alike: dict[str, list[int]] = defaultdict(list)
        for number, situation in enumerate(self.situations):
            key = f"{situation.seed}/{situation.example_id}/{use}"
            alike[key].append(number)
        end = self.rows.end
        if len(alike) == 1:
            (key,) = alike
            return draw(distribution, key, positions, end, *channels)
        shape = (*positions.shape, *channels)
        drawn = torch.empty(shape, dtype=torch.float32, device=positions.device)
        for key, numbers in alike.items():
            drawn[numbers] = draw(distribution, key, positions[numbers], end, *channels)
        return drawn

    def draw_like(self, distribution: Distribution) -> "torch.Tensor":
        """Draws a number for each value of the rows, others for keys than for values. Returns the
        shape and type of the states, (answers, num_kv_heads, rows, head_dim)."""
        drawn = self.draw(distribution, self.tensor, self.states.shape[-1])
        return drawn.to(self.states.dtype)


@dataclass(frozen=True)
class Fault:
    """Declares a kind of fault."""

    name: str
    paper: str
    description: str
    # Returns what each row would be if the fault hit all of it, of the shape and type of
    # ``Site.states``.
    corrupt: Callable[[Site], "torch.Tensor"]
    options: type[FaultOptions] = FaultOptions
    default_rates: str = RATE.default  # as ``--rates`` takes them
    rates_below: float | None = None  # it means nothing at these and higher ones
    needs_donor: bool = False  # it takes rows of another context (``Situation.donor``)
    reads_other_rows: bool = False  # what it makes of a row depends on the others of its layer
    # It chooses by itself: every value that it is aimed at goes through ``corrupt``.
    hits_all: bool = False


@dataclass
class FaultTreatment:
    """Damages the caches of some answers as a fault and its options say."""

    fault: Fault
    options: FaultOptions
    situations: Sequence[Situation]  # by answer
    # What stood where a transient fault has hit, by layer and tensor.
    _clean: "dict[tuple[int, States], Clean]" = field(default_factory=dict)
    # It damages the codewords of these instead of the rows that are read.
    _codewords: QuantisedRows | None = None
    _codeword_bits: Mapping[States, int] = field(default_factory=dict)
    # Tokens of the context that it is aimed at, bool (answers, tokens), by the device they lie on.
    _targets: "dict[torch.device, torch.Tensor]" = field(default_factory=dict)

    def act_on(self, codewords: QuantisedRows, bits: Mapping[States, int]) -> None:
        """Is called before the prefill is treated. ``bits``: of a codeword, by tensor."""
        codewords.keep_codewords()
        self._codewords, self._codeword_bits = codewords, bits

    def after_prefill(self, cache: CacheRows) -> None:
        self._act(cache, BEFORE_THE_QUESTION)

    def after_step(self, cache: CacheRows, step: int) -> None:
        self._act(cache, step + 1)

    def copy_answers(self, copies: Mapping[int, int]) -> None:
        for place, clean in self._clean.items():
            self._clean[place] = clean.with_copies(copies)

    def on_write(self, new: NewRows) -> "torch.Tensor":
        """Damages rows as they are written: by the draws of one step, whichever pass writes them.
        Returns the shape and type of the states, (answers, num_kv_heads, tokens, head_dim)."""
        options, answers = self.options, new.answers
        is_aimed = new.tensor in TENSORS[options.tensor] and new.layer in options.choose_layers(
            new.layers
        )
        if not is_aimed or not any(self._shares(answers)):
            return new.states
        heads = new.states.shape[1]
        # (answers, tokens) to (answers, heads, tokens): all heads write the same tokens.
        tokens = new.positions[:, None].expand(-1, heads, -1)
        rows = Rows(tokens, max(new.end, tokens.shape[2]))
        site = self._site(answers, new.layer, new.tensor, BEFORE_THE_QUESTION, rows, new.states)
        hit = self._hit(site, answers)
        return torch.where(hit, self._damaged(site, hit), site.states)

    def _act(self, cache: CacheRows, step: int) -> None:
        # Also where it does not act now: what was hit for one step is clean again.
        self.restore(cache)
        if self._codewords:
            cache = self._codewords.codewords(cache)
        if not self._acts_at(step) or not any(self._shares(cache.answers)):
            return
        end = self._end(cache)
        # Keys and values stand in the same rows, which are looked up once for both.
        for layer in self.options.choose_layers(cache.layers):
            rows = Rows(cache.tokens(layer), end)
            for tensor in TENSORS[self.options.tensor]:
                states = getattr(cache, tensor)(layer)
                site = self._site(cache.answers, layer, tensor, step, rows, states)
                hit = self._hit(site, cache.answers)
                if self.options.persistence == "transient":
                    clean = Clean(tuple(cache.answers), cache.lengths(layer), states)
                    self._clean[layer, tensor] = clean
                damaged = self._damaged(site, hit)
                # Not asked whether any is hit: that would wait for the device, in each layer and
                # for each tensor.
                cache.write(layer, rows=hit.any(-1), **{tensor: damaged})

    def _acts_at(self, step: int) -> bool:
        if self.options.phase == "step":
            return step == self.options.step
        if self.options.phase == "resident":
            return step == BEFORE_THE_QUESTION
        return True

    def _end(self, cache: CacheRows) -> int:
        """Returns a position behind the tokens of all rows, with one wait for the device in a
        step."""
        newest = []
        most_rows = 0
        for layer in self.options.choose_layers(cache.layers):
            tokens = cache.tokens(layer)
            most_rows = max(most_rows, tokens.shape[2])
            if tokens.numel():
                newest.append(tokens.amax())
        if not newest:
            return 0
        device = newest[0].device
        # The layers of a model may lie on several devices.
        last = torch.stack([token.to(device) for token in newest]).amax()
        return max(int(last) + 1, most_rows)

    def _shares(self, answers: Sequence[int]) -> list[float]:
        """Lists the share of the units that is hit, by answer."""
        rate = self.options.rate
        if rate is not None:
            return [rate] * len(answers)
        return [self.situations[answer].level.value for answer in answers]

    def _site(
        self,
        answers: Sequence[int],
        layer: int,
        tensor: States,
        step: int,
        rows: Rows,
        states: "torch.Tensor",
    ) -> Site:
        situations = [self.situations[answer] for answer in answers]
        rates = torch.tensor(self._shares(answers), dtype=torch.float64, device=states.device)
        bits = self._codeword_bits.get(tensor)
        return Site(
            situations,
            self.options,
            layer,
            tensor,
            step,
            rows,
            states,
            rates.view(-1, 1, 1, 1),
            bits,
        )

    def _damaged(self, site: Site, hit: "torch.Tensor") -> "torch.Tensor":
        """Returns the rows with what is hit of them. Where whole rows are hit, others mean
        nothing."""
        damaged = self.fault.corrupt(site)
        if hit.shape[-1] == 1:
            return damaged
        return torch.where(hit, damaged, site.states)

    def restore(self, cache: CacheRows) -> None:
        """Puts back what a transient fault has damaged."""
        if self._clean and self._codewords:
            cache = self._codewords.codewords(cache)
        for (layer, tensor), clean in self._clean.items():
            states = getattr(cache, tensor)(layer)
            restored = clean.over(states, cache.answers, cache.lengths(layer))
            cache.write(layer, **{tensor: restored})
        self._clean.clear()

    def _hit(self, site: Site, answers: Sequence[int]) -> "torch.Tensor":
        """Tells which values are hit: bool (answers, num_kv_heads, rows, 1 or head_dim)."""
        hit = self._drawn_hit(site, answers)
        if self.options.tokens != "all":
            aimed_at = self._aimed_at(answers, site.rows.positions)
            hit = hit & aimed_at[..., None]
        heads = site.states.shape[1]
        aimed_heads = self.options.choose_heads(heads)
        if len(aimed_heads) < heads:
            is_aimed = torch.zeros(heads, dtype=torch.bool, device=hit.device)
            is_aimed[list(aimed_heads)] = True
            hit = hit & is_aimed[:, None, None]
        return hit

    def _drawn_hit(self, site: Site, answers: Sequence[int]) -> "torch.Tensor":
        """Tells which values the draws hit, of those of any token and head, as :meth:`_hit`
        does."""
        count, heads, _, size = site.states.shape
        positions = site.rows.positions
        rates = site.rates.float()
        unit = self.options.unit
        # Of a share of 1 nothing is drawn: all numbers are below it.
        if self.fault.hits_all or unit == "bit" or min(self._shares(answers)) >= 1:
            return (rates > 0).expand(*positions.shape, 1)
        if unit == "token":
            # One number for a token, in whatever place of a head it stands: heads may keep
            # different tokens.
            of_answers = positions.reshape(count, 1, -1)
            # The key has no layer: a token is hit in all of them or in none.
            drawn = site.draw_at(of_answers, "uniform", f"{site.step}/tokens")
            return drawn.view(count, heads, -1, 1) < rates
        if unit == "row":
            # The key has no tensor: a row loses its key and its value together.
            return site.draw("uniform", "rows")[..., None] < rates
        return site.draw("uniform", f"values of {site.tensor}", size) < rates

    def _aimed_at(self, answers: Sequence[int], positions: "torch.Tensor") -> "torch.Tensor":
        """Tells which rows of the answers hold tokens that it is aimed at: bool, of the shape of
        ``positions``."""
        first = FIRST.fullmatch(self.options.tokens)
        if first:
            return positions < int(first[1])
        device = positions.device
        if device not in self._targets:
            masks = [_aimed_tokens(self.options.tokens, situation) for situation in self.situations]
            self._targets[device] = torch.stack(masks).to(device)
        targets = self._targets[device][list(answers)]
        length = targets.shape[1]
        # Rows behind the context are looked up at its last token, and taken out below.
        index = positions.clamp(0, length - 1).flatten(1)
        hit: torch.Tensor = targets.gather(1, index).view_as(positions)
        return hit & (positions < length)


@dataclass(frozen=True)
class Clean:
    """Holds the rows of some answers as they were before a transient fault."""

    answers: tuple[int, ...]
    lengths: "torch.Tensor"  # as :meth:`CacheRows.lengths` gives them, like the states
    states: "torch.Tensor"

    def with_copies(self, copies: Mapping[int, int]) -> "Clean":
        copied = [self.answers.index(answer) for answer in copies.values()]
        rows = [*range(len(self.answers)), *copied]
        return Clean((*self.answers, *copies), self.lengths[rows], self.states[rows])

    def over(
        self, states: "torch.Tensor", answers: Sequence[int], lengths: "torch.Tensor"
    ) -> "torch.Tensor":
        """Returns the rows of those answers that are left: these, and behind them newer ones, which
        are clean.

        ``states``: the rows now, (answers, num_kv_heads, rows, head_dim). ``lengths``: int64
        (answers,), of rows."""
        places = [self.answers.index(answer) for answer in answers]
        left = torch.tensor(places, device=states.device)
        before = self.lengths[left][:, None]
        _, heads, rows, size = states.shape
        rows_before = self.states.shape[2]
        # (answers, 1): the rows of an answer stand at the end, the absent ones in front.
        absent = rows - lengths[:, None]
        place = torch.arange(rows, device=states.device) - absent  # counted from the answer's first
        # A row has its place behind the absent ones, of which there may have been more or fewer
        # then.
        earlier = (place + rows_before - before).clamp(0, rows_before - 1)
        # (answers, rows) to (answers, heads, rows, head_dim), as gather wants it.
        index = earlier[:, None, :, None].expand(-1, heads, -1, size)
        clean = self.states[left].gather(2, index)
        is_clean = (place >= 0) & (place < before)
        return torch.where(is_clean[:, None, :, None], clean, states)


def _aimed_tokens(tokens: str, situation: Situation) -> "torch.Tensor":
    """Tells which tokens of the context are evidence, answer, other than evidence, or as many
    random ones.

    Returns bool (tokens of the context,).
    """
    length = situation.context_length
    evidence, answer = torch.zeros(2, length, dtype=torch.bool).unbind()
    evidence[list(situation.evidence_tokens)] = True
    answer[list(situation.answer_tokens)] = True
    if tokens != "random":
        return {"evidence": evidence, "answer": answer, "other": ~evidence}[tokens]
    every = torch.arange(length)[None]
    key = f"{situation.seed}/{situation.example_id}/as many"
    order = draw("uniform", key, every, length)[0]
    # Behind all draws, which are below 1.
    order[evidence] = 2.0
    first = order.argsort(stable=True)[: len(situation.evidence_tokens)]
    drawn = torch.zeros_like(evidence)
    drawn[first] = True
    # Where most of a context is evidence there are not as many others.
    return drawn & ~evidence
