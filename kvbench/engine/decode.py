"""Greedy decoding of all questions of many branches at once."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from kvbench.engine.alone import answers_alone
from kvbench.engine.branch import Branch, Trace
from kvbench.engine.generation import Generation, until_end
from kvbench.engine.memory import is_out_of_memory, kv_share, memory_bound
from kvbench.engine.reading import forward, read_questions, read_shared
from kvbench.engine.wave import BRANCH_ATTENTION, Wave, register_branch_attention
from kvbench.engine.waves import in_waves, rows_of, size_of, waves
from kvbench.errors import KVBenchError
from kvbench.models import LoadedModel, attention, longest_sequence
from kvbench.prompt import Prompt

LOOK_EVERY = {"cpu": 1, "cuda": 8}  # steps: on a GPU each look for answers that have ended waits for all its work


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
            size = size_of(wave)
            if size > max_kv_bytes:
                (alone,) = rows_of([wave])
                needed = f"its keys and values need {size / 1e9:.3g} GB"
                _fail(alone.of, f"{needed}, --max-kv-gb allows {max_kv_bytes / 1e9:.3g}: allow more")
            elif (found := _if_it_fits(model, trace, [[row.of for row in rows] for rows in wave], steps)) is not None:
                generations += [replace(generation, halvings=halvings) for generation in found]
            elif len(rows_of([wave])) == 1:
                _fail(wave[0][0].of, f"out of memory with {size / 1e9:.3g} GB of keys and values: it was alone")
            else:
                halvings += 1
                left = in_waves(rows_of([wave, *left]), size // 2, model.device)
    return generations


def _if_it_fits(
    model: LoadedModel, trace: Trace, branches: Sequence[Sequence[Branch]], steps: int
) -> list[Generation] | None:
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


def _decode_wave(
    model: LoadedModel, trace: Trace, branches: Sequence[Sequence[Branch]], steps: int
) -> list[Generation]:
    """``branches``: of each bundle."""
    started = model.clock()
    wave = Wave(trace, branches, steps)
    asked = [(branch, ask) for own in branches for branch in own for ask in branch.treatment.asks]
    tokens = _greedy(model, wave, steps).tolist()
    ends = set(model.end_tokens())
    answers = [until_end(ids, ends) for ids in tokens]
    share = (model.clock() - started) / len(asked)
    return [
        Generation(branch, ask, tuple(ids), ids[-1] in ends, share)
        for (branch, ask), ids in zip(asked, answers, strict=True)
    ]


def _greedy(model: LoadedModel, wave: Wave, steps: int) -> torch.Tensor:
    """Tokens of every answer, bundle by bundle, row by row, shape (answers, steps); what follows an end token means
    nothing."""
    ends = torch.tensor(model.end_tokens(), dtype=torch.long, device=model.device)
    look_every = LOOK_EVERY[model.device.type]
    read_shared(model, wave)
    latest = read_questions(model, wave)
    position = torch.cat([bundle.columns.positions[:, bundle.columns.last].flatten() for bundle in wave.bundles])
    written = latest.new_zeros(len(latest), steps)
    written[:, 0] = latest
    answers, done = torch.arange(len(latest), device=model.device), torch.isin(latest, ends)
    for step in range(1, steps):
        if step % look_every == 0 and bool(done.any()):
            going = ~done
            wave.keep_answering(going)
            answers, latest, position, done = (part[going] for part in (answers, latest, position, done))
        if not wave.bundles:
            break
        position = position + 1
        wave.begin_step()
        latest = forward(model, wave, latest, position, None)
        wave.grow_step()
        done |= torch.isin(latest, ends)
        written[answers, step] = latest
    return written
