"""Decodes all questions of many branches at once."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from kvbench.engine.decode.alone import answers_alone
from kvbench.engine.decode.generation import Generation
from kvbench.engine.decode.loop import Decoding, Observer, Sampler, greedy
from kvbench.engine.decode.overflow import fail_overflowing
from kvbench.engine.decode.rows import Row
from kvbench.engine.decode.together import Golds, TreatApartError, answers_of_wave
from kvbench.engine.decode.wave import BRANCH_ATTENTION, register_branch_attention
from kvbench.engine.decode.waves import in_waves, rows_of, size_of, waves
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.models.load import LoadedModel, attention, check_places, embeddings_of, longest_sequence, rotation_switch
from kvbench.prompts.prompt import Prompt
from kvbench.system.errors import KVBenchError
from kvbench.system.memory import is_out_of_memory, kv_share, memory_bound
from policies import FULL, POLICIES


def decode(
    model: LoadedModel,
    trace: Trace,
    steps: int,
    max_kv_bytes: int | None,
    sampler: Sampler = greedy,
    observers: Sequence[Observer] = (),
    gold: bool = False,
) -> list[Generation]:
    """Answers every question of every sound branch, at most ``steps`` tokens each.

    ``max_kv_bytes`` bounds the keys and values that are decoded at once, ``None`` by a share of what is free. A branch
    that does not fit alone fails. ``gold``: whether the likelihood of right answers is measured.
    """
    check_length(model, trace.prompt, steps)
    decoding = Decoding(steps, sampler, observers, gold)
    bound = kv_share(model.device) if max_kv_bytes is None else max_kv_bytes
    with memory_bound(model.device):
        generations = _decode_together(model, trace, decoding, bound)
        for branch in trace.branches:
            if branch.press_cache is not None:
                generations += answers_alone(model, trace, branch, decoding)
    fail_overflowing(model, trace, generations)
    return [generation for generation in generations if generation.branch.error is None]


@torch.inference_mode()
def _decode_together(model: LoadedModel, trace: Trace, decoding: Decoding, max_kv_bytes: int) -> list[Generation]:
    """Decodes waves within the bound. A wave that finds no memory all the same is halved, with all waves after it."""
    register_branch_attention()
    generations: list[Generation] = []
    golds: Golds = {}
    queue, halvings = waves(trace, decoding.steps, max_kv_bytes, decoding.gold), 0
    with attention(model.network, BRANCH_ATTENTION):
        while queue:
            wave, *queue = queue
            wave = [sound for rows in wave if (sound := [row for row in rows if row.of.error is None])]
            size, needed = size_of(wave), f"{size_of(wave) / 1e9:.3g} GB"
            if size > max_kv_bytes:  # then it is one row
                reason = f"its keys and values need {needed}, --max-kv-gb allows {max_kv_bytes / 1e9:.3g}: allow more"
            else:
                try:
                    result = _if_it_fits(model, trace, wave, decoding)
                except TreatApartError:
                    queue = [wave, *queue]
                    continue
                if result is not None:
                    generations += [replace(generation, halvings=halvings) for generation in result[0]]
                    golds |= result[1]
                    continue
                reason = f"out of memory with {needed} of keys and values: it was alone"
            if len(rows := rows_of([wave])) > 1:
                halvings += 1
                queue = in_waves([*rows, *rows_of(queue)], size // 2, model.device)
                continue
            branch = rows[0].of
            branch.error = f"{branch.treatment.policy.name} failed while decoding: {reason}"
            branch.layers = []
    return [replace(one, gold=golds.get((id(one.branch), one.question))) for one in generations]


def _if_it_fits(
    model: LoadedModel, trace: Trace, wave: Sequence[Sequence[Row[Branch]]], decoding: Decoding
) -> tuple[list[Generation], Golds] | None:
    """Answers a wave, or returns ``None`` where memory ends. Whatever the error holds is freed with it."""
    try:
        return answers_of_wave(model, trace, wave, decoding)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    if model.device.type == "cuda":
        torch.cuda.empty_cache()
    return None


def check_logits(model: LoadedModel, prompt: Prompt) -> None:
    """Raises :class:`KVBenchError` if the model cannot answer a prompt with its full cache, for which no press is to
    blame: its logits are infinite or NaN."""
    trace = prefill(model, prompt, plan([POLICIES[FULL]], (), prompt, seed=0))
    decode(model, trace, 1, None)
    if error := trace.branches[0].error:
        raise KVBenchError(error)


def check_length(model: LoadedModel, prompt: Prompt, steps: int) -> None:
    """Raises :class:`KVBenchError` if the context with its longest question and answer is more than the model takes, or
    crosses the length where longrope switches, or if one of its tokens has no embedding: some published tokenizers have
    more entries than their model."""
    highest = max(max(ids, default=0) for ids in (prompt.token_ids, *(one.token_ids for one in prompt.questions)))
    if highest >= (embeddings := embeddings_of(model.network)):
        raise KVBenchError(
            f"{prompt.example.id} holds the token {highest} ({model.tokenizer.convert_ids_to_tokens(highest)!r}), and "
            f"{model.name} has {embeddings:,} embeddings: use the tokenizer that belongs to the model"
        )
    turns = [len(question.token_ids) + max(steps, len(question.gold_ids)) for question in prompt.questions]
    longest = len(prompt.token_ids) + max(turns)
    check_places(prompt.example.id, model.name, longest, longest_sequence(model))
    switch = rotation_switch(model)
    # All that shares a pass switches with its longest sequence, and what is cached stays turned as it was before.
    if switch is not None and len(prompt.token_ids) <= switch < longest:
        raise KVBenchError(
            f"{prompt.example.id} has {len(prompt.token_ids)} tokens, and {longest} with question and answer: beyond "
            f"{switch} {model.name} turns keys by other angles (longrope), and the cache is turned by the former; use "
            "contexts that end before it with question and answer, or longer ones (run --context-tokens)"
        )
