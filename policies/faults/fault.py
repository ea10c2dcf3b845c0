"""A fault damages rows of the cache. Which rows, and when, is the same for every kind; how is what a kind declares."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from policies.declaration.lazy import LazyModule
from policies.declaration.levels import RATE
from policies.declaration.policy import Situation
from policies.declaration.shape import ModelShape
from policies.declaration.steps import ABSENT, TENSORS, CacheRows, States
from policies.faults.draws import Distribution, draw
from policies.faults.options import FIRST, FaultOptions

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

BEFORE_THE_QUESTION = 0
# The papers that the kinds are from.
MORE_ROBUST = "KV Cache is More Robust Than You Think"
EFFECT_OF_ERROR = "Effect of KV Cache Error on Inference Accuracy"


@dataclass(frozen=True)
class Site:
    """Describes the rows of one layer and tensor that a fault may damage."""

    situation: Situation
    options: FaultOptions
    layer: int
    tensor: States
    step: int  # 0 before the question is read, 1 before the first token of the answer is, and so on
    tokens: "torch.Tensor"  # of the rows, as :meth:`CacheRows.tokens` gives them
    states: "torch.Tensor"  # as they are: (num_kv_heads, rows, head_dim)
    rate: float  # the share of the units that are hit

    @cached_property
    def positions(self) -> "torch.Tensor":
        """Returns the tokens of the rows, int64 (num_kv_heads, rows). A row that is no single token is told by its
        place."""
        return torch.where(self.tokens < 0, torch.arange(self.tokens.shape[1], device=self.tokens.device), self.tokens)

    @property
    def present(self) -> "torch.Tensor":
        """Returns the rows that are there, of all heads: (rows, head_dim)."""
        return self.states[self.tokens != ABSENT]

    def draw(self, distribution: Distribution, what: str, *channels: int) -> "torch.Tensor":
        """Draws a number for each row, or each channel of it, for one use: (num_kv_heads, rows, *channels)."""
        key = f"{self.situation.seed}/{self.situation.example_id}/{self.layer}/{self.step}/{what}"
        return draw(distribution, key, self.positions, *channels)

    def draw_like(self, distribution: Distribution) -> "torch.Tensor":
        """Draws a number for each value of the rows, others for keys than for values."""
        return self.draw(distribution, self.tensor, self.states.shape[-1]).to(self.states.dtype)


Corrupt = Callable[[Site], "torch.Tensor"]


@dataclass(frozen=True)
class Fault:
    """Declares a kind of fault."""

    name: str
    paper: str
    description: str
    # Returns what each row would be if the fault hit all of it, of the shape and type of ``Site.states``.
    corrupt: Corrupt
    options: type[FaultOptions] = FaultOptions
    default_rates: str = RATE.default  # as ``--rates`` takes them
    rates_below: float | None = None  # it means nothing at these and higher ones
    # Whether infinity or NaN may come of it in numbers that are neither.
    may_overflow: Callable[[FaultOptions], bool] = lambda options: False
    # Raises :class:`PolicyError` for options that a model has not, beside its layers and heads.
    check_dtype: Callable[[FaultOptions, str], object] = lambda options, dtype: None
    needs_donor: bool = False  # it takes rows of another context (``Situation.donor``)
    hits_all: bool = False  # it chooses by itself: every value that it is aimed at goes through ``corrupt``

    def check_model(self, options: FaultOptions, shape: ModelShape) -> None:
        """Raises :class:`PolicyError` in one line for layers, heads or bits that a model has not."""
        options.layers_of(shape.layers)
        options.heads_of(shape.kv_heads)
        self.check_dtype(options, shape.dtype)


@dataclass
class FaultTreatment:
    """Damages the cache of one branch as a fault and its options say."""

    fault: Fault
    options: FaultOptions
    situation: Situation
    # What stood where a transient fault has hit, by layer and tensor.
    _clean: dict[tuple[int, States], "torch.Tensor"] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Returns the share of the units that are hit."""
        return self.situation.level.value if self.options.rate is None else self.options.rate

    def after_prefill(self, cache: CacheRows) -> None:
        self._act(cache, BEFORE_THE_QUESTION)

    def after_step(self, cache: CacheRows, step: int) -> None:
        self._act(cache, step + 1)

    def write(
        self, layer: int, layers: int, keys: "torch.Tensor", values: "torch.Tensor", first: int
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        """Returns what is written instead of the keys and values of new tokens, shape (num_kv_heads, tokens, head_dim)
        each, in one of so many layers. ``first``: the position of the first one."""
        if layer not in self.options.layers_of(layers):
            return keys, values
        tokens = (first + torch.arange(keys.shape[1], device=keys.device)).expand(len(keys), -1)
        written: dict[States, torch.Tensor] = {"keys": keys, "values": values}
        for tensor in TENSORS[self.options.tensor]:
            site = self._site(layer, tensor, BEFORE_THE_QUESTION, tokens, written[tensor])
            written[tensor] = self._damaged(site)
        return written["keys"], written["values"]

    def _act(self, cache: CacheRows, step: int) -> None:
        self.restore(cache)
        if self.options.phase == "step" and step != self.options.step:
            return
        if self.options.phase == "resident" and step != BEFORE_THE_QUESTION:
            return
        for layer in self.options.layers_of(cache.layers):
            tokens = cache.tokens(layer)
            for tensor in TENSORS[self.options.tensor]:
                states = getattr(cache, tensor)(layer)
                damaged = self._damaged(self._site(layer, tensor, step, tokens, states))
                if damaged is states:
                    continue
                if self.options.persistence == "transient":
                    self._clean[layer, tensor] = states
                cache.write(layer, **{tensor: damaged})

    def _site(self, layer: int, tensor: States, step: int, tokens: "torch.Tensor", states: "torch.Tensor") -> Site:
        return Site(self.situation, self.options, layer, tensor, step, tokens, states, self.rate)

    def _damaged(self, site: Site) -> "torch.Tensor":
        """Returns the rows with what is hit of them; the very same where nothing is."""
        hit = self._hit(site)
        return torch.where(hit, self.fault.corrupt(site), site.states) if bool(hit.any()) else site.states

    def restore(self, cache: CacheRows) -> None:
        """Puts back what a transient fault has damaged; rows that are newer stand behind it and are clean."""
        for (layer, tensor), clean in self._clean.items():
            states = getattr(cache, tensor)(layer)
            states[:, : clean.shape[1]] = clean
            cache.write(layer, **{tensor: states})
        self._clean.clear()

    def _hit(self, site: Site) -> "torch.Tensor":
        """Tells which values are hit: bool (num_kv_heads, rows, 1 or head_dim)."""
        options, (heads, _, size) = self.options, site.states.shape
        if self.fault.hits_all or options.unit == "bit":
            drawn = torch.full_like(site.positions, float(self.rate == 0), dtype=torch.float32)[..., None]
        elif options.unit == "token":
            key = f"{self.situation.seed}/{self.situation.example_id}/{site.step}/tokens"
            # One number for a token, in whatever place of a head it stands: heads may keep different tokens.
            drawn = draw("uniform", key, site.positions.reshape(1, -1)).view(heads, -1, 1)
        elif options.unit == "row":
            drawn = site.draw("uniform", "rows")[..., None]
        else:
            drawn = site.draw("uniform", f"values of {site.tensor}", size)
        hit = (drawn < self.rate) & self._aimed(site.positions)[..., None]
        chosen = torch.zeros(heads, dtype=torch.bool, device=hit.device)
        chosen[list(options.heads_of(heads))] = True
        return hit & chosen[:, None, None]

    def _aimed(self, positions: "torch.Tensor") -> "torch.Tensor":
        """Tells which rows hold tokens that the fault is aimed at: bool, of the shape of ``positions``."""
        situation, tokens = self.situation, self.options.tokens
        if tokens == "all":
            return torch.ones_like(positions, dtype=torch.bool)
        if first := FIRST.fullmatch(tokens):
            return positions < int(first[1])
        evidence = torch.tensor(situation.evidence_tokens, dtype=torch.long, device=positions.device)
        if tokens == "answer":
            return torch.isin(
                positions, torch.tensor(situation.answer_tokens, dtype=torch.long, device=positions.device)
            )
        if tokens == "evidence":
            return torch.isin(positions, evidence)
        in_context = positions < situation.context_length
        other = in_context & ~torch.isin(positions, evidence)
        return other if tokens == "other" else other & torch.isin(positions, self._as_many(evidence))

    def _as_many(self, evidence: "torch.Tensor") -> "torch.Tensor":
        """Draws as many tokens as carry evidence from those that do not."""
        situation = self.situation
        every = torch.arange(situation.context_length)[None]
        order = draw("uniform", f"{situation.seed}/{situation.example_id}/as many", every)[0]
        order[evidence.cpu()] = 2.0
        return order.argsort()[: len(evidence)].to(evidence.device)
