"""Decodes answers together: the rows of a wave are a source of logits."""

from collections.abc import Iterator, Sequence

import torch

from kvbench.engine.decode.cache import BundleCache
from kvbench.engine.decode.generation import Generation, until_end
from kvbench.engine.decode.likelihood import GoldLikelihood
from kvbench.engine.decode.loop import Answer, Decoding, write_answers
from kvbench.engine.decode.reading import forward, read_golds, read_questions, read_shared
from kvbench.engine.decode.rows import Row
from kvbench.engine.decode.wave import Wave
from kvbench.engine.treat.branch import Branch, Trace, faults_of
from kvbench.models.load import LoadedModel
from policies import StepTreatment

LOOK_EVERY = {"cpu": 1, "cuda": 8}  # steps: on a GPU each look for answers that have ended waits for all its work


GoldMeans = dict[tuple[int, int], float]  # by the branch's id and the number of the question


def answers_of_wave(
    model: LoadedModel, trace: Trace, rows: Sequence[Sequence[Row[Branch]]], decoding: Decoding
) -> tuple[list[Generation], GoldMeans]:
    """Decodes all rows of a wave, and measures how likely right answers are. ``rows``: of each bundle."""
    if not rows:
        return [], {}
    started = model.clock()
    answers = [answer for bundle in rows for row in bundle for answer in _answers_of(trace, row, decoding)]
    likelihood = GoldLikelihood([a.gold for a in answers], [a.forced for a in answers], model.device)
    source = WaveSource(model, Wave(trace, rows, decoding.gold), answers, likelihood)
    ends = set(model.end_tokens())
    written = write_answers(source, decoding, likelihood, ends, LOOK_EVERY[model.device.type])
    share = (model.clock() - started - source.gold_seconds) / len(answers)
    generations = []
    for answer, token_ids, finite in zip(answers, written.tokens.tolist(), written.finite.tolist(), strict=True):
        if not answer.forced:
            ids = until_end(token_ids[: answer.most], ends)
            ended = ids[-1] in ends
            generations.append(Generation(answer.branch, answer.question, tuple(ids), ended, share, finite=finite))
    nats = zip(answers, likelihood.means(), strict=True)
    return generations, {(id(a.branch), a.question): mean for a, mean in nats if mean is not None}


def _answers_of(trace: Trace, row: Row[Branch], decoding: Decoding) -> list[Answer]:
    """Lists one answer for each question of a row. Where a branch is treated between steps, another row measures the
    likelihood."""
    treatment = row.of.treatment
    by_step = treatment.policy.step_treatment is not None
    answers = []
    for number, gold in zip(row.questions, row.gold_ids(trace.prompt), strict=True):
        measured = gold if decoding.gold and row.forced == by_step else ()
        answers.append(Answer(row.of, number, len(gold) if row.forced else decoding.steps, measured, row.forced))
    return answers


class WaveSource:
    """Computes the logits of all answers of a wave, bundle by bundle and row by row."""

    def __init__(self, model: LoadedModel, wave: Wave, answers: Sequence[Answer], likelihood: GoldLikelihood) -> None:
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
        self._treatments = self._step_treatments()
        self._question_read = False

    def _step_treatments(self) -> dict[int, StepTreatment]:
        """Builds the step treatments by answer, a fresh one for each."""
        treatments: dict[int, StepTreatment] = {}
        for number, answer in enumerate(self.answers):
            treatment, branch = answer.branch.treatment, answer.branch
            if treatment.policy.step_treatment is not None and branch.error is None:
                with faults_of(branch, "while decoding"):
                    question = self._wave.prompt.questions[answer.question].question
                    treatments[number] = treatment.policy.step_treatment(treatment.situation, question.id)
        return treatments

    def _treat_kept(self) -> None:
        """Has treatments act on what is kept of the context: once for all questions of a row, or for each answer."""
        for number, (_, __, column) in enumerate(self._places):
            branch = self.answers[number].branch
            build = branch.treatment.policy.prefill_treatment
            if build is not None and column == 0 and branch.error is None:
                with faults_of(branch, "after the prefill"):
                    build(branch.treatment.situation).after_prefill(self.cache_of(number))
        for number, treatment in self._treatments.items():
            branch = self.answers[number].branch
            if branch.error is None:
                with faults_of(branch, "while decoding"):
                    treatment.after_prefill(self.cache_of(number))

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

    def treat(self, step: int, numbers: torch.Tensor) -> None:
        if not self._treatments:
            return
        for number in numbers.tolist():
            branch = self.answers[number].branch
            if number in self._treatments and branch.error is None:
                with faults_of(branch, "while decoding"):
                    self._treatments[number].after_step(self.cache_of(number), step)

    def keep_answering(self, going: torch.Tensor) -> None:
        self._wave.keep_answering(going)
        self._positions = self._positions[going]

    def cache_of(self, number: int) -> BundleCache:
        bundle, row, column = self._places[number]
        return BundleCache(
            bundle, self.answers[number].branch, bundle.row_numbers.index(row), column, self._question_read
        )
