"""Passes the questions of a wave through the model, in passes of a bounded number of tokens."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch

from kvbench.engine.decode.bundle import Bundle
from kvbench.engine.decode.generation import GoldLikelihood
from kvbench.engine.decode.wave import BundlePass, Wave
from kvbench.models.load import LoadedModel, decoder_of

TOKENS_AT_ONCE = 2048  # in one pass
MASK_NUMBERS = 2**26  # of its masks: 256 MiB in float32, which is all that a long context leaves room for
LOGIT_NUMBERS = 2**26  # of the right answers in one pass: 256 MiB in float32


@dataclass(frozen=True)
class Reading:
    """Describes the tokens that a pass reads into one bundle."""

    bundle: Bundle
    rows: slice
    token_ids: torch.Tensor
    positions: torch.Tensor
    logit_places: torch.Tensor  # the places whose next token is chosen, on the CPU as :attr:`Columns.last`


def read_shared(model: LoadedModel, wave: Wave) -> None:
    """Reads the start that all questions share, such as the instruction, once for each row."""
    for chosen in _passes(model, wave, [bundle.columns.shared for bundle in wave.bundles]):
        readings = []
        for bundle, places, rows in chosen:
            bundle.begin_shared(rows)
            columns = bundle.columns
            end = columns.last.new_tensor([places.stop - 1])  # nobody asks for it, and a model answers somewhere
            readings.append(Reading(bundle, rows, columns.shared_ids[rows], columns.shared_positions[rows], end))
        _read(model, wave, readings)
    for bundle in wave.bundles:
        bundle.grow(bundle.columns.shared.stop)
        bundle.settle()


def read_questions(model: LoadedModel, wave: Wave) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Reads questions; yields numbers of answers, and the logits of their first tokens: of rows, then of their copies.

    The questions of a row are read a portion at a time, and rows in passes of so many tokens: that bounds the memory of
    activations, logits and masks.
    """
    numbers = _numbers_of(wave)
    for slices in zip_longest(*(bundle.question_slices for bundle in wave.bundles), fillvalue=slice(0, 0)):
        for chosen in _passes(model, wave, slices):
            readings, answers, copies, copied = [], [], [], []
            for bundle, places, rows in chosen:
                bundle.begin_questions(places, rows)
                columns = bundle.columns
                tokens = columns.token_ids[rows, places], columns.positions[rows, places]
                ending = columns.ending(places)
                readings.append(Reading(bundle, rows, *tokens, columns.last[ending] - places.start))
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
    """Passes the right answers behind their questions, where answers will be written, and notes how likely each of
    their tokens but the first is; that one follows the question."""
    numbers = _numbers_of(wave)
    for slices in zip_longest(*(bundle.gold_slices for bundle in wave.bundles), fillvalue=slice(0, 0)):
        for chosen in _passes(model, wave, slices, all_logits=True):
            wave.parts, start, parts = [], 0, []
            for bundle, places, rows in chosen:
                bundle.begin_golds(places, rows)
                golds, of_column = bundle.golds, numbers[bundle][rows][:, bundle.golds.column[places]]
                count = of_column.numel()
                wave.parts.append(BundlePass(bundle, slice(start, start + count)))
                start += count
                grids = (golds.order, golds.token_ids, golds.positions, golds.targets, ~golds.padding)
                parts.append([of_column.flatten(), *(grid[rows, places].flatten() for grid in grids)])
            joined = (torch.cat(part) for part in zip(*parts, strict=True))
            answers, order, token_ids, positions, targets, counted = joined
            logits = forward(model, wave, token_ids, positions, None)
            likelihood.add(answers, order, logits, targets, counted)


def _numbers_of(wave: Wave) -> dict[Bundle, torch.Tensor]:
    """Numbers the answers of each bundle, shape (rows, columns), before any has ended."""
    numbers, start = {}, 0
    for bundle in wave.bundles:
        count = bundle.active.numel()
        numbers[bundle] = torch.arange(start, start + count, device=bundle.device).view_as(bundle.active)
        start += count
    return numbers


def _passes(
    model: LoadedModel, wave: Wave, places: Sequence[slice], all_logits: bool = False
) -> Iterator[list[tuple[Bundle, slice, slice]]]:
    """Divides the bundles, at these places, into passes of so many rows: bounded by activations, by the memory of masks
    and, if every place has logits, by these."""
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
    """Does one pass; returns the logits at the places that need them, reading by reading and row by row."""
    wave.parts, start, places = [], 0, []
    for reading in readings:
        rows, width = reading.token_ids.shape
        wave.parts.append(BundlePass(reading.bundle, slice(start, start + rows * width), reading.logit_places))
        places.append(start + width * torch.arange(rows)[:, None] + reading.logit_places)
        start += rows * width
    answered = torch.cat([of_reading.flatten() for of_reading in places])
    token_ids = torch.cat([reading.token_ids.flatten() for reading in readings])
    positions = torch.cat([reading.positions.flatten() for reading in readings])
    with _last_layer_at(model, answered):
        return forward(model, wave, token_ids, positions, answered)


@contextmanager
def _last_layer_at(model: LoadedModel, places: torch.Tensor) -> Iterator[None]:
    """Has the last layer work at these places only, but for keys and values: behind it nobody reads the others."""
    width = 0

    def narrow(_: Any, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        nonlocal width
        width = inputs[0].shape[1]
        return (inputs[0][:, places],)

    def widen(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        full = output.new_zeros(output.shape[0], width, output.shape[2])
        full[:, places] = output
        return full

    last = decoder_of(model.network).layers[-1]
    modules = [last.self_attn.o_proj, last.mlp]
    if hasattr(last.self_attn, "q_proj"):  # Phi-3 has queries, keys and values in one matrix
        modules.append(last.self_attn.q_proj)
    hooks = [hook for m in modules for hook in (m.register_forward_pre_hook(narrow), m.register_forward_hook(widen))]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def forward(
    model: LoadedModel, wave: Wave, token_ids: torch.Tensor, positions: torch.Tensor, places: torch.Tensor | None
) -> torch.Tensor:
    """Returns the logits at the given places of a pass, by default at all: shape (places, vocabulary)."""
    output = model.network(
        input_ids=token_ids[None],
        position_ids=positions[None],
        past_key_values=wave,
        logits_to_keep=0 if places is None else places,
        wave=wave,
    )
    logits: torch.Tensor = output.logits[0]
    return logits
