"""Decodes answers together: the rows of a wave are a source of logits."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch

from kvbench.engine.decode.bundle import Bundle
from kvbench.engine.decode.cache import BundleRows
from kvbench.engine.decode.columns import Row
from kvbench.engine.decode.loop import (
    Decoding,
    Generation,
    GoldLikelihood,
    GoldTokens,
    PendingAnswer,
    write_answers,
)
from kvbench.engine.decode.waves import BundlePass, Wave
from kvbench.engine.treat.branch import Branch, record_faults
from kvbench.models.load import LoadedModel, find_decoder
from policies.declaration.devices import device_kind
from policies.declaration.steps import PrefillTreatment, StepTreatment

TOKENS_AT_ONCE = 2048  # in one pass
# Of its masks: 256 MiB in float32, which is all that a long context leaves room for.
MASK_NUMBERS = 2**26
LOGIT_NUMBERS = 2**26  # of the right answers in one pass: 256 MiB in float32


@dataclass(frozen=True)
class Reading:
    """Describes the tokens that a pass reads into one bundle."""

    bundle: Bundle
    token_ids: torch.Tensor
    positions: torch.Tensor
    # The places whose next token is chosen, on the CPU as :attr:`Columns.last`.
    logit_places: torch.Tensor


def read_shared(model: LoadedModel, wave: Wave) -> None:
    """Reads the start that all questions share, such as the instruction, once for each row."""
    for chosen in _passes(model, wave, [bundle.columns.shared for bundle in wave.bundles]):
        readings = []
        for bundle, places, rows in chosen:
            columns = bundle.columns
            bundle.begin(columns.shared, rows)
            # Nobody asks for it, and a model answers somewhere.
            end = columns.last.new_tensor([places.stop - 1])
            readings.append(
                Reading(bundle, columns.shared_ids[rows], columns.shared_positions[rows], end)
            )
        _read(model, wave, readings)
    for bundle in wave.bundles:
        bundle.grow(bundle.columns.shared.stop)
        bundle.settle()


def read_questions(model: LoadedModel, wave: Wave) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Reads questions; yields numbers of answers, and the logits of their first tokens: of rows,
    then of their copies.

    The questions of a row are read a portion at a time, and rows in passes of so many tokens: that
    bounds the memory of activations, logits and masks."""
    numbers = _number_answers(wave)
    for slices in zip_longest(
        *(bundle.question_slices for bundle in wave.bundles), fillvalue=slice(0, 0)
    ):
        for chosen in _passes(model, wave, slices):
            readings, answers, copies, copied = [], [], [], []
            for bundle, places, rows in chosen:
                bundle.begin(places, rows, alone=True)
                columns = bundle.columns
                tokens = columns.token_ids[rows, places], columns.positions[rows, places]
                ending = columns.ending(places)
                readings.append(Reading(bundle, *tokens, columns.last[ending] - places.start))
                answers.append(numbers[bundle][rows][:, ending].flatten())
                copies.append(numbers[bundle][bundle.reading :][rows][:, ending].flatten())
                copied.append(torch.full_like(answers[-1], bundle.copies > 0, dtype=torch.bool))
            logits = _read(model, wave, readings)
            yield torch.cat(answers), logits
            if any(map(len, copies)):
                yield torch.cat(copies), logits[torch.cat(copied)]
    for bundle in wave.bundles:
        bundle.grow(bundle.columns.token_ids.shape[1])


def read_golds(model: LoadedModel, wave: Wave, likelihood: GoldLikelihood) -> None:
    """Passes the right answers behind their questions, where answers will be written, and notes how
    likely each of their tokens but the first is; that one follows the question."""
    numbers = _number_answers(wave)
    for slices in zip_longest(
        *(bundle.gold_slices for bundle in wave.bundles), fillvalue=slice(0, 0)
    ):
        for chosen in _passes(model, wave, slices, all_logits=True):
            wave.parts, start, parts = [], 0, []
            for bundle, places, rows in chosen:
                bundle.begin_golds(places, rows)
                golds, of_column = (
                    bundle.golds,
                    numbers[bundle][rows][:, bundle.golds.column[places]],
                )
                count = of_column.numel()
                wave.parts.append(BundlePass(bundle, slice(start, start + count)))
                start += count
                grids = (
                    golds.order,
                    golds.token_ids,
                    golds.positions,
                    golds.targets,
                    ~golds.padding,
                )
                parts.append(
                    [of_column.flatten(), *(grid[rows, places].flatten() for grid in grids)]
                )
            joined = (torch.cat(part) for part in zip(*parts, strict=True))
            answers, order, token_ids, positions, targets, counted = joined
            logits = forward(model, wave, token_ids, positions, None)
            likelihood.add(answers, order, logits, targets, counted)


