"""Writes answers token by token, in one loop for every kind of cache."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch.nn import functional as F

from kvbench.engine.treat.branch import Branch, Trace
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import AnswerEnds
from kvbench.system.errors import KVBenchError
from policies import FULL, CacheRows


@dataclass(frozen=True)
class FinalCache:
    """Describes the cache at the end of an answer whose press acts while it is written."""

    # By layer that presses compress bool (num_kv_heads, seq_len), which tokens of the context
    # survive; None where the press rewrites.
    keep: tuple[torch.Tensor, ...] | None
    rows: int  # of keys over all heads of these layers, with the rows of question and answer
    tokens: int  # that the model read
    digest: str  # a hash of the cache


@dataclass(frozen=True)
class GoldTokens:
    """Tells of each token of a right answer, in their order, how likely it is behind those before
    it."""

    # Its negative log-likelihood; infinite or NaN where a damaged cache makes it so.
    nats: tuple[float, ...]
    right: tuple[bool, ...]  # it is the most likely token

    @property
    def mean_nats(self) -> float | None:
        """Returns the mean over the tokens, or ``None`` where it is no number."""
        mean = sum(self.nats) / len(self.nats)
        return mean if math.isfinite(mean) else None

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
    """Notes of each token of right answers how unlikely it is, in nats, and whether it is the most
    likely one.

    ``golds``: by answer, its tokens; none where nothing is measured. ``forced``: by answer, whether
    its tokens are passed one by one; of all others, the tokens after the first come by :meth:`add`.
    """

    def __init__(
        self, golds: Sequence[Sequence[int]], forced: Sequence[bool], device: torch.device
    ) -> None:
        self.device = device
        self.lengths = [len(gold) for gold in golds]
        # One column at least, from which targets are gathered where nothing is measured.
        self._longest = max(1, *self.lengths)
        padded = []
        counted = []  # how many of the tokens are counted in the steps of the loop
        for gold, by_step in zip(golds, forced, strict=True):
            padding = [0] * (self._longest - len(gold))
            padded.append([*gold, *padding])
            counted.append(len(gold) if by_step else min(1, len(gold)))
        self._tokens = torch.tensor(padded, device=device)
        self._counted = torch.tensor(counted, device=device)
        self._steps = max(counted)
        # By answer and place; the last column takes what is not counted, as to leave it out would
        # wait for the device.
        shape = len(golds), self._longest + 1
        self._nats = torch.zeros(shape, dtype=torch.float64, device=device)
        self._right = torch.zeros(shape, dtype=torch.bool, device=device)

    def see(self, step: int, numbers: torch.Tensor, logits: torch.Tensor) -> None:
        """Takes the logits, shape (answers, vocabulary), from which token ``step`` of these answers
        is chosen."""
        if step < self._steps:
            places = torch.full_like(numbers, step)
            counted = self._counted[numbers] > step
            self.add(numbers, places, logits, self.targets(step, numbers), counted)

    def add(
        self,
        numbers: torch.Tensor,
        places: torch.Tensor,
        logits: torch.Tensor,
        targets: torch.Tensor,
        counted: torch.Tensor,
    ) -> None:
        """Takes logits, shape (tokens, vocabulary), and the tokens that follow, each with its place
        in the right answer; ``counted``: bool (tokens,)."""
        # In float32: bfloat16 would round a likelihood of 10 nats to a sixteenth of a nat.
        nats = F.cross_entropy(logits.float(), targets, reduction="none")
        places = torch.where(counted, places, self._longest)
        self._nats[numbers, places] = nats.double()
        # NaN counts as the largest.
        self._right[numbers, places] = (logits.argmax(-1) == targets) & nats.isfinite()

    def targets(self, step: int, numbers: torch.Tensor) -> torch.Tensor:
        """Returns token ``step`` of the right answers, int64 of the shape of ``numbers``, and
        anything behind their ends."""
        return self._tokens[numbers, min(step, self._tokens.shape[1] - 1)]

    def tokens(self) -> list[GoldTokens | None]:
        """Returns what is noted of each answer; ``None`` where nothing is measured."""
        tokens: list[GoldTokens | None] = []
        notes = zip(self.lengths, self._nats.tolist(), self._right.tolist(), strict=True)
        for length, nats, right in notes:
            if length:
                tokens.append(GoldTokens(tuple(nats[:length]), tuple(right[:length])))
            else:
                tokens.append(None)
        return tokens


# Of such logits every sampler chooses some token, so that the answer looks like one: it is a
# failure, with its reason.

WIDER = {"float16": "--dtype bfloat16 or --dtype float32", "bfloat16": "--dtype float32"}


class OverflowingModelError(KVBenchError):
    """A model overflows with its full cache, so that nothing can be asked of it."""


def fault_of_model(model: LoadedModel) -> str:
    """Says that a model overflows with its full cache, and what to do."""
    wider = WIDER.get(model.dtype_name)
    advice = f"use {wider}" if wider else "its weights are damaged, as no dtype is wider"
    return f"the logits of {model.name} are infinite or NaN with the full cache in {model.dtype_name}: {advice}"


def fail_overflowing(model: LoadedModel, trace: Trace, generations: Sequence[Generation]) -> None:
    """Records a failure of every branch with an answer that overflows. If the full cache overflows,
    all branches fail, for the reason that is the model's, whatever their presses said of the NaN
    that they were handed. A fault that is injected may make any number: its answers stand, and are
    counted as detected."""
    overflowing = [generation.branch for generation in generations if not generation.finite]
    failed = any(branch.error for branch in trace.branches)
    # The check below reads the whole cache, and is made only where something went wrong.
    if not (overflowing or failed):
        return
    # If the prefill itself overflows, NaN stands in the cache before any press has acted.
    is_finite = all(bool(states.isfinite().all()) for states in (*trace.keys, *trace.values))
    if not is_finite or FULL in [branch.treatment.policy.name for branch in overflowing]:
        for branch in trace.branches:
            _fail(branch, fault_of_model(model))
        return
    overflow = f"the logits of {model.name} are infinite or NaN in {model.dtype_name}"
    for branch in overflowing:
        policy = branch.treatment.policy
        if not policy.treatment.corrupts:
            failure = f"{policy.name} failed while decoding"
            _fail(branch, f"{failure}: with what it leaves of the cache, {overflow}")


def _fail(branch: Branch, reason: str) -> None:
    branch.error, branch.layers, branch.press_cache = reason, [], None


@dataclass(frozen=True)
class PendingAnswer:
    """Describes one answer to decode."""

    branch: Branch
    question: int  # its number in the prompt
    longest: int  # tokens that it may have
    gold: tuple[int, ...] = ()  # the tokens of the right answer, where their likelihood is measured
    forced: bool = False  # whether it passes the right answer instead of sampled tokens


class Source(Protocol):
    """Computes the logits of some answers, fewer and fewer as answers end."""

    answers: Sequence[PendingAnswer]

    def read(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Reads the questions. Yields numbers of answers, int64 (answers,), and the logits of their
        first tokens, shape (answers, vocabulary)."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Passes one more token of every answer that is still written, int64 (answers,). Returns
        the logits of the next tokens, shape (answers, vocabulary)."""

    def treat(self, step: int, numbers: torch.Tensor, done: torch.Tensor) -> None:
        """Has the step treatments of these answers act after a step, but of those that are done:
        nobody reads on. ``numbers``: int64 (answers,). ``done``: bool, of the same shape."""

    def keep_answering(self, going: torch.Tensor) -> None:
        """Drops answers that have ended. ``going``: bool (answers,), whether each of the answers so
        far is still written."""

    def cache_rows(self, number: int) -> CacheRows:
        """Returns the rows that one answer reads while it is written."""


