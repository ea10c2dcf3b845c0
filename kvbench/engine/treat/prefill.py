"""Reads a context once and cuts a branch of it for every treatment."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from transformers import DynamicCache

from kvbench.engine.treat.branch import (
    Branch,
    PressCache,
    Trace,
    attention_modules,
    clearing_masks,
    give_up,
    keys_and_values,
    leaving_sliding_layers,
    new_branch,
    record_faults,
    repeatable_draws,
)
from kvbench.engine.treat.keep import LayerCache, PressError, observe
from kvbench.engine.treat.plan import Scoring
from kvbench.engine.treat.scored_once import compressing_for, find_left, prefills
from kvbench.engine.treat.shared import cutting
from kvbench.models.load import LoadedModel, attention, find_decoder, rotation_switch
from kvbench.prompts.prompt import Prompt
from kvbench.system.memory import memory_bound
from policies import PolicyError

PLACE = "in its own prefill"
# By layer, keys and values right after its attention.
Full = dict[int, tuple[torch.Tensor, torch.Tensor]]


def prefill_alone(model: LoadedModel, trace: Trace, branches: Sequence[Branch]) -> None:
    """Runs the context under the press of these branches, which differ in nothing but the ratio,
    and notes what is left of every layer. If that fails for several, each is tried alone: the
    failure of one ratio is no other's.

    It is for a press that reads the context again, acts on more than one layer at a time, or
    chooses once all layers are read. The press runs under its own context manager, as in kvpress's
    pipeline."""
    first = branches[0]
    assert first.press is not None
    if give_up(branches, PLACE):
        return
    started = model.clock()
    # Some presses look for gradients: no inference mode, whose tensors have none.
    with (
        record_faults(first, PLACE, model),
        torch.inference_mode(False),
        torch.no_grad(),
        repeatable_draws(first, "prefill", model.device),
        clearing_masks(model),
        attention(
            model.network, model.network.config._attn_implementation
        ),  # KVCompose leaves another if it fails
    ):
        # Without a configuration, so that every layer keeps all tokens. What leaves a sliding
        # window is cut afterwards (LayerCache.within).
        cache = DynamicCache()
        # The order counts: hooks run in the order in which they were set, and the full rows have to
        # be noted before the press cuts them.
        with (
            _remembering(model) as full,
            leaving_sliding_layers(),
            compressing_for(model, cache, branches) as left,
            first.press(model.network),
        ):
            token_ids = torch.tensor([trace.prompt.token_ids], device=model.device)
            # Called by these keywords: KVzip puts a forward of its own in place and looks for them
            # by name.
            find_decoder(model.network)(input_ids=token_ids, past_key_values=cache)
        for branch, of_branch in zip(branches, left or [find_left(model, cache)], strict=True):
            branch.layers = [
                _observed(trace, branch, number, full[number], rows, of_branch.masks[number])
                for number, rows in enumerate(of_branch.rows)
            ]
            if branch.treatment.policy.while_decoding:
                branch.press_cache = PressCache(cache, of_branch.masks)
    # Each as if it had been run alone, like a scoring that several ratios share.
    for branch in branches:
        branch.own_prefill_seconds = max(0.0, model.clock() - started - trace.seconds)
    if first.error is not None and len(branches) > 1:
        first.error = None
        for branch in branches:
            branch.layers = []  # of those that stood before the one that failed
            prefill_alone(model, trace, [branch])


def _observed(
    trace: Trace,
    branch: Branch,
    number: int,
    full: tuple[torch.Tensor, torch.Tensor],
    left: tuple[Any, Any],
    masked: Any,
) -> LayerCache:
    """Compares a layer with its full keys and values to see what the press kept. Where its prefill
    computed other bits than the shared one, such as by another attention, the branch is read from
    its own rows."""
    keys, values = left
    if keys is None or values is None:
        raise PressError("it emptied the cache")
    policy = branch.treatment.policy
    # Of a policy that damages on purpose, NaN is a result and no failure.
    cache = observe(*full, keys, values, masked, nan=policy.treatment.corrupts)
    if trace.windows[number] is not None and (cache.keep is None or not cache.keep.all()):
        raise PressError(f"it compresses layer {number}, whose sliding window is left whole")
    same = torch.equal(full[0][0], trace.keys[number]) and torch.equal(
        full[1][0], trace.values[number]
    )
    if cache.keep is None or same:
        return cache
    return LayerCache(cache.keep, cache.held_rows, full[0][0], full[1][0])


@contextmanager
def _remembering(model: LoadedModel) -> Iterator[Full]:
    """Copies keys and values of each layer when it has read the context, before any press comes to
    them."""
    full: Full = {}

    def remember(module: Any, _: Any, kwargs: dict[str, Any], __: Any) -> None:
        # At the first reading only: KVzip and its kin read the context again.
        if module.layer_idx not in full:
            layer = kwargs["past_key_values"].layers[module.layer_idx]
            full[module.layer_idx] = layer.keys.clone(), layer.values.clone()

    with ExitStack() as hooks:  # one by one: the time of a press may be up while they are set
        for module in attention_modules(model):
            hooks.callback(module.register_forward_hook(remember, with_kwargs=True).remove)
        yield full


def prefill(model: LoadedModel, prompt: Prompt, scorings: Sequence[Scoring]) -> Trace:
    """Prefills a prompt once and cuts the branches of all scorings; those that need a prefill of
    their own get one."""
    groups = []
    branches: list[Branch] = []
    for scoring in scorings:
        group = [new_branch(treatment) for treatment in scoring]
        groups.append(group)
        branches += group
    shared = [group for group in groups if group[0].treatment.policy.prefill == "shared"]
    with memory_bound(model.device):
        trace = _read(model, prompt, shared)
        for group in groups:
            if group[0].treatment.policy.prefill == "private":
                for served in prefills(group):
                    prefill_alone(model, trace, served)
        for branch in branches:
            if branch.error is None:
                with record_faults(branch, "at the end"):
                    _check_rows(trace, branch)
                    _check_rotation(model, trace, branch)
            if branch.error is None:
                # Sliding layers were left whole; of these is kept what the first token behind the
                # context sees.
                layers = zip(branch.layers, model.windows, strict=True)
                branch.layers = [
                    layer if window is None else layer.within(window) for layer, window in layers
                ]
    trace.branches = branches
    return trace


def _check_rows(trace: Trace, branch: Branch) -> None:
    """Raises :class:`PressError` for a branch that keeps nothing of the context in any layer. With
    one budget for all layers some may be emptied: what stands there reads the question's own rows,
    as in kvpress's pipeline."""
    for number in trace.compressed:
        layer = branch.layers[number]
        # What is held of a shorter layer is what is read of it. Of one that may be masked, the host
        # has to ask.
        is_shorter = layer.held_rows < trace.keys[number].shape[0] * trace.length
        if (layer.held_rows if is_shorter else layer.read_rows) > 0:
            return
    raise PressError("it kept no token")


def _check_rotation(model: LoadedModel, trace: Trace, branch: Branch) -> None:
    """Raises :class:`PolicyError` for a branch whose questions would turn back to before the switch
    of longrope."""
    switch = rotation_switch(model)
    if switch is not None and branch.next_position <= switch < trace.length:
        raise PolicyError(
            f"it renumbers what it keeps to {branch.next_position} tokens, and beyond {switch}, "
            f"where the context was read, {model.name} turns keys by other angles (longrope)"
        )


@torch.inference_mode()
def _read(model: LoadedModel, prompt: Prompt, groups: Sequence[Sequence[Branch]]) -> Trace:
    cache = DynamicCache()
    with cutting(model, groups) as treating:
        started = model.clock()
        token_ids = torch.tensor([prompt.token_ids], device=model.device)
        # The decoder alone, as in kvpress's pipeline: nobody asks for the logits of a context.
        find_decoder(model.network)(input_ids=token_ids, past_key_values=cache)
        # Without the time of presses, which is counted for each branch.
        seconds = model.clock() - started - treating()
    return Trace(prompt, *keys_and_values(cache), seconds, [], model.windows)