def _number_answers(wave: Wave) -> dict[Bundle, torch.Tensor]:
    """Numbers the answers of each bundle, shape (rows, columns), before any has ended."""
    numbers, start = {}, 0
    for bundle in wave.bundles:
        count = bundle.active.numel()
        numbers[bundle] = torch.arange(start, start + count, device=bundle.device).view_as(
            bundle.active
        )
        start += count
    return numbers


def _passes(
    model: LoadedModel, wave: Wave, places: Sequence[slice], all_logits: bool = False
) -> Iterator[list[tuple[Bundle, slice, slice]]]:
    """Divides the bundles, at these places, into passes of so many rows: bounded by activations, by
    the memory of masks and, if every place has logits, by these."""
    config = model.network.config.get_text_config()
    groups = config.num_attention_heads // config.num_key_value_heads
    of_logits = config.vocab_size / LOGIT_NUMBERS if all_logits else 0.0
    chosen: list[tuple[Bundle, slice, slice]] = []
    room = 1.0
    for bundle, span in zip(wave.bundles, places, strict=True):
        width, start = span.stop - span.start, 0
        # A mask for each kind of layer, at most of the longest of them.
        longest = max(bundle.kept) + bundle.grown + max(bundle.front, bundle.columns.shared.stop)
        longest *= len(set(bundle.windows))
        of_a_token = groups * max(hidden.shape[1] for hidden in bundle.hidden) * longest
        of_a_row = width * max(1 / TOKENS_AT_ONCE, of_a_token / MASK_NUMBERS, of_logits)
        while width > 0 and start < bundle.reading:
            if chosen and room < of_a_row:
                yield chosen
                chosen, room = [], 1.0
            rows = slice(start, min(bundle.reading, start + max(1, int(room / of_a_row))))
            chosen.append((bundle, span, rows))
            room, start = room - (rows.stop - start) * of_a_row, rows.stop
            if start < bundle.reading:  # a bundle is at one place only in a pass
                yield chosen
                chosen, room = [], 1.0
    if chosen:
        yield chosen


def _read(model: LoadedModel, wave: Wave, readings: Sequence[Reading]) -> torch.Tensor:
    """Does one pass; returns the logits at the places that need them, reading by reading and row by
    row."""
    wave.parts, start, places = [], 0, []
    for reading in readings:
        rows, width = reading.token_ids.shape
        wave.parts.append(
            BundlePass(reading.bundle, slice(start, start + rows * width), reading.logit_places)
        )
        places.append(start + width * torch.arange(rows)[:, None] + reading.logit_places)
        start += rows * width
    answered = torch.cat([of_reading.flatten() for of_reading in places])
    token_ids = torch.cat([reading.token_ids.flatten() for reading in readings])
    positions = torch.cat([reading.positions.flatten() for reading in readings])
    with _last_layer_at(model, answered):
        return forward(model, wave, token_ids, positions, answered)