@dataclass(frozen=True)
class Step:
    """Shows what is known when the next tokens of some answers are chosen; observers see answers
    that go on alone.

    ``number``: which token of an answer it is, from 0 on. ``logits``: shape (answers, vocabulary).
    ``numbers``: of the answers. The answers of one wave may come in several parts. ``latest``:
    int64 (answers,), the tokens before, or ``None`` where the question is. Read, and do not write.
    """

    source: Source
    number: int
    numbers: torch.Tensor
    logits: torch.Tensor
    latest: torch.Tensor | None = None

    @cached_property
    def answers(self) -> list[PendingAnswer]:
        """Returns the answers in the order of the logits. A sampler may see some that have ended
        already."""
        return [self.source.answers[number] for number in self.numbers.tolist()]

    def cache(self, place: int) -> CacheRows:
        """Returns the rows that the answer at this place, the only one of them, has read for its
        logits."""
        return self.source.cache_rows(int(self.numbers[place]))


# Chooses the next tokens, int64 (answers,). One that draws does so by answer and step, not by place
# in the batch.
Sampler = Callable[[Step], torch.Tensor]


class Observer(Protocol):
    """Sees what is decoded and changes nothing."""

    def see(self, step: Step) -> None:
        """Is called at every step, before tokens are chosen. It does not see right answers that are
        passed at once."""


