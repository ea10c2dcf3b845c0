"""Reads a context once and cuts a branch of it for every treatment."""

from collections.abc import Sequence

import torch
from transformers import DynamicCache

from kvbench.engine.treat.branch import Branch, Trace, faults_of, new_branch
from kvbench.engine.treat.plan import Scoring
from kvbench.engine.treat.private import prefill_alone
from kvbench.engine.treat.shared import Group, cutting
from kvbench.models.load import LoadedModel, decoder_of, rotation_switch
from kvbench.prompts.prompt import Prompt
from kvbench.system.memory import memory_bound
from policies import PolicyError


def prefill(model: LoadedModel, prompt: Prompt, scorings: Sequence[Scoring]) -> Trace:
    """Prefills a prompt once and cuts the branches of all scorings; those that need a prefill of their own get one."""
    groups = [(scoring, [new_branch(treatment) for treatment in scoring.treatments]) for scoring in scorings]
    branches = [branch for _, of_scoring in groups for branch in of_scoring]
    shared = [group for group in groups if group[0].policy.prefill == "shared"]
    with memory_bound(model.device):
        trace = _read(model, prompt, shared)
        for branch in branches:
            if branch.treatment.policy.prefill == "private" and branch.error is None:
                prefill_alone(model, trace, branch)
            if branch.error is None:
                with faults_of(branch, "at the end"):
                    _check_rotation(model, trace, branch)
            if branch.error is None:
                layers = zip(branch.layers, model.windows, strict=True)
                branch.layers = [layer if window is None else layer.within(window) for layer, window in layers]
    trace.branches = branches
    return trace


def _check_rotation(model: LoadedModel, trace: Trace, branch: Branch) -> None:
    """Raises :class:`PolicyError` for a branch whose questions would turn back to before the switch of longrope."""
    switch = rotation_switch(model)
    if switch is not None and branch.next_position <= switch < trace.length:
        raise PolicyError(
            f"it renumbers what it keeps to {branch.next_position} tokens, and beyond {switch}, where the context was "
            f"read, {model.name} turns keys by other angles (longrope)"
        )


@torch.inference_mode()
def _read(model: LoadedModel, prompt: Prompt, groups: Sequence[Group]) -> Trace:
    cache = DynamicCache()
    with cutting(model, groups) as treating:
        started = model.clock()
        token_ids = torch.tensor([prompt.token_ids], device=model.device)
        decoder_of(model.network)(input_ids=token_ids, past_key_values=cache)
        seconds = model.clock() - started - treating()
    keys = [layer.keys[0] for layer in cache.layers if layer.keys is not None]
    values = [layer.values[0] for layer in cache.layers if layer.values is not None]
    return Trace(prompt, keys, values, seconds, [], model.windows)