@contextmanager
def _last_layer_at(model: LoadedModel, places: torch.Tensor) -> Iterator[None]:
    """Has the last layer work at these places only, but for keys and values: behind it nobody reads
    the others."""
    width = 0

    def narrow(_: Any, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        nonlocal width
        width = inputs[0].shape[1]
        return (inputs[0][:, places],)

    def widen(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        full = output.new_zeros(output.shape[0], width, output.shape[2])
        full[:, places] = output
        return full

    last = find_decoder(model.network).layers[-1]
    modules = [last.self_attn.o_proj, last.mlp]
    if hasattr(last.self_attn, "q_proj"):  # Phi-3 has queries, keys and values in one matrix
        modules.append(last.self_attn.q_proj)
    hooks = [
        hook
        for m in modules
        for hook in (m.register_forward_pre_hook(narrow), m.register_forward_hook(widen))
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def forward(
    model: LoadedModel,
    wave: Wave,
    token_ids: torch.Tensor,
    positions: torch.Tensor,
    places: torch.Tensor | None,
) -> torch.Tensor:
    """Returns the logits at the given places of a pass, by default at all: shape (places,
    vocabulary)."""
    output = model.network(
        input_ids=token_ids[None],
        position_ids=positions[None],
        past_key_values=wave,
        logits_to_keep=0 if places is None else places,
        wave=wave,
    )
    logits: torch.Tensor = output.logits[0]
    return logits


Golds = dict[tuple[int, int], GoldTokens]  # by the branch's id and the number of the question


def answers_of_wave(
    model: LoadedModel, rows: Sequence[Sequence[Row[Branch]]], decoding: Decoding
) -> tuple[list[Generation], Golds]:
    """Decodes all rows of a wave, and measures how likely right answers are. ``rows``: of each
    bundle."""
    if not rows:
        return [], {}
    started = model.clock()
    answers = [answer for bundle in rows for answer in _list_answers(bundle, decoding)]
    likelihood = GoldLikelihood(
        [a.gold for a in answers], [a.forced for a in answers], model.device
    )
    source = WaveSource(model, Wave(rows, decoding.gold), answers, likelihood)
    ends = rows[0][0].read_trace.prompt.ends.with_tokens(model.end_tokens())
    tokens_of_answers = write_answers(
        source, decoding, likelihood, ends, device_kind(model.device).look_every
    )
    share = (model.clock() - started - source.gold_seconds) / len(answers)
    generations = []
    for answer, token_ids, finite in zip(
        answers, tokens_of_answers.tokens.tolist(), tokens_of_answers.finite.tolist(), strict=True
    ):
        if not answer.forced:
            ids, ended = ends.until_end(token_ids[: answer.longest])
            generations.append(
                Generation(answer.branch, answer.question, tuple(ids), ended, share, finite=finite)
            )
    golds = zip(answers, likelihood.tokens(), strict=True)
    return generations, {(id(a.branch), a.question): gold for a, gold in golds if gold is not None}


def _list_answers(rows: Sequence[Row[Branch]], decoding: Decoding) -> list[PendingAnswer]:
    """Lists an answer for each question of a bundle, and then, for copies, the right answers that
    they pass."""
    written, forced = [], []
    for row in rows:
        for number, gold in zip(row.questions, row.gold_ids(row.read_trace.prompt), strict=True):
            measured = gold if decoding.gold and not row.paired else ()
            written.append(PendingAnswer(row.of, number, decoding.steps, measured))
            if row.paired:
                forced.append(PendingAnswer(row.of, number, max(1, len(gold)), gold, forced=True))
    return written + forced


@dataclass(frozen=True)
class AnswerGroup:
    """Holds answers of one policy in one bundle, which are treated at once."""

    # Of the answers: those that read questions, then their copies in the same order.
    numbers: Sequence[int]
    branches: Sequence[Branch]  # by answer; all of them sound, or all failed
    treatment: PrefillTreatment | None  # of a policy that acts at steps, a :class:`StepTreatment`
    reading: int  # how many of the answers read questions


class TreatApartError(Exception):
    """A treatment of several branches failed, which are to be treated apart to see which of them
    fail."""


@contextmanager
def record_faults_of_all(branches: Sequence[Branch], where: str) -> Iterator[None]:
    """Records what a treatment raises as its branch's failure; of several branches, raises
    :class:`TreatApartError`."""
    if all(branch is branches[0] for branch in branches):
        with record_faults(branches[0], where):
            yield
        return
    trial = Branch(branches[0].treatment)
    with record_faults(trial, where):
        yield
    if trial.error is not None:
        for branch in branches:
            branch.treat_apart = True
        raise TreatApartError


class WaveSource:
    """Computes the logits of all answers of a wave, bundle by bundle and row by row."""

    def __init__(
        self,
        model: LoadedModel,
        wave: Wave,
        answers: Sequence[PendingAnswer],
        likelihood: GoldLikelihood,
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
        """Groups what is treated alike: the answers of a policy in each bundle, or its rows if it
        acts once."""
        groups: dict[tuple[Bundle, int], list[int]] = {}
        for number, (bundle, _, column) in enumerate(self._places):
            branch = self.answers[number].branch
            policy = branch.treatment.policy
            if by_step:
                is_treated = policy.treatment.step_treatment is not None
            else:
                is_treated = policy.treatment.prefill_treatment is not None and column == 0
            if is_treated and branch.error is None:
                groups.setdefault(
                    (bundle, id(branch) if branch.treat_apart else id(policy)), []
                ).append(number)
        return [self._group(numbers, by_step) for numbers in groups.values()]

    def _group(self, numbers: list[int], by_step: bool) -> AnswerGroup:
        answers = [self.answers[number] for number in numbers]
        branches = [answer.branch for answer in answers]
        cache_treatment = branches[0].treatment.policy.treatment
        situations = [branch.treatment.situation for branch in branches]
        bundle = self._places[numbers[0]][0]
        treatment: PrefillTreatment | None = None
        with record_faults_of_all(branches, "while decoding" if by_step else "after the prefill"):
            if by_step and cache_treatment.step_treatment:
                ids = [bundle.prompt.questions[answer.question].question.id for answer in answers]
                treatment = cache_treatment.step_treatment(situations, ids)
            elif cache_treatment.prefill_treatment:
                treatment = cache_treatment.prefill_treatment(situations)
        return AnswerGroup(
            numbers, branches, treatment, len(numbers) // 2 if bundle.copies else len(numbers)
        )

    def _treat_context(self, group: AnswerGroup, treatment: PrefillTreatment, where: str) -> None:
        """Has a treatment act on the first row of each branch, which is copied to those of other
        questions."""
        firsts: dict[int, int] = {}
        copies = {
            place: first
            for place in range(group.reading)
            if (first := firsts.setdefault(id(group.branches[place]), place)) != place
        }
        with record_faults_of_all(group.branches, where):
            treatment.after_prefill(self._group_rows(group, list(firsts.values())))
            if isinstance(treatment, StepTreatment):
                treatment.copy_answers(copies)
        rows = [self._places[number][1] for number in group.numbers]
        self._places[group.numbers[0]][0].copy_rows(
            {rows[copy]: rows[first] for copy, first in copies.items()}
        )

    def read(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        # On what is kept of the context, treatments act once for all questions of a row, or for
        # each answer.
        for groups, where in (
            (self._once, "after the prefill"),
            (self._at_steps, "while decoding"),
        ):
            for group in groups:
                if group.treatment and group.branches[0].error is None:
                    self._treat_context(group, group.treatment, where)
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
        for bundle in self._wave.bundles:
            bundle.grow(bundle.columns.count)
        return logits

    def treat(self, step: int, numbers: torch.Tensor, done: torch.Tensor) -> None:
        left = set(numbers[~done].tolist()) if self._at_steps else set[int]()
        for group in self._at_steps:
            answers = [place for place, number in enumerate(group.numbers) if number in left]
            copies = {place: place - group.reading for place in answers if place >= group.reading}
            if step == 0:  # copies are made of what is treated now
                answers = sorted({place % group.reading for place in answers})
            if (
                answers
                and isinstance(group.treatment, StepTreatment)
                and group.branches[0].error is None
            ):
                with record_faults_of_all(group.branches, "while decoding"):
                    group.treatment.after_step(self._group_rows(group, answers), step)
                    if step == 0 and copies:
                        group.treatment.copy_answers(copies)
        if step == 0:
            self._copied = True
            for bundle in self._wave.bundles:
                bundle.copy_rows({bundle.reading + row: row for row in range(bundle.copies)})

    def keep_answering(self, going: torch.Tensor) -> None:
        self._wave.keep_answering(going)
        self._positions = self._positions[going]

    def cache_rows(self, number: int) -> BundleRows:
        bundle, row, column = self._places[number]
        if not self._copied:
            row %= bundle.reading
        return BundleRows(
            bundle, [self.answers[number].branch], [(row, column)], [0], self._question_read
        )

    def _group_rows(self, group: AnswerGroup, answers: Sequence[int]) -> BundleRows:
        bundle = self._places[group.numbers[0]][0]
        branches = [group.branches[answer] for answer in answers]
        places = [self._places[group.numbers[answer]][1:] for answer in answers]
        return BundleRows(bundle, branches, places, answers, self._question_read)
