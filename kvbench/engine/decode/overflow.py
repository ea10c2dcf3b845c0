"""Finds answers that were chosen from infinite or NaN logits, and says what made them so.

Of such logits every sampler chooses some token, so that the answer looks like one: it is a failure, with its reason.
"""

from collections.abc import Sequence

from kvbench.engine.decode.generation import Generation
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.models.load import LoadedModel
from kvbench.system.errors import KVBenchError
from policies import FULL

WIDER = {"float16": "--dtype bfloat16 or --dtype float32", "bfloat16": "--dtype float32"}


class OverflowingModelError(KVBenchError):
    """A model overflows with its full cache, so that nothing can be asked of it."""


def fault_of_model(model: LoadedModel) -> str:
    """Says that a model overflows with its full cache, and what to do."""
    wider = WIDER.get(model.dtype_name)
    what = f"use {wider}" if wider else "its weights are damaged, as no dtype is wider"
    return f"the logits of {model.name} are infinite or NaN with the full cache in {model.dtype_name}: {what}"


def fail_overflowing(model: LoadedModel, trace: Trace, generations: Sequence[Generation]) -> None:
    """Records a failure of every branch with an answer that overflows. If the full cache overflows, all branches fail,
    for the reason that is the model's, whatever their presses said of the NaN that they were handed. A fault that is
    injected may make any number: its answers stand, and are counted as detected."""
    overflowing = [generation for generation in generations if not generation.finite]
    failed = any(branch.error for branch in trace.branches)
    if not (overflowing or failed):
        return
    if any(one.branch.treatment.policy.name == FULL for one in overflowing) or not _is_finite(trace):
        for branch in trace.branches:
            _fail(branch, fault_of_model(model))
        return
    for branch in (generation.branch for generation in overflowing):
        policy = branch.treatment.policy
        if not policy.corrupts:
            what = f"the logits of {model.name} are infinite or NaN in {model.dtype_name}"
            _fail(branch, f"{policy.name} failed while decoding: with what it leaves of the cache, {what}")


def _fail(branch: Branch, reason: str) -> None:
    branch.error, branch.layers, branch.press_cache = reason, [], None


def _is_finite(trace: Trace) -> bool:
    """Tells whether the model itself read the context without an overflow."""
    return all(bool(states.isfinite().all()) for states in (*trace.keys, *trace.values))
