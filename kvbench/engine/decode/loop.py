"""The one loop that writes answers, token by token, whatever the cache that they are written from."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch

from kvbench.engine.decode.cache import BranchCache
from kvbench.engine.decode.likelihood import GoldLikelihood
from kvbench.engine.treat.branch import Branch


@dataclass(frozen=True)
class Answer:
    """One answer that is decoded.

    ``question``: its number in the prompt. ``most``: how many tokens it may have. ``gold``: the tokens of the right
    answer, where their likelihood is to be measured. ``forced``: it passes these instead of tokens that are sampled.
    """

    branch: Branch
    question: int
    most: int
    gold: tuple[int, ...] = ()
    forced: bool = False


class Source(Protocol):
    """Where logits come from: some answers, of which fewer and fewer are still written."""

    answers: Sequence[Answer]

    def read(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Reads the questions; gives numbers of answers, and the logits of their first tokens."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Passes one more token of every answer that is still written; gives the logits of the next, in that order."""

    def treat(self, step: int, numbers: torch.Tensor) -> None:
        """Has the step treatments of these answers act after a step."""

    def keep_answering(self, going: torch.Tensor) -> None:
        """``going``: bool, of the answers that were still written, which ones are."""

    def cache_of(self, number: int) -> BranchCache:
        """What an answer that is still written reads."""


@dataclass(frozen=True)
class Step:
    """What can be seen when the next tokens of some answers are chosen.

    ``number``: which token of an answer it is, from 0 on. ``logits``: shape (answers, vocabulary). ``numbers``: of the
    answers. The answers of one wave may come in several parts. Read, and do not write.
    """

    source: Source
    number: int
    numbers: torch.Tensor
    logits: torch.Tensor

    @cached_property
    def answers(self) -> list[Answer]:
        """The answers in the order of the logits. An answer may have ended that is not left out yet."""
        return [self.source.answers[number] for number in self.numbers.tolist()]

    def cache(self, place: int) -> BranchCache:
        """What the answer at this place has read when its logits were computed."""
        return self.source.cache_of(int(self.numbers[place]))


class Sampler(Protocol):
    """Chooses the next tokens. One that draws does so by answer and step, and not by the place in the batch."""

    def __call__(self, step: Step) -> torch.Tensor:
        """The chosen tokens, int64 (answers,)."""


class Observer(Protocol):
    """Sees what is decoded and changes nothing."""

    def see(self, step: Step) -> None:
        """Called at every step, before tokens are chosen; the right answers that are passed at once it does not see."""


def greedy(step: Step) -> torch.Tensor:
    """The most likely tokens."""
    best: torch.Tensor = step.logits.argmax(-1)
    return best


@dataclass(frozen=True)
class Decoding:
    """How answers are decoded. ``steps``: tokens of an answer at most. ``gold``: whether the likelihood of the right
    answers is measured."""

    steps: int
    sampler: Callable[[Step], torch.Tensor] = greedy
    observers: Sequence[Observer] = ()
    gold: bool = False


def write_answers(
    source: Source, decoding: Decoding, likelihood: GoldLikelihood, ends: Collection[int], look_every: int
) -> torch.Tensor:
    """Tokens of every answer, shape (answers, most tokens); what follows an end token means nothing.

    Every ``look_every`` steps the answers that have ended are left out.
    """
    device = likelihood.device
    end_tokens = torch.tensor(tuple(ends), dtype=torch.long, device=device)
    limits = torch.tensor([answer.most for answer in source.answers], device=device)
    forced = torch.tensor([answer.forced for answer in source.answers], device=device)
    any_forced = any(answer.forced for answer in source.answers)
    most = max(answer.most for answer in source.answers)

    def choose(step: int, numbers: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        likelihood.see(step, numbers, logits)
        seen = Step(source, step, numbers, logits)
        for observer in decoding.observers:
            observer.see(seen)
        tokens = decoding.sampler(seen)
        return torch.where(forced[numbers], likelihood.targets(step, numbers), tokens) if any_forced else tokens

    def has_ended(step: int, numbers: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        ended = torch.isin(tokens, end_tokens)
        return (ended & ~forced[numbers] if any_forced else ended) | (limits[numbers] <= step + 1)

    numbers = torch.arange(len(source.answers), device=device)
    latest = torch.zeros_like(numbers)
    for part, logits in source.read():
        latest[part] = choose(0, part, logits)
    source.treat(0, numbers)
    written = latest.new_zeros(len(latest), most)
    written[:, 0] = latest
    done = has_ended(0, numbers, latest)
    for step in range(1, most):
        if step % look_every == 0 and bool(done.any()):
            going = ~done
            source.keep_answering(going)
            numbers, latest, done = numbers[going], latest[going], done[going]
        if not len(numbers):
            break
        latest = choose(step, numbers, source.step(latest))
        source.treat(step, numbers)
        written[numbers, step] = latest
        done |= has_ended(step, numbers, latest)
    return written
