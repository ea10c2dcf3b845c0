"""The questions of a wave go through the model, in passes of so many tokens."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch

from kvbench.engine.bundle import Bundle
from kvbench.engine.wave import Part, Wave
from kvbench.models import LoadedModel, decoder_of

TOKENS_AT_ONCE = 2048  # in one pass
MASK_NUMBERS = 2**26  # of its masks: 256 MiB in float32, which is all that a long context leaves room for


@dataclass(frozen=True)
class Reading:
    """What a pass reads of one bundle. ``wanted``: the places, among those that are read, whose next token is asked
    for, on the CPU as :attr:`Columns.last`."""

    bundle: Bundle
    rows: slice
    token_ids: torch.Tensor
    positions: torch.Tensor
    wanted: torch.Tensor


def read_shared(model: LoadedModel, wave: Wave) -> None:
    """What all questions begin with, such as the instruction, once for each row."""
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


def read_questions(model: LoadedModel, wave: Wave) -> torch.Tensor:
    """The first token of every answer, bundle by bundle, row by row. The questions of a row are read a portion at a
    time, and rows in passes of so many tokens: that bounds the memory of activations and masks."""
    first = {bundle: torch.zeros_like(bundle.active, dtype=torch.long) for bundle in wave.bundles}
    for portions in zip_longest(*(bundle.portions for bundle in wave.bundles), fillvalue=slice(0, 0)):
        for chosen in _passes(model, wave, portions):
            readings = []
            for bundle, places, rows in chosen:
                bundle.begin_questions(places, rows)
                columns = bundle.columns
                tokens = columns.token_ids[rows, places], columns.positions[rows, places]
                wanted = columns.last[columns.ending(places)] - places.start
                readings.append(Reading(bundle, rows, *tokens, wanted))
            answered = zip(chosen, _read(model, wave, readings), strict=True)
            for (bundle, places, rows), found in answered:
                first[bundle][rows, bundle.columns.ending(places)] = found
    for bundle in wave.bundles:
        bundle.grow(bundle.columns.token_ids.shape[1])
    return torch.cat([found.flatten() for found in first.values()])


def _passes(model: LoadedModel, wave: Wave, places: Sequence[slice]) -> Iterator[list[tuple[Bundle, slice, slice]]]:
    """Bundles, of each these places of so many rows, in passes bounded by activations and by what their masks take."""
    config = model.network.config.get_text_config()
    groups = config.num_attention_heads // config.num_key_value_heads
    chosen: list[tuple[Bundle, slice, slice]] = []
    room = 1.0
    for bundle, own in zip(wave.bundles, places, strict=True):
        width, start = own.stop - own.start, 0
        longest = max(bundle.kept) + max(bundle.front, bundle.columns.shared.stop)
        of_a_token = groups * max(hidden.shape[1] for hidden in bundle.hidden) * longest
        of_a_row = width * max(1 / TOKENS_AT_ONCE, of_a_token / MASK_NUMBERS)
        while width > 0 and start < bundle.rows:
            if chosen and room < of_a_row:
                yield chosen
                chosen, room = [], 1.0
            rows = slice(start, min(bundle.rows, start + max(1, int(room / of_a_row))))
            chosen.append((bundle, own, rows))
            room, start = room - (rows.stop - start) * of_a_row, rows.stop
            if start < bundle.rows:  # a bundle is at one place only in a pass
                yield chosen
                chosen, room = [], 1.0
    if chosen:
        yield chosen


def _read(model: LoadedModel, wave: Wave, readings: Sequence[Reading]) -> list[torch.Tensor]:
    """One pass: of each reading what is most likely to come after its wanted places, shape (rows, wanted)."""
    wave.parts, start, places = [], 0, []
    for reading in readings:
        rows, width = reading.token_ids.shape
        wave.parts.append(Part(reading.bundle, slice(start, start + rows * width), reading.wanted))
        places.append(start + width * torch.arange(rows)[:, None] + reading.wanted)
        start += rows * width
    answered = torch.cat([own.flatten() for own in places])
    token_ids = torch.cat([reading.token_ids.flatten() for reading in readings])
    positions = torch.cat([reading.positions.flatten() for reading in readings])
    with _last_layer_at(model, answered):
        found = forward(model, wave, token_ids, positions, answered).split([own.numel() for own in places])
    return [tokens.view_as(own) for tokens, own in zip(found, places, strict=True)]


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
    """The most likely next token at the given places of the pass, by default at all."""
    output = model.network(
        input_ids=token_ids[None],
        position_ids=positions[None],
        past_key_values=wave,
        logits_to_keep=0 if places is None else places,
        wave=wave,
    )
    best: torch.Tensor = output.logits[0].argmax(-1)
    return best
