"""Writes answers token by token, in one loop for every kind of cache."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch

from kvbench.engine.decode.cache import BranchCache
from kvbench.engine.decode.generation import GoldLikelihood
from kvbench.engine.treat.branch import Branch
from kvbench.prompts.ends import AnswerEnds


@dataclass(frozen=True)
class PendingAnswer:
    """Describes one answer to decode."""

    branch: Branch
    question: int  # its number in the prompt
    most: int  # tokens that it may have
    gold: tuple[int, ...] = ()  # the tokens of the right answer, where their likelihood is measured
    forced: bool = False  # whether it passes the right answer instead of sampled tokens


class Source(Protocol):
    """Computes the logits of some answers, fewer and fewer as answers end."""

    answers: Sequence[PendingAnswer]

    def read(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Reads the questions; yields numbers of answers, and the logits of their first tokens."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Passes one more token of every answer that is still written; returns the logits of the next ones."""

    def treat(self, step: int, numbers: torch.Tensor, done: torch.Tensor) -> None:
        """Has the step treatments of these answers act after a step, but of those that are done: nobody reads on."""

    def keep_answering(self, going: torch.Tensor) -> None:
        """Drops answers that have ended. ``going``: bool, whether each of the answers so far is still written."""

    def cache_of(self, number: int) -> BranchCache:
        """Returns the cache that an answer reads while it is written."""


@dataclass(frozen=True)
class Step:
    """Shows what is known when the next tokens of some answers are chosen.

    ``number``: which token of an answer it is, from 0 on. ``logits``: shape (answers, vocabulary). ``numbers``: of the
    answers. The answers of one wave may come in several parts. ``latest``: int64 (answers,), the tokens before, or
    ``None`` where the question is. Read, and do not write.
    """

    source: Source
    number: int
    numbers: torch.Tensor
    logits: torch.Tensor
    latest: torch.Tensor | None = None

    @cached_property
    def answers(self) -> list[PendingAnswer]:
        """Returns the answers in the order of the logits. Some may have ended that are not left out yet."""
        return [self.source.answers[number] for number in self.numbers.tolist()]

    def cache(self, place: int) -> BranchCache:
        """Returns the cache that the answer at this place has read when its logits were computed."""
        return self.source.cache_of(int(self.numbers[place]))


class Sampler(Protocol):
    """Chooses the next tokens. One that draws does so by answer and step, and not by the place in the batch."""

    def __call__(self, step: Step) -> torch.Tensor:
        """Returns the chosen tokens, int64 (answers,)."""


class Observer(Protocol):
    """Sees what is decoded and changes nothing."""

    def see(self, step: Step) -> None:
        """Is called at every step, before tokens are chosen. It does not see right answers that are passed at once."""


def greedy(step: Step) -> torch.Tensor:
    """Chooses the most likely tokens."""
    best: torch.Tensor = step.logits.argmax(-1)
    return best


@dataclass(frozen=True)
class Decoding:
    """Says how answers are decoded."""

    steps: int  # tokens of an answer at most
    sampler: Callable[[Step], torch.Tensor] = greedy
    observers: Sequence[Observer] = ()
    gold: bool = False  # whether the likelihood of the right answers is measured


@dataclass(frozen=True)
class Written:
    """Holds the tokens of every answer."""

    tokens: torch.Tensor  # int64 (answers, most tokens); what follows an end token means nothing
    finite: torch.Tensor  # bool (answers,): no logit that a token was chosen from was infinite or NaN


class _EndTest:
    """Tells which tokens end their answers, as :meth:`AnswerEnds.until_end` does afterwards."""

    def __init__(self, ends: AnswerEnds, device: torch.device) -> None:
        self.tokens, self.sentence, self.initials = (
            torch.tensor(tokens, dtype=torch.long, device=device)
            for tokens in (ends.tokens, ends.sentence, ends.initials)
        )

    def __call__(self, tokens: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
        """Returns bool (answers,). ``before``: the token before each, ``None`` where the question is."""
        ended = torch.isin(tokens, self.tokens)
        if not len(self.sentence):
            return ended
        sentence = torch.isin(tokens, self.sentence)
        return ended | (sentence if before is None else sentence & ~torch.isin(before, self.initials))


def write_answers(
    source: Source, decoding: Decoding, likelihood: GoldLikelihood, ends: AnswerEnds, look_every: int
) -> Written:
    """Writes every answer.

    Every ``look_every`` steps the answers that have ended are left out.
    """
    device = likelihood.device
    is_end = _EndTest(ends, device)
    limits = torch.tensor([answer.most for answer in source.answers], device=device)
    forced = torch.tensor([answer.forced for answer in source.answers], device=device)
    any_forced = any(answer.forced for answer in source.answers)
    most = max(answer.most for answer in source.answers)

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
        finite[numbers] &= _is_finite(logits) | ended_before
        tokens = decoding.sampler(seen)
        return torch.where(forced[numbers], likelihood.targets(step, numbers), tokens) if any_forced else tokens

    def has_ended(
        step: int, numbers: torch.Tensor, tokens: torch.Tensor, before: torch.Tensor | None = None
    ) -> torch.Tensor:
        ended = is_end(tokens, before)
        return (ended & ~forced[numbers] if any_forced else ended) | (limits[numbers] <= step + 1)

    numbers = torch.arange(len(source.answers), device=device)
    latest = torch.zeros_like(numbers)
    for part, logits in source.read():
        latest[part] = choose(0, part, logits)
    answer_tokens = latest.new_zeros(len(latest), most)
    answer_tokens[:, 0] = latest
    done = has_ended(0, numbers, latest)
    source.treat(0, numbers, done)
    for step in range(1, most):
        if step % look_every == 0 and bool(done.any()):
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


def _is_finite(logits: torch.Tensor) -> torch.Tensor:
    """Tells of each row whether it holds neither infinity nor NaN, which the least and the largest pass on."""
    least, largest = logits.aminmax(dim=-1)
    return torch.logical_and(least.isfinite(), largest.isfinite())
