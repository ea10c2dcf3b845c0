"""A fault damages rows of the cache. Which rows, and when, is the same for every kind; how is what a kind declares."""

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
from policies.faults.counter_based import Distribution, numbers_of
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
    """Returns the numbers of some places, float32, on [0, 1) or of mean 0 and spread 1, on the device of the positions.

    The numbers of a place follow from the seed of the draw, example, layer, tensor, step, token, head and channel. So a
    fault is the same alone and in a batch and on every device, hits the same rows behind a press that evicts others,
    and hits at a higher rate what it hits at a lower one.

    ``key`` names all but token, head and channel. ``positions``: int64 (..., heads, rows), the tokens of the places;
    what is drawn for a negative one means nothing. ``end``: a position behind all of these. Returns (..., heads, rows,
    *channels).
    """
    device, heads, size = positions.device, positions.shape[-2], math.prod(channels)
    tokens, head = positions.clamp(min=0), torch.arange(heads, device=device)[:, None]
    if positions.numel() <= heads * end:
        places = tokens * HEADS + head
        return numbers_of(distribution, key, places.flatten(), size).view(
            *positions.shape, *channels
        )
    # Several answers hold the same tokens: what is drawn once for each token costs less than a number for every row.
    every_place = torch.arange(end, device=device) * HEADS + head
    numbers = numbers_of(distribution, key, every_place.flatten(), size)
    return numbers.index_select(0, (head * end + tokens).flatten()).view(
        *positions.shape, *channels
    )


@dataclass(frozen=True)
class Rows:
    """Tells which tokens the rows of a layer hold."""

    tokens: "torch.Tensor"  # as :meth:`CacheRows.tokens` gives them
    end: int  # behind all tokens, and no smaller than the number of rows

    @cached_property
    def positions(self) -> "torch.Tensor":
        """Returns the tokens of the rows, int64 (answers, num_kv_heads, rows). A row that is no single token is told by
        its place among those of the answer."""
        first = (self.tokens == ABSENT).all(1).sum(-1)[:, None, None]
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
        """Returns mean and standard deviation over the rows that are there of an answer: (answers, 1, 1, 1) each."""
        present = (self.rows.tokens != ABSENT)[..., None]
        dims, size = (1, 2, 3), self.states.shape[-1]
        count = present.sum(dims, keepdim=True).double() * size
        states = self.states.double().masked_fill(~present, 0.0)
        mean = states.sum(dims, keepdim=True) / count
        squares = (states - mean).square().masked_fill(~present, 0.0).sum(dims, keepdim=True)
        return mean.float(), (squares / (count - 1)).sqrt().float()

    def draw(self, distribution: Distribution, what: str, *channels: int) -> "torch.Tensor":
        """Draws a number for each row, or each channel of it, for one use: (answers, num_kv_heads, rows, *channels)."""
        return self.draw_at(
            self.rows.positions, distribution, f"{self.layer}/{self.step}/{what}", *channels
        )

    def draw_at(
        self, positions: "torch.Tensor", distribution: Distribution, what: str, *channels: int
    ) -> "torch.Tensor":
        """Draws numbers for these positions of each answer, with one call for all answers of an example and seed."""
        alike: dict[str, list[int]] = defaultdict(list)
        for number, situation in enumerate(self.situations):
            alike[f"{situation.seed}/{situation.example_id}/{what}"].append(number)
        if len(alike) == 1:
            return draw(distribution, next(iter(alike)), positions, self.rows.end, *channels)
        drawn = torch.empty(
            *positions.shape, *channels, dtype=torch.float32, device=positions.device
        )
        for key, numbers in alike.items():
            drawn[numbers] = draw(distribution, key, positions[numbers], self.rows.end, *channels)
        return drawn

    def draw_like(self, distribution: Distribution) -> "torch.Tensor":
        """Draws a number for each value of the rows, others for keys than for values."""
        return self.draw(distribution, self.tensor, self.states.shape[-1]).to(self.states.dtype)


