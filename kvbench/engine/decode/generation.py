"""A generation holds what was decoded for one question from one branch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from kvbench.engine.treat.branch import Branch, Trace
from kvbench.models.load import LoadedModel
from kvbench.system.errors import KVBenchError
from policies import FULL


@dataclass(frozen=True)
class FinalCache:
    """Describes the cache at the end of an answer whose press acts while it is written."""

    # By layer that presses compress bool (num_kv_heads, seq_len), which tokens of the context survive; None where the
    # press rewrites.
    keep: tuple[torch.Tensor, ...] | None
    rows: int  # of keys over all heads of these layers, with the rows of question and answer
    tokens: int  # that the model read
    digest: str  # a hash of the cache


@dataclass(frozen=True)
class GoldTokens:
    """Tells of each token of a right answer, in their order, how likely it is behind those before it."""

    nats: tuple[float, ...]  # its negative log-likelihood; infinite or NaN where a damaged cache makes it so
    right: tuple[bool, ...]  # it is the most likely token

    @property
    def mean_nats(self) -> float | None:
        """Returns the mean over the tokens, or ``None`` where it is no number."""
        mean = sum(self.nats) / len(self.nats)
        return mean if math.isfinite(mean) else None

    def part(self, start: int, end: int) -> "GoldTokens":
        return GoldTokens(self.nats[start:end], self.right[start:end])

    @property
    def accuracy(self) -> float:
        return sum(self.right) / len(self.right)


@dataclass(frozen=True)
class Generation:
    """Holds the answer to one question."""

    branch: Branch
    question: int  # its number in the prompt
    token_ids: tuple[int, ...]  # with the end token, if one came
    ended: bool
    seconds: float  # an equal share of the time of all answers that were decoded together
    final_cache: FinalCache | None = None  # where a press acts while the answer is written
    finite: bool = True  # no logit that a token was chosen from was infinite or NaN
    halvings: int = 0  # how often waves had been halved by then, as memory ended
    gold: GoldTokens | None = None  # of the right answer, where it is measured

    @property
    def gold_nll(self) -> float | None:
        """Returns the mean negative log-likelihood of the right answer's tokens in nats."""
        return self.gold.mean_nats if self.gold else None


class GoldLikelihood:
    """Notes of each token of right answers how unlikely it is, in nats, and whether it is the most likely one.

    ``golds``: by answer, its tokens; none where nothing is measured. ``forced``: by answer, whether its tokens are
    passed one by one; of all others, the tokens after the first come by :meth:`add`.
    """

    def __init__(self, golds: Sequence[Sequence[int]], forced: Sequence[bool], device: torch.device) -> None:
        self.device = device
        self.lengths = [len(gold) for gold in golds]
        self._longest = max(1, *self.lengths)
        padded = [[*gold, *[0] * (self._longest - len(gold))] for gold in golds]
        self._tokens = torch.tensor(padded, device=device)
        # How many of the tokens are met in the steps of the loop.
        met = [length if by_step else min(1, length) for length, by_step in zip(self.lengths, forced, strict=True)]
        self._met = torch.tensor(met, device=device)
        self._steps = max(met)
        # By answer and place; the last column takes what is not counted, as to leave it out would wait for the device.
        shape = len(golds), self._longest + 1
        self._nats = torch.zeros(shape, dtype=torch.float64, device=device)
        self._right = torch.zeros(shape, dtype=torch.bool, device=device)

    def see(self, step: int, numbers: torch.Tensor, logits: torch.Tensor) -> None:
        """Takes the logits, shape (answers, vocabulary), from which token ``step`` of these answers is chosen."""
        if step < self._steps:
            places = torch.full_like(numbers, step)
            self.add(numbers, places, logits, self.targets(step, numbers), self._met[numbers] > step)

    def add(
        self,
        numbers: torch.Tensor,
        places: torch.Tensor,
        logits: torch.Tensor,
        targets: torch.Tensor,
        counted: torch.Tensor,
    ) -> None:
        """Takes logits, shape (tokens, vocabulary), and the tokens that follow, each with its place in the right
        answer; ``counted``: bool (tokens,)."""
        nats = F.cross_entropy(logits.float(), targets, reduction="none")
        places = torch.where(counted, places, self._longest)
        self._nats[numbers, places] = nats.double()
        self._right[numbers, places] = (logits.argmax(-1) == targets) & nats.isfinite()  # NaN counts as the largest

    def targets(self, step: int, numbers: torch.Tensor) -> torch.Tensor:
        """Returns token ``step`` of the right answers, and anything behind their ends."""
        return self._tokens[numbers, min(step, self._tokens.shape[1] - 1)]

    def tokens(self) -> list[GoldTokens | None]:
        """Returns what is noted of each answer; ``None`` where nothing is measured."""
        notes = zip(self.lengths, self._nats.tolist(), self._right.tolist(), strict=True)
        return [
            GoldTokens(tuple(nats[:length]), tuple(right[:length])) if length else None for length, nats, right in notes
        ]


# Of such logits every sampler chooses some token, so that the answer looks like one: it is a failure, with its reason.

WIDER = {"float16": "--dtype bfloat16 or --dtype float32", "bfloat16": "--dtype float32"}


class OverflowingModelError(KVBenchError):
    """A model overflows with its full cache, so that nothing can be asked of it."""


def fault_of_model(model: LoadedModel) -> str:
    """Says that a model overflows with its full cache, and what to do."""
    wider = WIDER.get(model.dtype_name)
    what = f"use {wider}" if wider else "its weights are damaged, as no dtype is wider"
    return f"the logits of {model.name} are infinite or NaN with the full cache in {model.dtype_name}: {what}"


def fail_overflowing(model: LoadedModel, trace: Trace, generations: Sequence[Generation]) -> None:
    """Records a failure of every branch with an answer that overflows. If the full cache overflows, all branches fail,
    for the reason that is the model's, whatever their presses said of the NaN that they were handed. A fault that is
    injected may make any number: its answers stand, and are counted as detected."""
    overflowing = [generation for generation in generations if not generation.finite]
    failed = any(branch.error for branch in trace.branches)
    if not (overflowing or failed):
        return
    if any(one.branch.treatment.policy.name == FULL for one in overflowing) or not _is_finite(trace):
        for branch in trace.branches:
            _fail(branch, fault_of_model(model))
        return
    for branch in (generation.branch for generation in overflowing):
        policy = branch.treatment.policy
        if not policy.corrupts:
            what = f"the logits of {model.name} are infinite or NaN in {model.dtype_name}"
            _fail(branch, f"{policy.name} failed while decoding: with what it leaves of the cache, {what}")


def _fail(branch: Branch, reason: str) -> None:
    branch.error, branch.layers, branch.press_cache = reason, [], None


def _is_finite(trace: Trace) -> bool:
    """Tells whether the model itself read the context without an overflow."""
    return all(bool(states.isfinite().all()) for states in (*trace.keys, *trace.values))
