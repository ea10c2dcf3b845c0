"""Greedy decoding of all questions of many branches at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kvbench.engine.alone import answers_alone
from kvbench.engine.bounds import memory_bound
from kvbench.engine.branch import Branch, Trace
from kvbench.engine.generation import Generation, until_end
from kvbench.engine.wave import (
    BRANCH_ATTENTION,
    PLACES_AT_ONCE,
    Columns,
    Wave,
    make_columns,
    register_branch_attention,
    shared_start,
)
from kvbench.errors import KVBenchError
from kvbench.models import LoadedModel, attention, decoder_of, longest_sequence
from kvbench.prompt import Prompt

TOKENS_AT_ONCE = 2048  # tokens of questions in one forward pass


def decode(model: LoadedModel, trace: Trace, steps: int, max_kv_bytes: int) -> list[Generation]:
    """Answers every question of every sound branch, at most ``steps`` tokens each."""
    check_length(model, trace.prompt, steps)
    generations = _decode_together(model, trace, steps, max_kv_bytes)
    with memory_bound(model.device):
        for branch in trace.branches:
            if branch.held is not None:
                generations += answers_alone(model, trace, branch, steps)
    return generations


@torch.inference_mode()
def _decode_together(model: LoadedModel, trace: Trace, steps: int, max_kv_bytes: int) -> list[Generation]:
    register_branch_attention()
    generations = []
    with attention(model.network, BRANCH_ATTENTION):
        for branches in waves(trace, steps, max_kv_bytes):
            generations.extend(_decode_wave(model, trace, branches, steps))
    return generations


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


def waves(trace: Trace, steps: int, max_kv_bytes: int) -> list[list[Branch]]:
    """The sound branches whose presses are done, in batches of at most ``max_kv_bytes`` of cache, longest together,
    one row at least.

    Branches that ask as many questions go together, and those that keep as many tokens in every head and layer, since
    one mask then serves all layers.
    """
    batches: list[list[Branch]] = []
    groups: dict[tuple[int, bool], list[Branch]] = {}
    for branch in trace.branches:
        if branch.error is None and branch.held is None:
            groups.setdefault((len(branch.treatment.asks), _even(branch)), []).append(branch)
    for group in groups.values():
        group.sort(key=_longest, reverse=True)
        start = 0
        while start < len(group):
            rows = max(1, max_kv_bytes // _row_bytes(trace, group[start], steps))
            batches.append(group[start : start + rows])
            start += rows
    return batches


def _even(branch: Branch) -> bool:
    """Whether the branch keeps as many rows in every head and layer."""
    counts = [cache.keep.sum(-1) for cache in branch.layers if cache.keep is not None]
    return len(counts) == len(branch.layers) and all(bool((count == counts[0][0]).all()) for count in counts)


def _longest(branch: Branch) -> int:
    """Most rows that a head of the branch reads in any layer."""
    return max(
        int(cache.keep.sum(-1).max()) if cache.keep is not None else cache.read_rows // cache.keys.shape[0]  # type: ignore[union-attr]
        for cache in branch.layers
    )


def _row_bytes(trace: Trace, branch: Branch, steps: int) -> int:
    """Bytes of keys and values of one row of a wave, with room for its questions and answers."""
    questions = [trace.prompt.asks[number].token_ids for number in branch.treatment.asks]
    shared = shared_start([questions])
    asked = [len(question) - shared for question in questions]
    grown = shared + sum(asked) + steps * len(asked) + max(PLACES_AT_ONCE, *asked)
    heads, _, size = trace.keys[0].shape
    rows = (_longest(branch) + grown) * heads * len(trace.keys)
    return 2 * rows * size * trace.keys[0].element_size()


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
        chunk = max(1, TOKENS_AT_ONCE // shared)
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
        chunk = max(1, TOKENS_AT_ONCE // (places.stop - places.start))
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