@dataclass(frozen=True)
class Fault:
    """Declares a kind of fault."""

    name: str
    paper: str
    description: str
    # Returns what each row would be if the fault hit all of it, of the shape and type of ``Site.states``.
    corrupt: Callable[[Site], "torch.Tensor"]
    options: type[FaultOptions] = FaultOptions
    default_rates: str = RATE.default  # as ``--rates`` takes them
    rates_below: float | None = None  # it means nothing at these and higher ones
    needs_donor: bool = False  # it takes rows of another context (``Situation.donor``)
    reads_other_rows: bool = False  # what it makes of a row depends on the others of its layer
    hits_all: bool = (
        False  # it chooses by itself: every value that it is aimed at goes through ``corrupt``
    )


@dataclass
class FaultTreatment:
    """Damages the caches of some answers as a fault and its options say."""

    fault: Fault
    options: FaultOptions
    situations: Sequence[Situation]  # by answer
    # What stood where a transient fault has hit, by layer and tensor.
    _clean: "dict[tuple[int, States], Clean]" = field(default_factory=dict)
    _codewords: QuantisedRows | None = (
        None  # whose codewords it damages instead of the rows that are read
    )
    _codeword_bits: Mapping[States, int] = field(default_factory=dict)
    # Which tokens of the context it is aimed at, bool (answers, tokens), by the device that it was moved to.
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
        self._clean = {place: clean.with_copies(copies) for place, clean in self._clean.items()}

    def on_write(self, new: NewRows) -> "torch.Tensor":
        """Damages rows as they are written: by the draws of one step, whichever pass writes them."""
        is_aimed = new.tensor in TENSORS[
            self.options.tensor
        ] and new.layer in self.options.layers_of(new.layers)
        if not is_aimed or not any(self._shares(new.answers)):
            return new.states
        tokens = new.positions[:, None].expand(-1, new.states.shape[1], -1)
        rows = Rows(tokens, max(new.end, tokens.shape[2]))
        site = self._site(new.answers, new.layer, new.tensor, BEFORE_THE_QUESTION, rows, new.states)
        hit = self._hit(site, new.answers)
        return torch.where(hit, self._damaged(site, hit), site.states)

    def _act(self, cache: CacheRows, step: int) -> None:
        self.restore(cache)
        if self._codewords:
            cache = self._codewords.codewords(cache)
        if self.options.phase == "step" and step != self.options.step:
            return
        if self.options.phase == "resident" and step != BEFORE_THE_QUESTION:
            return
        if not any(self._shares(cache.answers)):
            return
        end = self._end(cache)
        for layer in self.options.layers_of(cache.layers):
            rows = Rows(cache.tokens(layer), end)
            for tensor in TENSORS[self.options.tensor]:
                states = getattr(cache, tensor)(layer)
                site = self._site(cache.answers, layer, tensor, step, rows, states)
                hit = self._hit(site, cache.answers)
                if self.options.persistence == "transient":
                    self._clean[layer, tensor] = Clean(
                        tuple(cache.answers), cache.lengths(layer), states
                    )
                # Not asked whether any is hit: that would wait for the device, in each layer and for each tensor.
                cache.write(layer, rows=hit.any(-1), **{tensor: self._damaged(site, hit)})

    def _end(self, cache: CacheRows) -> int:
        """Returns a position behind the tokens of all rows, with one wait for the device in a step."""
        tokens = [cache.tokens(layer) for layer in self.options.layers_of(cache.layers)]
        newest = [rows.amax() for rows in tokens if rows.numel()]
        if not newest:
            return 0
        last = torch.stack([token.to(newest[0].device) for token in newest]).amax()
        return max(int(last) + 1, *(rows.shape[2] for rows in tokens))

    def _shares(self, answers: Sequence[int]) -> list[float]:
        """Lists the share of the units that is hit, by answer."""
        rate = self.options.rate
        return [self.situations[answer].level.value if rate is None else rate for answer in answers]

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
        """Returns the rows with what is hit of them. Where whole rows are hit, others mean nothing."""
        damaged = self.fault.corrupt(site)
        return damaged if hit.shape[-1] == 1 else torch.where(hit, damaged, site.states)

    def restore(self, cache: CacheRows) -> None:
        """Puts back what a transient fault has damaged."""
        if self._clean and self._codewords:
            cache = self._codewords.codewords(cache)
        for (layer, tensor), clean in self._clean.items():
            states = getattr(cache, tensor)(layer)
            cache.write(layer, **{tensor: clean.over(states, cache.answers, cache.lengths(layer))})
        self._clean.clear()

    def _hit(self, site: Site, answers: Sequence[int]) -> "torch.Tensor":
        """Tells which values are hit: bool (answers, num_kv_heads, rows, 1 or head_dim)."""
        options, (count, heads, _, size) = self.options, site.states.shape
        positions, rates = site.rows.positions, site.rates.float()
        # Of a share of 1 nothing is drawn: all numbers are below it.
        if self.fault.hits_all or options.unit == "bit" or min(self._shares(answers)) >= 1:
            hit = (rates > 0).expand(*positions.shape, 1)
        elif options.unit == "token":
            # One number for a token, in whatever place of a head it stands: heads may keep different tokens.
            drawn = site.draw_at(positions.reshape(count, 1, -1), "uniform", f"{site.step}/tokens")
            hit = drawn.view(count, heads, -1, 1) < rates
        elif options.unit == "row":
            hit = site.draw("uniform", "rows")[..., None] < rates
        else:
            hit = site.draw("uniform", f"values of {site.tensor}", size) < rates
        if options.tokens != "all":
            hit = hit & self._aimed_at(answers, positions)[..., None]
        if len(chosen := options.heads_of(heads)) < heads:
            of_heads = torch.zeros(heads, dtype=torch.bool, device=hit.device)
            of_heads[list(chosen)] = True
            hit = hit & of_heads[:, None, None]
        return hit

    def _aimed_at(self, answers: Sequence[int], positions: "torch.Tensor") -> "torch.Tensor":
        """Tells which rows of the answers hold tokens that it is aimed at: bool, of the shape of ``positions``."""
        if first := FIRST.fullmatch(self.options.tokens):
            return positions < int(first[1])
        if (device := positions.device) not in self._targets:
            masks = torch.stack(
                [_tokens_of(self.options.tokens, situation) for situation in self.situations]
            )
            self._targets[device] = masks.to(device)
        targets = self._targets[device][list(answers)]
        index = positions.clamp(0, targets.shape[1] - 1).flatten(1)
        hit: torch.Tensor = targets.gather(1, index).view_as(positions)
        return hit & (positions < targets.shape[1])


