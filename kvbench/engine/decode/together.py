"""Decodes answers together: the rows of a wave are a source of logits."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from kvbench.engine.decode.bundle import Bundle
from kvbench.engine.decode.cache import BranchCache, BundleRows
from kvbench.engine.decode.columns import Row
from kvbench.engine.decode.generation import Generation, GoldLikelihood, GoldTokens
from kvbench.engine.decode.loop import Decoding, PendingAnswer, write_answers
from kvbench.engine.decode.reading import forward, read_golds, read_questions, read_shared
from kvbench.engine.decode.wave import Wave
from kvbench.engine.treat.branch import Branch, Trace, faults_of
from kvbench.models.load import LoadedModel
from policies.declaration.steps import PrefillTreatment, StepTreatment

LOOK_EVERY = {"cpu": 1, "cuda": 8}  # steps: on a GPU each look for answers that have ended waits for all its work


Golds = dict[tuple[int, int], GoldTokens]  # by the branch's id and the number of the question


def answers_of_wave(
    model: LoadedModel, trace: Trace, rows: Sequence[Sequence[Row[Branch]]], decoding: Decoding
) -> tuple[list[Generation], Golds]:
    """Decodes all rows of a wave, and measures how likely right answers are. ``rows``: of each bundle."""
    if not rows:
        return [], {}
    started = model.clock()
    answers = [answer for bundle in rows for answer in _answers_of(trace, bundle, decoding)]
    likelihood = GoldLikelihood([a.gold for a in answers], [a.forced for a in answers], model.device)
    source = WaveSource(model, Wave(trace, rows, decoding.gold), answers, likelihood)
    ends = trace.prompt.ends.with_tokens(model.end_tokens())
    tokens_of_answers = write_answers(source, decoding, likelihood, ends, LOOK_EVERY[model.device.type])
    share = (model.clock() - started - source.gold_seconds) / len(answers)
    generations = []
    for answer, token_ids, finite in zip(
        answers, tokens_of_answers.tokens.tolist(), tokens_of_answers.finite.tolist(), strict=True
    ):
        if not answer.forced:
            ids, ended = ends.until_end(token_ids[: answer.most])
            generations.append(Generation(answer.branch, answer.question, tuple(ids), ended, share, finite=finite))
    golds = zip(answers, likelihood.tokens(), strict=True)
    return generations, {(id(a.branch), a.question): gold for a, gold in golds if gold is not None}


def _answers_of(trace: Trace, rows: Sequence[Row[Branch]], decoding: Decoding) -> list[PendingAnswer]:
    """Lists one answer for each question of the rows of a bundle, and then, for copies, the right answers that they
    pass."""
    written, forced = [], []
    for row in rows:
        for number, gold in zip(row.questions, row.gold_ids(trace.prompt), strict=True):
            measured = gold if decoding.gold and not row.paired else ()
            written.append(PendingAnswer(row.of, number, decoding.steps, measured))
            if row.paired:
                forced.append(PendingAnswer(row.of, number, max(1, len(gold)), gold, forced=True))
    return written + forced


@dataclass(frozen=True)
class AnswerGroup:
    """Holds answers of one policy in one bundle, which are treated at once."""

    numbers: Sequence[int]  # of the answers: those that read questions, then their copies in the same order
    branches: Sequence[Branch]  # by answer; all of them sound, or all failed
    treatment: PrefillTreatment | None  # of a policy that acts at steps, a :class:`StepTreatment`
    reading: int  # how many of the answers read questions


class TreatApartError(Exception):
    """A treatment of several branches failed, which are to be treated apart to see which of them fail."""


@contextmanager
def faults_of_all(branches: Sequence[Branch], where: str) -> Iterator[None]:
    """Records what a treatment raises as the failure of its branch; if it treats several, raises
    :class:`TreatApartError`."""
    if all(branch is branches[0] for branch in branches):
        with faults_of(branches[0], where):
            yield
        return
    trial = Branch(branches[0].treatment)
    with faults_of(trial, where):
        yield
    if trial.error is not None:
        for branch in branches:
            branch.treat_apart = True
        raise TreatApartError


class WaveSource:
    """Computes the logits of all answers of a wave, bundle by bundle and row by row."""

    def __init__(
        self, model: LoadedModel, wave: Wave, answers: Sequence[PendingAnswer], likelihood: GoldLikelihood
    ) -> None:
        self.answers = answers
        self.gold_seconds = 0.0  # spent on the right answers
        self._model, self._wave, self._likelihood = model, wave, likelihood
        self._places = [
            (bundle, row, column)
            for bundle in wave.bundles
            for row in range(bundle.rows)
            for column in range(bundle.columns.count)
        ]
        self._positions = torch.cat(
            [bundle.columns.positions[:, bundle.columns.last].flatten() for bundle in wave.bundles]
        )
        self._once = self._groups(by_step=False)
        self._at_steps = self._groups(by_step=True)
        self._question_read = self._copied = False

    def _groups(self, by_step: bool) -> list[AnswerGroup]:
        """Groups what is treated alike: the answers of a policy in each bundle, or its rows if it acts once."""
        groups: dict[tuple[Bundle, int], list[int]] = {}
        for number, (bundle, _, column) in enumerate(self._places):
            branch = self.answers[number].branch
            policy = branch.treatment.policy
            treated = policy.step_treatment if by_step else policy.prefill_treatment and column == 0
            if treated and branch.error is None:
                groups.setdefault((bundle, id(branch) if branch.treat_apart else id(policy)), []).append(number)
        return [self._group(numbers, by_step) for numbers in groups.values()]

    def _group(self, numbers: list[int], by_step: bool) -> AnswerGroup:
        answers = [self.answers[number] for number in numbers]
        branches = [answer.branch for answer in answers]
        policy, situations = branches[0].treatment.policy, [branch.treatment.situation for branch in branches]
        treatment: PrefillTreatment | None = None
        with faults_of_all(branches, "while decoding" if by_step else "after the prefill"):
            if by_step and policy.step_treatment:
                ids = [self._wave.prompt.questions[answer.question].question.id for answer in answers]
                treatment = policy.step_treatment(situations, ids)
            elif policy.prefill_treatment:
                treatment = policy.prefill_treatment(situations)
        bundle = self._places[numbers[0]][0]
        return AnswerGroup(numbers, branches, treatment, len(numbers) // 2 if bundle.copies else len(numbers))

    def _treat_kept(self) -> None:
        """Has treatments act on what is kept of the context: once for all questions of a row, or for each answer."""
        for groups, where in ((self._once, "after the prefill"), (self._at_steps, "while decoding")):
            for group in groups:
                if group.treatment and group.branches[0].error is None:
                    self._treat_context(group, group.treatment, where)

    def _treat_context(self, group: AnswerGroup, treatment: PrefillTreatment, where: str) -> None:
        """Has a treatment act on the first row of each branch, which is copied to those of other questions."""
        firsts: dict[int, int] = {}
        copies = {
            place: first
            for place in range(group.reading)
            if (first := firsts.setdefault(id(group.branches[place]), place)) != place
        }
        with faults_of_all(group.branches, where):
            treatment.after_prefill(self._rows_of(group, list(firsts.values())))
            if isinstance(treatment, StepTreatment):
                treatment.copy_answers(copies)
        rows = [self._places[number][1] for number in group.numbers]
        self._places[group.numbers[0]][0].copy_rows({rows[copy]: rows[first] for copy, first in copies.items()})

    def read(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        self._treat_kept()
        read_shared(self._model, self._wave)
        self._question_read = True
        yield from read_questions(self._model, self._wave)
        if any(self._likelihood.lengths):
            started = self._model.clock()
            read_golds(self._model, self._wave, self._likelihood)
            self.gold_seconds = self._model.clock() - started

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        self._positions = self._positions + 1
        self._wave.begin_step()
        logits = forward(self._model, self._wave, tokens, self._positions, None)
        self._wave.grow_step()
        return logits

    def treat(self, step: int, numbers: torch.Tensor, done: torch.Tensor) -> None:
        left = set(numbers[~done].tolist()) if self._at_steps else set[int]()
        for group in self._at_steps:
            answers = [place for place, number in enumerate(group.numbers) if number in left]
            copies = {place: place - group.reading for place in answers if place >= group.reading}
            if step == 0:  # copies are made of what is treated now
                answers = sorted({place % group.reading for place in answers})
            if answers and isinstance(group.treatment, StepTreatment) and group.branches[0].error is None:
                with faults_of_all(group.branches, "while decoding"):
                    group.treatment.after_step(self._rows_of(group, answers), step)
                    if step == 0 and copies:
                        group.treatment.copy_answers(copies)
        if step == 0:
            self._copied = True
            for bundle in self._wave.bundles:
                bundle.copy_rows({bundle.reading + row: row for row in range(bundle.copies)})

    def keep_answering(self, going: torch.Tensor) -> None:
        self._wave.keep_answering(going)
        self._positions = self._positions[going]

    def cache_of(self, number: int) -> BranchCache:
        bundle, row, column = self._places[number]
        if not self._copied:
            row %= bundle.reading
        return BranchCache(BundleRows(bundle, [self.answers[number].branch], [(row, column)], [0], self._question_read))

    def _rows_of(self, group: AnswerGroup, answers: Sequence[int]) -> BundleRows:
        """Gives access to the rows of some answers of a group."""
        bundle = self._places[group.numbers[0]][0]
        branches = [group.branches[answer] for answer in answers]
        places = [self._places[group.numbers[answer]][1:] for answer in answers]
        return BundleRows(bundle, branches, places, answers, self._question_read)
