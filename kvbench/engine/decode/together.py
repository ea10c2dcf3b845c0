"""Decodes answers together: the rows of a wave are a source of logits."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product, zip_longest
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
    """Reads questions. Yields numbers of answers, int64 (answers,), and the logits of their first
    tokens, shape (answers, vocabulary): of rows, then of their copies.

    The questions of a row are read a portion at a time, and rows in passes of so many tokens: that
    bounds the memory of activations, logits and masks."""
    numbers = _number_answers(wave)
    slices_by_bundle = [bundle.question_slices for bundle in wave.bundles]
    # A bundle with fewer portions is at no place in the later passes.
    for slices in zip_longest(*slices_by_bundle, fillvalue=slice(0, 0)):
        for chosen in _passes(model, wave, slices):
            readings, answers, copies, copied = [], [], [], []
            for bundle, places, rows in chosen:
                bundle.begin(places, rows, alone=True)
                columns = bundle.columns
                tokens = columns.token_ids[rows, places], columns.positions[rows, places]
                ending = columns.ending(places)
                readings.append(Reading(bundle, *tokens, columns.last[ending] - places.start))
                answers.append(numbers[bundle][rows][:, ending].flatten())
                # Copies are numbered behind all rows that read, in the same order.
                copies.append(numbers[bundle][bundle.reading :][rows][:, ending].flatten())
                copied.append(torch.full_like(answers[-1], bundle.copies > 0, dtype=torch.bool))
            logits = _read(model, wave, readings)
            yield torch.cat(answers), logits
            # A copy has read nothing: its first token is chosen from the logits of the row that it
            # copies.
            if any(map(len, copies)):
                yield torch.cat(copies), logits[torch.cat(copied)]
    # All at once: the rows of a bundle may come in several passes, and it counts for all of them.
    for bundle in wave.bundles:
        bundle.grow(bundle.columns.token_ids.shape[1])


def read_golds(model: LoadedModel, wave: Wave, likelihood: GoldLikelihood) -> None:
    """Passes the right answers behind their questions, where answers will be written, and notes how
    likely each of their tokens but the first is; that one follows the question."""
    numbers = _number_answers(wave)
    slices_by_bundle = [bundle.gold_slices for bundle in wave.bundles]
    for slices in zip_longest(*slices_by_bundle, fillvalue=slice(0, 0)):
        for chosen in _passes(model, wave, slices, all_logits=True):
            wave.parts, start, parts = [], 0, []
            for bundle, places, rows in chosen:
                bundle.begin_golds(places, rows)
                golds = bundle.golds
                answers = numbers[bundle][rows][:, golds.column[places]]
                count = answers.numel()
                wave.parts.append(BundlePass(bundle, slice(start, start + count)))
                start += count
                part = [answers.flatten()]
                for grid in (golds.order, golds.token_ids, golds.positions, golds.targets):
                    part.append(grid[rows, places].flatten())
                part.append(~golds.padding[rows, places].flatten())
                parts.append(part)
            joined = map(torch.cat, zip(*parts, strict=True))
            answers, order, token_ids, positions, targets, counted = joined
            logits = forward(model, wave, token_ids, positions, None)
            likelihood.add(answers, order, logits, targets, counted)


def _number_answers(wave: Wave) -> dict[Bundle, torch.Tensor]:
    """Numbers the answers of each bundle, shape (rows, columns), before any has ended."""
    numbers, start = {}, 0
    for bundle in wave.bundles:
        count = bundle.active.numel()
        of_bundle = torch.arange(start, start + count, device=bundle.device)
        numbers[bundle] = of_bundle.view_as(bundle.active)
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
        # The share of a pass that a row takes by the tightest bound, so that rows of different
        # bundles add up to one pass.
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
    wave.parts, start = [], 0
    token_ids, positions, places = [], [], []
    for reading in readings:
        rows, width = reading.token_ids.shape
        tokens = slice(start, start + rows * width)
        # The last layer attends at these places alone; the hooks below spare its products too.
        wave.parts.append(BundlePass(reading.bundle, tokens, reading.logit_places))
        token_ids.append(reading.token_ids.flatten())
        positions.append(reading.positions.flatten())
        # (rows, 1): where in the pass each row begins.
        row_starts = start + width * torch.arange(rows)[:, None]
        places.append((row_starts + reading.logit_places).flatten())
        start = tokens.stop
    answered = torch.cat(places)
    with _last_layer_at(model, answered):
        return forward(model, wave, torch.cat(token_ids), torch.cat(positions), answered)


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
    hooks = []
    for module in modules:
        hooks.append(module.register_forward_pre_hook(narrow))
        hooks.append(module.register_forward_hook(widen))
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
        # To transformers 0 means all places.
        logits_to_keep=0 if places is None else places,
        # An argument that transformers does not know, and hands on to the attention function.
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
    answers: list[PendingAnswer] = []
    for bundle in rows:
        answers += _list_answers(bundle, decoding)
    golds, forced = [answer.gold for answer in answers], [answer.forced for answer in answers]
    likelihood = GoldLikelihood(golds, forced, model.device)
    source = WaveSource(model, Wave(rows, decoding.gold), answers, likelihood)
    ends = rows[0][0].read_trace.prompt.ends.with_tokens(model.end_tokens())
    look_every = device_kind(model.device).look_every
    written = write_answers(source, decoding, likelihood, ends, look_every)
    # Right answers are a measurement, and no part of the time that decoding takes.
    share = (model.clock() - started - source.gold_seconds) / len(answers)
    generations = []
    measured: Golds = {}
    results = zip(
        written.tokens.tolist(), written.finite.tolist(), likelihood.tokens(), strict=True
    )
    for answer, (token_ids, finite, gold) in zip(answers, results, strict=True):
        if not answer.forced:
            # Behind its own length stand tokens for which other answers of the wave were long
            # enough.
            ids, ended = ends.until_end(token_ids[: answer.longest])
            generations.append(
                Generation(answer.branch, answer.question, tuple(ids), ended, share, finite=finite)
            )
        if gold is not None:
            measured[id(answer.branch), answer.question] = gold
    return generations, measured


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
    # The treatment acts on all of them, so that none can be blamed: a branch of nobody takes the
    # fault.
    trial = Branch(branches[0].treatment)
    with record_faults(trial, where):
        yield
    if trial.error is not None:
        for branch in branches:
            branch.treat_apart = True
        raise TreatApartError


class WaveSource:
    """Computes the logits of all answers of a wave, bundle by bundle and row by row. Its methods
    are documented at :class:`Source`."""

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
        self._places: list[tuple[Bundle, int, int]] = []
        positions = []
        for bundle in wave.bundles:
            columns = bundle.columns
            for row, column in product(range(bundle.rows), range(columns.count)):
                self._places.append((bundle, row, column))
            # (rows, columns): where each question ends, from where its answer goes on.
            positions.append(columns.positions[:, columns.last].flatten())
        self._positions = torch.cat(positions)
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
                # All columns of a row read the same kept context, which is treated once.
                is_treated = policy.treatment.prefill_treatment is not None and column == 0
            if is_treated and branch.error is None:
                together = id(branch) if branch.treat_apart else id(policy)
                groups.setdefault((bundle, together), []).append(number)
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
        # Copies are the second half of the rows of a bundle, and so of its answers of any policy.
        reading = len(numbers) // 2 if bundle.copies else len(numbers)
        return AnswerGroup(numbers, branches, treatment, reading)

    def _treat_context(self, group: AnswerGroup, treatment: PrefillTreatment, where: str) -> None:
        """Has a treatment act on the first row of each branch, which is copied to those of other
        questions."""
        firsts: dict[int, int] = {}  # by branch, the place of its first answer
        copies, row_copies = {}, {}
        bundle = self._places[group.numbers[0]][0]
        rows = [self._places[number][1] for number in group.numbers]
        for place, branch in enumerate(group.branches[: group.reading]):
            first = firsts.setdefault(id(branch), place)
            if first != place:
                copies[place] = first
                row_copies[rows[place]] = rows[first]
        with record_faults_of_all(group.branches, where):
            treatment.after_prefill(self._group_rows(group, list(firsts.values())))
            if isinstance(treatment, StepTreatment):
                treatment.copy_answers(copies)
        bundle.copy_rows(row_copies)

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
        # The list waits for the device, and only where some policy acts at steps.
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
        # Until copies are made nothing stands in their rows: what they will read is in the others.
        if not self._copied:
            row %= bundle.reading
        branches = [self.answers[number].branch]
        return BundleRows(bundle, branches, [(row, column)], [0], self._question_read)

    def _group_rows(self, group: AnswerGroup, answers: Sequence[int]) -> BundleRows:
        bundle = self._places[group.numbers[0]][0]
        branches = [group.branches[answer] for answer in answers]
        places = [self._places[group.numbers[answer]][1:] for answer in answers]
        return BundleRows(bundle, branches, places, answers, self._question_read)
