"""Answers written alone, one after the other, while a press goes on cutting the cache, as in kvpress's pipeline."""

import torch
from transformers import DynamicCache

from kvbench.engine.branch import Branch, Held, Trace, draws_of, faults_of
from kvbench.engine.generation import Generation, Remains
from kvbench.engine.guard import attention_modules, left_as_it_was, masks_of
from kvbench.engine.keep import LayerCache, digest_of, survivors
from kvbench.models import LoadedModel


def answers_alone(model: LoadedModel, trace: Trace, branch: Branch, steps: int) -> list[Generation]:
    """The answers to all questions of a branch whose press acts while decoding; none if it fails in any of them."""
    generations = []
    for ask in branch.treatment.asks:
        started = model.clock()
        with (
            faults_of(branch, "while decoding"),
            torch.inference_mode(False),
            torch.no_grad(),
            draws_of(branch, f"answer {ask}", model.device),
            left_as_it_was(model),
        ):
            cache = _copied(model, branch.held)
            # A press remembers what it has seen: a fresh one for every question.
            with branch.treatment.policy.press(branch.treatment.situation)(model.network):
                token_ids = _greedy(model, cache, trace.prompt.asks[ask].token_ids, branch.next_position, steps)
            tokens = trace.length + len(trace.prompt.asks[ask].token_ids) + len(token_ids) - 1
            remains = _remains(model, trace, branch, cache, tokens)
            ended, seconds = token_ids[-1] in model.end_tokens(), model.clock() - started
            generations.append(Generation(branch, ask, tuple(token_ids), ended, seconds, remains))
        if branch.error is not None:
            return []
    return generations


def _copied(model: LoadedModel, held: Held | None) -> DynamicCache:
    assert held is not None
    cache = DynamicCache()
    for number, (layer, module) in enumerate(zip(held.cache.layers, attention_modules(model), strict=True)):
        assert layer.keys is not None
        assert layer.values is not None
        cache.update(layer.keys.clone(), layer.values.clone(), number)
        module.masked_key_indices = held.masked[number]
    return cache


def _greedy(model: LoadedModel, cache: DynamicCache, question: tuple[int, ...], position: int, steps: int) -> list[int]:
    """The tokens of the answer, the end token among them if one comes."""
    ends = model.end_tokens()
    pending, written = list(question), list[int]()
    while len(written) < steps and not (written and written[-1] in ends):
        places = torch.arange(position, position + len(pending), device=model.device)
        output = model.network(
            input_ids=torch.tensor([pending], device=model.device),
            past_key_values=cache,
            position_ids=places[None],
            logits_to_keep=1,
        )
        position += len(pending)
        written.append(int(output.logits[0, -1].argmax()))
        pending = written[-1:]
    return written


def _remains(model: LoadedModel, trace: Trace, branch: Branch, cache: DynamicCache, tokens: int) -> Remains:
    keys = [layer.keys[0] for layer in cache.layers if layer.keys is not None]
    values = [layer.values[0] for layer in cache.layers if layer.values is not None]
    masked = any(masks_of(module) is not None for module in attention_modules(model))
    keep = None
    if not masked and not branch.treatment.policy.rewrites:
        keep = tuple(survivors(full, left) for full, left in zip(trace.keys, keys, strict=True))
    own = [LayerCache(None, 0, *states) for states in zip(keys, values, strict=True)]
    return Remains(keep, sum(left.shape[0] * left.shape[1] for left in keys), tokens, digest_of(own))
