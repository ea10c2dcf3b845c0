"""A fault damages rows of the cache. Which rows, and when, is the same for every kind; how is what a kind declares."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

from policies.declaration.lazy import np, torch
from policies.declaration.levels import RATE
from policies.declaration.policy import Situation
from policies.declaration.steps import ABSENT, TENSORS, CacheRows, States
from policies.faults.options import FIRST, FaultOptions
from policies.quantisation.window import QuantisedRows

BEFORE_THE_QUESTION = 0
# The papers that the kinds are from.
MORE_ROBUST = "KV Cache is More Robust Than You Think"
EFFECT_OF_ERROR = "Effect of KV Cache Error on Inference Accuracy"
Distribution = Literal["uniform", "normal"]
REMEMBERED = 2**18  # numbers: so many and fewer are kept for other rates and kinds, which draw the same


def draw(distribution: Distribution, key: str, positions: "torch.Tensor", *channels: int) -> "torch.Tensor":
    """Returns the numbers of some places, float32, on [0, 1) or of mean 0 and spread 1.

    The numbers of a place follow from the seed of the draw, example, layer, tensor, step, token, head and channel. So a
    fault is the same alone and in a batch, hits the same rows behind a press that evicts others, and hits at a higher
    rate what it hits at a lower one.

    ``key`` names all but token, head and channel. ``positions``: int64 (..., heads, rows), the tokens of the places;
    what is drawn for a negative one means nothing. Returns (..., heads, rows, *channels).
    """
    positions = positions.clamp(min=0)
    heads, tokens = positions.shape[-2], int(positions.max()) + 1 if positions.numel() else 0
    of_token = heads * int(np.prod(channels, dtype=np.int64))
    numbers = (_remembered if tokens * of_token <= REMEMBERED else _drawn)(distribution, key, tokens * of_token)
    by_place = torch.from_numpy(numbers).view(tokens * heads, *channels).to(positions.device)
    places = positions * heads + torch.arange(heads, device=positions.device)[:, None]
    return by_place.index_select(0, places.flatten()).view(*positions.shape, *channels)


def _drawn(distribution: Distribution, key: str, count: int) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    """Draws the first numbers of a key from a counter-based generator. Fewer are the beginning of more."""
    digest = hashlib.sha256(f"{distribution}/{key}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))
    if distribution == "uniform":
        return generator.random(count, dtype=np.float32)
    return generator.standard_normal(count, dtype=np.float32)


_remembered = lru_cache(maxsize=256)(_drawn)


@dataclass(frozen=True)
class Site:
    """Describes the rows of one layer and tensor that a fault may damage, of some answers."""

    situations: Sequence[Situation]  # by answer
    options: Any  # a FaultOptions, or what the kind derives from it
    layer: int
    tensor: States
    step: int  # 0 before the question is read, 1 before the first token of the answer is, and so on
    tokens: "torch.Tensor"  # of the rows, as :meth:`CacheRows.tokens` gives them
    states: "torch.Tensor"  # as they are: (answers, num_kv_heads, rows, head_dim)
    rates: "torch.Tensor"  # the share of the units that are hit, float64 (answers, 1, 1, 1)
    codeword_bits: int | None = None  # the states are codewords, of so many bits

    @cached_property
    def positions(self) -> "torch.Tensor":
        """Returns the tokens of the rows, int64 (answers, num_kv_heads, rows). A row that is no single token is told by
        its place among those of the answer."""
        if not bool((self.tokens < 0).any()):
            return self.tokens
        first = (self.tokens == ABSENT).all(1).sum(-1)[:, None, None]
        places = torch.arange(self.tokens.shape[2], device=self.tokens.device) - first
        return torch.where(self.tokens < 0, places, self.tokens)

    @cached_property
    def mean_and_spread(self) -> "tuple[torch.Tensor, torch.Tensor]":
        """Returns mean and standard deviation over the rows that are there of an answer: (answers, 1, 1, 1) each."""
        present = (self.tokens != ABSENT)[..., None]
        dims, size = (1, 2, 3), self.states.shape[-1]
        count = present.sum(dims, keepdim=True).double() * size
        states = self.states.double().masked_fill(~present, 0.0)
        mean = states.sum(dims, keepdim=True) / count
        squares = (states - mean).square().masked_fill(~present, 0.0).sum(dims, keepdim=True)
        return mean.float(), (squares / (count - 1)).sqrt().float()

    def draw(self, distribution: Distribution, what: str, *channels: int) -> "torch.Tensor":
        """Draws a number for each row, or each channel of it, for one use: (answers, num_kv_heads, rows, *channels)."""
        return self.draw_at(self.positions, distribution, f"{self.layer}/{self.step}/{what}", *channels)

    def draw_at(
        self, positions: "torch.Tensor", distribution: Distribution, what: str, *channels: int
    ) -> "torch.Tensor":
        """Draws numbers for these positions of each answer, with one call for all answers of an example and seed."""
        alike: dict[str, list[int]] = defaultdict(list)
        for number, situation in enumerate(self.situations):
            alike[f"{situation.seed}/{situation.example_id}/{what}"].append(number)
        if len(alike) == 1:
            return draw(distribution, next(iter(alike)), positions, *channels)
        drawn = torch.empty(*positions.shape, *channels, device=positions.device)
        for key, numbers in alike.items():
            drawn[numbers] = draw(distribution, key, positions[numbers], *channels)
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
    hits_all: bool = False  # it chooses by itself: every value that it is aimed at goes through ``corrupt``


@dataclass
class FaultTreatment:
    """Damages the caches of some answers as a fault and its options say."""

    fault: Fault
    options: FaultOptions
    situations: Sequence[Situation]  # by answer
    # What stood where a transient fault has hit, by layer and tensor.
    _clean: "dict[tuple[int, States], Clean]" = field(default_factory=dict)
    _codewords: QuantisedRows | None = None  # whose codewords it damages instead of the rows that are read
    _codeword_bits: Mapping[States, int] = field(default_factory=dict)

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

    def write(
        self, layer: int, layers: int, keys: "torch.Tensor", values: "torch.Tensor", first: int
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        """Returns what is written instead of the keys and values of new tokens, shape (num_kv_heads, tokens, head_dim)
        each, in one of so many layers. ``first``: the position of the first one."""
        if layer not in self.options.layers_of(layers):
            return keys, values
        tokens = (first + torch.arange(keys.shape[1], device=keys.device)).expand(1, len(keys), -1)
        states: dict[States, torch.Tensor] = {"keys": keys, "values": values}
        for tensor in TENSORS[self.options.tensor]:
            site = self._site([0], layer, tensor, BEFORE_THE_QUESTION, tokens, states[tensor][None])
            hit = self._hit(site)
            if bool(hit.any()):
                states[tensor] = torch.where(hit, self._damaged(site, hit), site.states)[0]
        return states["keys"], states["values"]

    def _act(self, cache: CacheRows, step: int) -> None:
        self.restore(cache)
        if self._codewords:
            cache = self._codewords.codewords(cache)
        if self.options.phase == "step" and step != self.options.step:
            return
        if self.options.phase == "resident" and step != BEFORE_THE_QUESTION:
            return
        for layer in self.options.layers_of(cache.layers):
            tokens = cache.tokens(layer)
            for tensor in TENSORS[self.options.tensor]:
                states = getattr(cache, tensor)(layer)
                site = self._site(cache.answers, layer, tensor, step, tokens, states)
                hit = self._hit(site)
                rows = hit.any(-1)
                if not bool(rows.any()):
                    continue
                if self.options.persistence == "transient":
                    self._clean[layer, tensor] = Clean(tuple(cache.answers), cache.lengths(layer), states)
                cache.write(layer, rows=rows, **{tensor: self._damaged(site, hit)})

    def _site(
        self,
        answers: Sequence[int],
        layer: int,
        tensor: States,
        step: int,
        tokens: "torch.Tensor",
        states: "torch.Tensor",
    ) -> Site:
        situations = [self.situations[answer] for answer in answers]
        shares = [one.level.value if self.options.rate is None else self.options.rate for one in situations]
        rates = torch.tensor(shares, dtype=torch.float64, device=states.device)
        bits = self._codeword_bits.get(tensor)
        return Site(situations, self.options, layer, tensor, step, tokens, states, rates.view(-1, 1, 1, 1), bits)

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

    def _hit(self, site: Site) -> "torch.Tensor":
        """Tells which values are hit: bool (answers, num_kv_heads, rows, 1 or head_dim)."""
        options, (answers, heads, _, size) = self.options, site.states.shape
        rates = site.rates.float()
        if self.fault.hits_all or options.unit == "bit":
            hit = (rates > 0).expand(*site.positions.shape, 1)
        elif options.unit == "token":
            # One number for a token, in whatever place of a head it stands: heads may keep different tokens.
            drawn = site.draw_at(site.positions.reshape(answers, 1, -1), "uniform", f"{site.step}/tokens")
            hit = drawn.view(answers, heads, -1, 1) < rates
        elif options.unit == "row":
            hit = site.draw("uniform", "rows")[..., None] < rates
        else:
            hit = site.draw("uniform", f"values of {site.tensor}", size) < rates
        if options.tokens != "all":
            hit = hit & aimed_at(options.tokens, site.situations, site.positions)[..., None]
        if len(chosen := options.heads_of(heads)) < heads:
            of_heads = torch.zeros(heads, dtype=torch.bool, device=hit.device)
            of_heads[list(chosen)] = True
            hit = hit & of_heads[:, None, None]
        return hit


@dataclass(frozen=True)
class Clean:
    """Holds the rows of some answers as they were before a transient fault."""

    answers: tuple[int, ...]
    lengths: "torch.Tensor"  # as :meth:`CacheRows.lengths` gives them, like the states
    states: "torch.Tensor"

    def with_copies(self, copies: Mapping[int, int]) -> "Clean":
        rows = [*range(len(self.answers)), *(self.answers.index(answer) for answer in copies.values())]
        return Clean((*self.answers, *copies), self.lengths[rows], self.states[rows])

    def over(self, states: "torch.Tensor", answers: Sequence[int], lengths: "torch.Tensor") -> "torch.Tensor":
        """Returns the rows of those answers that are left: these, and behind them newer ones, which are clean."""
        left = torch.tensor([self.answers.index(answer) for answer in answers], device=states.device)
        before, (_, heads, rows, size) = self.lengths[left][:, None], states.shape
        place = torch.arange(rows, device=states.device) - (rows - lengths[:, None])  # counted from the answer's first
        earlier = place + self.states.shape[2] - before
        index = earlier.clamp(0, self.states.shape[2] - 1)[:, None, :, None].expand(-1, heads, -1, size)
        known = (place >= 0) & (place < before)
        return torch.where(known[:, None, :, None], self.states[left].gather(2, index), states)


def aimed_at(tokens: str, situations: Sequence[Situation], positions: "torch.Tensor") -> "torch.Tensor":
    """Tells which rows hold tokens that a fault is aimed at: bool, of the shape of ``positions``."""
    if first := FIRST.fullmatch(tokens):
        return positions < int(first[1])
    masks = torch.stack([_tokens_of(tokens, situation) for situation in situations]).to(positions.device)
    index = positions.clamp(0, masks.shape[1] - 1).flatten(1)
    hit: torch.Tensor = masks.gather(1, index).view_as(positions)
    return hit & (positions < masks.shape[1])


def _tokens_of(tokens: str, situation: Situation) -> "torch.Tensor":
    """Tells which tokens of the context are evidence, answer, other than evidence, or as many random ones: bool."""
    evidence, answer = torch.zeros(2, situation.context_length, dtype=torch.bool).unbind()
    evidence[list(situation.evidence_tokens)] = True
    answer[list(situation.answer_tokens)] = True
    if tokens != "random":
        return {"evidence": evidence, "answer": answer, "other": ~evidence}[tokens]
    every = torch.arange(situation.context_length)[None]
    order = draw("uniform", f"{situation.seed}/{situation.example_id}/as many", every)[0]
    order[evidence] = 2.0
    drawn = torch.zeros_like(evidence)
    drawn[order.argsort()[: len(situation.evidence_tokens)]] = True
    return drawn & ~evidence