@dataclass(frozen=True)
class Clean:
    """Holds the rows of some answers as they were before a transient fault."""

    answers: tuple[int, ...]
    lengths: "torch.Tensor"  # as :meth:`CacheRows.lengths` gives them, like the states
    states: "torch.Tensor"

    def with_copies(self, copies: Mapping[int, int]) -> "Clean":
        rows = [
            *range(len(self.answers)),
            *(self.answers.index(answer) for answer in copies.values()),
        ]
        return Clean((*self.answers, *copies), self.lengths[rows], self.states[rows])

    def over(
        self, states: "torch.Tensor", answers: Sequence[int], lengths: "torch.Tensor"
    ) -> "torch.Tensor":
        """Returns the rows of those answers that are left: these, and behind them newer ones, which are clean."""
        left = torch.tensor(
            [self.answers.index(answer) for answer in answers], device=states.device
        )
        before, (_, heads, rows, size) = self.lengths[left][:, None], states.shape
        place = torch.arange(rows, device=states.device) - (
            rows - lengths[:, None]
        )  # counted from the answer's first
        earlier = place + self.states.shape[2] - before
        index = earlier.clamp(0, self.states.shape[2] - 1)[:, None, :, None].expand(
            -1, heads, -1, size
        )
        known = (place >= 0) & (place < before)
        return torch.where(known[:, None, :, None], self.states[left].gather(2, index), states)


def _tokens_of(tokens: str, situation: Situation) -> "torch.Tensor":
    """Tells which tokens of the context are evidence, answer, other than evidence, or as many random ones: bool."""
    evidence, answer = torch.zeros(2, situation.context_length, dtype=torch.bool).unbind()
    evidence[list(situation.evidence_tokens)] = True
    answer[list(situation.answer_tokens)] = True
    if tokens != "random":
        return {"evidence": evidence, "answer": answer, "other": ~evidence}[tokens]
    every = torch.arange(situation.context_length)[None]
    order = draw(
        "uniform",
        f"{situation.seed}/{situation.example_id}/as many",
        every,
        situation.context_length,
    )[0]
    order[evidence] = 2.0
    drawn = torch.zeros_like(evidence)
    drawn[order.argsort(stable=True)[: len(situation.evidence_tokens)]] = True
    return drawn & ~evidence