def greedy(step: Step) -> torch.Tensor:
    """Chooses the most likely tokens, int64 (answers,)."""
    best: torch.Tensor = step.logits.argmax(-1)
    return best


@dataclass(frozen=True)
class Decoding:
    """Says how answers are decoded."""

    steps: int  # tokens of an answer at most
    sampler: Sampler = greedy
    observers: Sequence[Observer] = ()
    gold: bool = False  # whether the likelihood of the right answers is measured


@dataclass(frozen=True)
class Written:
    """Holds the tokens of every answer."""

    tokens: torch.Tensor  # int64 (answers, most tokens); what follows an end token means nothing
    # Bool (answers,): no logit that a token was chosen from was infinite or NaN.
    finite: torch.Tensor


class _EndTest:
    """Tells which tokens end their answers, as :meth:`AnswerEnds.until_end` does afterwards."""

    def __init__(self, ends: AnswerEnds, device: torch.device) -> None:
        self.tokens = torch.tensor(ends.tokens, dtype=torch.long, device=device)
        self.sentence = torch.tensor(ends.sentence, dtype=torch.long, device=device)
        self.initials = torch.tensor(ends.initials, dtype=torch.long, device=device)

    def __call__(self, tokens: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
        """Returns bool (answers,). ``before``: the token before each, ``None`` where the question
        is."""
        ended = torch.isin(tokens, self.tokens)
        if not len(self.sentence):
            return ended
        sentence = torch.isin(tokens, self.sentence)
        if before is not None:
            sentence = sentence & ~torch.isin(before, self.initials)
        return ended | sentence


def write_answers(
    source: Source,
    decoding: Decoding,
    likelihood: GoldLikelihood,
    ends: AnswerEnds,
    look_every: int,
) -> Written:
    """Writes every answer. Those that have ended are left out every ``look_every`` steps, and where
    some have all the tokens that they may have: behind these a cache has no room for another step.
    Where observers look on, they are left out at every step, as an observer sees nothing that is
    behind the end of an answer."""
    device = likelihood.device
    look_every = 1 if decoding.observers else look_every
    is_end = _EndTest(ends, device)
    lengths = [answer.longest for answer in source.answers]  # at most, in tokens
    full_at, longest = set(lengths), max(lengths)
    limits = torch.tensor(lengths, device=device)
    is_forced = [answer.forced for answer in source.answers]
    forced, any_forced = torch.tensor(is_forced, device=device), any(is_forced)
    finite = torch.ones(len(source.answers), dtype=torch.bool, device=device)

    def choose(
        step: int,
        numbers: torch.Tensor,
        logits: torch.Tensor,
        latest: torch.Tensor | None = None,
        ended_before: torch.Tensor | bool = False,
    ) -> torch.Tensor:
        likelihood.see(step, numbers, logits)
        seen = Step(source, step, numbers, logits, latest)
        for observer in decoding.observers:
            observer.see(seen)
        least, largest = logits.aminmax(dim=-1)  # which pass infinity and NaN on
        # Between two looks ended answers are passed along, and what comes of their tokens is no
        # fault.
        finite[numbers] &= (least.isfinite() & largest.isfinite()) | ended_before
        tokens = decoding.sampler(seen)
        if not any_forced:
            return tokens
        return torch.where(forced[numbers], likelihood.targets(step, numbers), tokens)

    def has_ended(
        step: int, numbers: torch.Tensor, tokens: torch.Tensor, before: torch.Tensor | None = None
    ) -> torch.Tensor:
        # A right answer that is passed goes on through a token that would end a written one.
        ended = is_end(tokens, before)
        return (ended & ~forced[numbers] if any_forced else ended) | (limits[numbers] <= step + 1)

    numbers = torch.arange(len(source.answers), device=device)
    latest = torch.zeros_like(numbers)
    for part, logits in source.read():
        latest[part] = choose(0, part, logits)
    answer_tokens = latest.new_zeros(len(latest), longest)
    answer_tokens[:, 0] = latest
    done = has_ended(0, numbers, latest)
    source.treat(0, numbers, done)
    for step in range(1, longest):
        # A look at the flags waits for the device, which is why it is not taken at every step.
        if (step % look_every == 0 or step in full_at) and bool(done.any()):
            going = ~done
            source.keep_answering(going)
            numbers, latest, done = numbers[going], latest[going], done[going]
        if not len(numbers):
            break
        before = latest
        latest = choose(step, numbers, source.step(before), before, done)
        answer_tokens[numbers, step] = latest
        done |= has_ended(step, numbers, latest, before)
        source.treat(step, numbers, done)
    return Written(answer_tokens, finite)
