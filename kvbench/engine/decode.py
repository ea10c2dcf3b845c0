"""Greedy decoding of all questions of many branches at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from kvbench.engine.alone import answers_alone
from kvbench.engine.branch import Branch, Trace
from kvbench.engine.generation import Generation, until_end
from kvbench.engine.memory import is_out_of_memory, kv_share, memory_bound
from kvbench.engine.wave import (
    BRANCH_ATTENTION,
    Columns,
    Wave,
    make_columns,
    register_branch_attention,
)
from kvbench.engine.waves import in_waves, waves
from kvbench.errors import KVBenchError
from kvbench.models import LoadedModel, attention, decoder_of, longest_sequence
from kvbench.prompt import Prompt

TOKENS_AT_ONCE = 2048  # tokens of questions in one forward pass
MASK_NUMBERS = 2**26  # of the mask of such a pass: 256 MiB in float32, which is all that a long context leaves room for


def decode(model: LoadedModel, trace: Trace, steps: int, max_kv_bytes: int | None) -> list[Generation]:
    """Answers every question of every sound branch, at most ``steps`` tokens each.

    ``max_kv_bytes`` bounds the keys and values that are decoded at once, ``None`` by a share of what is free. A branch
    that does not fit alone fails.
    """
    check_length(model, trace.prompt, steps)
    bound = kv_share(model.device) if max_kv_bytes is None else max_kv_bytes
    with memory_bound(model.device):
        generations = _decode_together(model, trace, steps, bound)
        for branch in trace.branches:
            if branch.held is not None:
                generations += answers_alone(model, trace, branch, steps)
    return generations


@torch.inference_mode()
def _decode_together(model: LoadedModel, trace: Trace, steps: int, max_kv_bytes: int) -> list[Generation]:
    """Waves within the bound. One that finds no memory all the same is halved, and so is what is left after it."""
    register_branch_attention()
    generations: list[Generation] = []
    left, halvings = waves(trace, steps, max_kv_bytes), 0
    with attention(model.network, BRANCH_ATTENTION):
        while left:
            wave, *left = left
            if wave[0].size > max_kv_bytes:  # then it is alone in its wave
                needed = f"its keys and values need {wave[0].size / 1e9:.3g} GB"
                _fail(wave[0].of, f"{needed}, --max-kv-gb allows {max_kv_bytes / 1e9:.3g}: allow more")
            elif (found := _if_it_fits(model, trace, [row.of for row in wave], steps)) is not None:
                generations += [replace(generation, halvings=halvings) for generation in found]
            elif len(wave) == 1:
                _fail(wave[0].of, f"out of memory with {wave[0].size / 1e9:.3g} GB of keys and values: it was alone")
            else:
                halvings += 1
                rows = [row for batch in (wave, *left) for row in batch]
                left = in_waves(rows, wave[0].size * len(wave) // 2)
    return generations


def _if_it_fits(model: LoadedModel, trace: Trace, branches: Sequence[Branch], steps: int) -> list[Generation] | None:
    """``None`` where memory ends. What the error holds on to is let go with it, so that there is room again."""
    try:
        return _decode_wave(model, trace, branches, steps)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    if model.device.type == "cuda":
        torch.cuda.empty_cache()
    return None


def _fail(branch: Branch, reason: str) -> None:
    branch.error = f"{branch.treatment.policy.name} failed while decoding: {reason}"
    branch.layers = []


def check_length(model: LoadedModel, prompt: Prompt, steps: int) -> None:
    """Raises :class:`KVBenchError` if the context with its longest question and answer is more than the model takes."""
    longest = len(prompt.token_ids) + max(len(ask.token_ids) for ask in prompt.asks) + steps
    limit = longest_sequence(model)
    if longest > limit:
        raise KVBenchError(
            f"{prompt.example.id} needs {longest} tokens and {model.name} takes {limit}, the least of its "
            "positions, its tokenizer's limit and its attention windows: use shorter contexts or answers "
            "(--max-new-tokens), or another model"
        )


def _decode_wave(model: LoadedModel, trace: Trace, branches: Sequence[Branch], steps: int) -> list[Generation]:
    started = model.clock()
    columns = make_columns(trace, branches, model.device)
    wave = Wave(trace, branches, columns, steps)
    tokens = _greedy(model, wave, columns, steps).tolist()
    ends = set(model.end_tokens())
    cut = [[until_end(column, ends) for column in row] for row in tokens]
    share = (model.clock() - started) / (len(branches) * columns.count)
    return [
        Generation(branch, ask, tuple(ids), ids[-1] in ends, share)
        for branch, row in zip(branches, cut, strict=True)
        for ask, ids in zip(branch.treatment.asks, row, strict=True)
    ]


def _greedy(model: LoadedModel, wave: Wave, columns: Columns, steps: int) -> torch.Tensor:
    """Tokens of every row and column, shape (rows, columns, steps); what follows an end token means nothing."""
    rows = len(columns.token_ids)
    ends = torch.tensor(model.end_tokens(), dtype=torch.long, device=model.device)
    written = torch.zeros(rows, columns.count, steps, dtype=torch.long, device=model.device)
    alive = torch.arange(rows, device=model.device)
    _read_shared(model, wave, columns)
    latest = _read_questions(model, wave, columns)
    done = torch.isin(latest, ends)
    position = columns.positions[:, columns.last]
    every_column = torch.arange(columns.count, device=model.device)
    written[:, :, 0] = latest
    for step in range(1, steps):
        live_rows = (~done.all(dim=1)).nonzero()[:, 0]
        if len(live_rows) == 0:
            break
        if len(live_rows) <= 0.75 * len(alive):  # copying the cache pays from here on
            wave.select(live_rows)
            alive, latest, done, position = (part[live_rows] for part in (alive, latest, done, position))
        position = position + 1
        wave.begin_step()
        latest = _forward(model, wave, latest, position, every_column)
        wave.grow(columns.count)
        done |= torch.isin(latest, ends)
        written[alive, :, step] = latest
    return written


def _read_shared(model: LoadedModel, wave: Wave, columns: Columns) -> None:
    """What all questions begin with, such as the instruction, once for each row."""
    rows, shared = columns.shared_ids.shape
    if shared > 0:
        chunk = _rows_at_once(model, wave, shared)
        end = torch.tensor([shared - 1], device=model.device)
        with _last_layer_at(model, wave, end):
            for start in range(0, rows, chunk):
                some = slice(start, start + chunk)
                wave.begin_shared(some)
                _forward(model, wave, columns.shared_ids[some], columns.shared_positions[some], end)
        wave.grow(shared)
    wave.settle()


def _read_questions(model: LoadedModel, wave: Wave, columns: Columns) -> torch.Tensor:
    """The first token of every answer. Rows go through the model in chunks of like length: that bounds the memory of
    activations, and a chunk of short rows reads no padding."""
    rows = len(columns.token_ids)
    first: list[torch.Tensor] = []
    for places in wave.portions:
        chunk = _rows_at_once(model, wave, places.stop - places.start)
        lasts = columns.last - places.start
        wanted = lasts[(lasts >= 0) & (lasts < places.stop - places.start)]
        with _last_layer_at(model, wave, wanted):
            parts = []
            for start in range(0, rows, chunk):
                some = slice(start, start + chunk)
                wave.begin_questions(places, some)
                token_ids, positions = columns.token_ids[some, places], columns.positions[some, places]
                parts.append(_forward(model, wave, token_ids, positions, wanted))
        first.append(torch.cat(parts))
    wave.grow(columns.token_ids.shape[1])
    return torch.cat(first, dim=1)


def _rows_at_once(model: LoadedModel, wave: Wave, width: int) -> int:
    """Rows of so many places in one pass, bounded by activations and by what their mask takes."""
    config = model.network.config.get_text_config()
    groups = config.num_attention_heads // config.num_key_value_heads
    heads = max(hidden.shape[1] for hidden in wave.hidden)
    of_a_token = groups * heads * (max(wave.kept) + wave.front)
    return int(max(1, min(TOKENS_AT_ONCE, MASK_NUMBERS // of_a_token) // width))


@contextmanager
def _last_layer_at(model: LoadedModel, wave: Wave, places: torch.Tensor) -> Iterator[None]:
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
    wave.wanted_last = places
    try:
        yield
    finally:
        wave.wanted_last = None
        for hook in hooks:
            hook.remove()


def _forward(
    model: LoadedModel, wave: Wave, token_ids: torch.Tensor, positions: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    """The most likely next token at the given places, shape (rows, len(places))."""
    output = model.network(
        input_ids=token_ids, position_ids=positions, past_key_values=wave, logits_to_keep=places, wave=wave
    )
    best: torch.Tensor = output.logits.argmax(-1)
    return best
