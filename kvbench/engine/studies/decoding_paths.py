"""Walks two ways to compute the same logits over an answer. Either both are given the same tokens
(*teacher-forced*), or each goes on from its own (*free-running*); figures of the two are never
mixed, as behind the first difference the prefixes differ."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from policies.declaration.draws import derive_seed

TOP_K, TOP_P, TEMPERATURE = 50, 0.9, 0.7
Choose = Callable[[torch.Tensor, int], int]  # from logits of shape (vocabulary,), at a step


@dataclass(frozen=True)
class Difference:
    """Holds how far a second row of logits is from a first; all is NaN where a logit of either is
    not finite, and the most likely tokens are not compared."""

    kl: float  # KL(first || second), in nats
    js: float  # the divergence of Jensen and Shannon, in nats: at most ln 2
    largest: float  # |log p - log q|, over the vocabulary, in nats
    same_top: bool  # both have the same most likely token
    margin: float  # of the first row: its largest logit less the next


UNKNOWN = Difference(math.nan, math.nan, math.nan, False, math.nan)


def difference(first: torch.Tensor, second: torch.Tensor) -> Difference:
    """Compares two rows of logits of shape (vocabulary,), which may be of any dtype and lie on any
    device."""
    if not bool(torch.isfinite(first).all() & torch.isfinite(second).all()):
        return UNKNOWN
    log_p, log_q = log_probabilities(first), log_probabilities(second)
    best, next_best = first.double().topk(2).values.tolist()
    return Difference(
        kl=divergence(log_p, log_q),
        js=jensen_shannon(log_p, log_q),
        largest=float((log_p - log_q).abs().max()),
        same_top=int(first.argmax()) == int(second.argmax()),
        margin=best - next_best,
    )


def log_probabilities(row: torch.Tensor) -> torch.Tensor:
    """Returns the logarithms of the probabilities that logits, shape (vocabulary,), stand for, in
    float64 and of the same shape."""
    return torch.log_softmax(row.double(), -1)


def divergence(log_p: torch.Tensor, log_q: torch.Tensor) -> float:
    """Returns KL(p || q) in nats, for log probabilities of shape (outcomes,).

    It adds up p (d + exp(-d) - 1) with d = log p - log q, which comes to the same as p d, since p
    and q both sum to 1. No term is negative, so that nothing cancels: rounding of float32 moves log
    p by 1e-6, the divergence is 1e-12, and a sum over p d would have an error of the same size.
    Equal rows give exactly 0."""
    apart = log_p - log_q
    p = log_p.exp()
    # Where p is far below q, exp(-d) may be infinite, and p 0.
    far_below = p * (apart - 1) + log_q.exp()
    near = p * (apart + torch.expm1(-apart))
    terms = torch.where(apart < -1, far_below, near)
    return float(terms.sum().clamp(min=0.0))


def jensen_shannon(log_p: torch.Tensor, log_q: torch.Tensor) -> float:
    """Returns the mean divergence of p and of q, log probabilities of shape (vocabulary,), from
    their mean, in nats: the same in both directions, and at most ln 2. [J. Lin, IEEE Transactions
    on Information Theory 37 (1991), 145-151]"""
    apart = (log_p - log_q).abs()
    # Exactly log p where both are equal.
    log_mean = torch.maximum(log_p, log_q) + torch.log1p(torch.expm1(-apart) / 2)
    both = (divergence(log_p, log_mean) + divergence(log_q, log_mean)) / 2
    return min(both, math.log(2))  # which rounding may exceed where p and q share nothing


def sampler(name: str, seed: int, question_id: str, draw: int) -> Choose:
    """Returns a way to choose: ``greedy``, ``top_k`` (50 tokens at temperature 0.7) or ``top_p``
    (0.9 at 0.7).

    Two paths at one step meet the same random numbers, so that they choose otherwise only where
    their logits differ. The token is the one with the largest p / E, where E is exponential noise
    by token: as torch draws, and as the Gumbel trick does. Another rule, the first token whose
    cumulative p passes a random number, would let the order of two close tokens decide."""
    if name == "greedy":
        return lambda row, _: int(row.argmax())

    def choose(row: torch.Tensor, step: int) -> int:
        if not row.isfinite().all():
            return int(row.argmax())  # nothing can be drawn; the answer is compared with none
        log_p = log_probabilities(row / TEMPERATURE)
        least = _least_chosen(log_p, name)
        random = np.random.default_rng(derive_seed(seed, question_id, f"{name} {draw} {step}"))
        # Drawn by numpy on the host: every device and every dtype meets the same noise.
        noise = torch.from_numpy(random.exponential(size=len(row))).to(row.device)
        among = torch.where(log_p >= least, log_p, -torch.inf)
        return int((among - noise.log()).argmax())

    return choose


def _least_chosen(log_p: torch.Tensor, name: str) -> torch.Tensor:
    """Returns the lowest log probability that a token may have to be drawn, of those of all tokens,
    (vocabulary,)."""
    ordered = log_p.sort(descending=True).values
    if name == "top_k":
        return ordered[min(TOP_K, len(ordered)) - 1]
    # The fewest most likely tokens that have 0.9 together. On the processor: a GPU has no
    # deterministic running sum.
    p = ordered.cpu().exp()
    before = p.cumsum(-1) - p
    count = int((before < TOP_P).sum())
    return ordered[count - 1]


CHUNK = 32  # tokens that the null row reads at once
# Of the null row: what computing otherwise moves does not depend on how far an answer is.
NULL_STEPS = 3


class Path(Protocol):
    """Computes the logits behind all tokens that it was given so far, of shape (vocabulary,)."""

    def read(self, tokens: Sequence[int]) -> torch.Tensor: ...


@dataclass
class Cached:
    """Cache on: reads new tokens on the cache of those before."""

    network: PreTrainedModel
    cache: DynamicCache = field(default_factory=DynamicCache)

    def read(self, tokens: Sequence[int]) -> torch.Tensor:
        return read_logits(self.network, tokens, self.cache)


@dataclass
class Whole:
    """Cache off: reads the whole sequence anew whenever it is given a token."""

    network: PreTrainedModel
    chunk: int | None = None  # tokens that are read at once; None: all
    ids: list[int] = field(default_factory=list)

    def read(self, tokens: Sequence[int]) -> torch.Tensor:
        self.ids += tokens
        # Chunks of one reading see those before; the next reading begins with nothing.
        cache = DynamicCache()
        size = self.chunk or len(self.ids)
        for start in range(0, len(self.ids), size):
            row = read_logits(self.network, self.ids[start : start + size], cache)
        return row


@torch.no_grad()
def read_logits(network: PreTrainedModel, ids: Sequence[int], cache: DynamicCache) -> torch.Tensor:
    """Reads tokens behind those of a cache, which it adds to. Returns the logits behind the last
    token, shape (vocabulary,)."""
    tokens = torch.tensor([ids], device=network.device)
    row: torch.Tensor = network(input_ids=tokens, past_key_values=cache, logits_to_keep=1).logits[
        0, -1
    ]
    return row


@dataclass(frozen=True)
class WalkPlan:
    """Holds what both paths stand behind, and how they go on."""

    ids: Sequence[int]  # of the prompt
    choose: Choose
    steps: int  # tokens at most
    ends: Collection[int] = ()  # tokens that end an answer
    # The tokens that follow, teacher-forced; without any, those that the first path chooses.
    forced_tokens: Sequence[int] = ()


@dataclass
class Walk:
    """Holds what two paths did at each step; free-running, the steps that both have are
    compared."""

    tokens: list[int] = field(default_factory=list)  # that the first path chose
    other_tokens: list[int] = field(default_factory=list)  # that the second chose
    differences: list[Difference] = field(default_factory=list)


def teacher_forced(first: Path, second: Path, plan: WalkPlan) -> Walk:
    """Walks both paths over the same tokens, up to an end token that the first path chooses."""
    walk = Walk()
    steps = plan.steps
    if plan.forced_tokens:
        steps = min(steps, len(plan.forced_tokens))
    read = plan.ids
    for step in range(steps):
        row, other_row = first.read(read), second.read(read)
        walk.differences.append(difference(row, other_row))
        token = plan.choose(row, step)
        walk.tokens.append(token)
        # What the second would choose is noted and not read: both stand behind the first's tokens.
        walk.other_tokens.append(plan.choose(other_row, step))
        if plan.forced_tokens:
            token = plan.forced_tokens[step]
        elif token in plan.ends:
            break
        read = [token]
    return walk


def free_running(first: Path, second: Path, plan: WalkPlan) -> Walk:
    """Lets each of two paths go on from the tokens that it chooses itself, up to an end token."""
    walk = Walk()
    going = [(first, walk.tokens), (second, walk.other_tokens)]
    for step in range(plan.steps):
        rows = [path.read(written[-1:] or plan.ids) for path, written in going]
        if len(rows) == 2:
            walk.differences.append(difference(*rows))
        for row, (_, written) in zip(rows, going, strict=True):
            written.append(plan.choose(row, step))
        # At a step at which one path alone goes on there is nothing to compare.
        going = [(path, written) for path, written in going if written[-1] not in plan.ends]
    return walk


def forced_walk(network: PreTrainedModel, plan: WalkPlan) -> Walk:
    return teacher_forced(Cached(network), Whole(network), plan)


def null_walk(network: PreTrainedModel, plan: WalkPlan, tokens: Sequence[int]) -> Walk:
    """Walks cache off, all at once and in chunks, over the first tokens of an answer: two
    computations of the same."""
    return teacher_forced(
        Whole(network), Whole(network, CHUNK), replace(plan, steps=NULL_STEPS, forced_tokens=tokens)
    )


def same_walk(network: PreTrainedModel, plan: WalkPlan, tokens: Sequence[int]) -> Walk:
    """Walks cache on twice over an answer. Both do the very same: whatever they differ by is chance
    of the device."""
    return teacher_forced(Cached(network), Cached(network), replace(plan, forced_tokens=tokens))


def free_walk(network: PreTrainedModel, plan: WalkPlan, forced: Walk) -> Walk:
    """Lets cache on and cache off each go on from its own tokens. Where both chose the same tokens
    and were ``forced`` on these, that is the same computation, which is not repeated."""
    if not plan.forced_tokens and forced.tokens == forced.other_tokens:
        return forced
    return free_running(Cached(network), Whole(network), plan)
