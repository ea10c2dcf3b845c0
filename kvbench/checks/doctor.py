"""Checks whether a press is sound: it runs the contract of every policy on one press."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from kvbench.checks.findings import Begin, Finding, Outcome, silent
from kvbench.checks.patient import (
    MIDDLE,
    Patient,
    Result,
    budget_kept,
    error_of,
    nothing_at_zero,
    repeated,
)
from kvbench.models.load import LoadedModel
from kvbench.run.local import is_small
from policies import FULL, POLICIES, Policy

SOME = (0.25, MIDDLE)
SHORT = (2, 5, 16, 40)
RUNS, LEFT_ALONE = "does it run?", "is the model left alone?"


def _runs(patient: Patient) -> Result:
    trace = patient.treat(patient.prompts[0], [patient.middle])
    if error := error_of(trace.branches):
        return "wrong", error
    return "ok", f"on {trace.length} tokens of {patient.model.name}"


def _prefill(patient: Patient) -> Result:
    digests = {}
    for kind in ("shared", "private"):
        policy = replace(patient.policy, prefill=kind)
        trace = patient.treat(patient.prompts[0], SOME, policy)
        digests[kind] = None if error_of(trace.branches) else [branch.digest for branch in trace.branches]
    if patient.policy.while_decoding:
        return "note", "no: it acts while an answer is written, which is then written alone"
    if digests["shared"] is None:
        return "note", "no: it gets a prefill of its own, which costs one for every ratio"
    if patient.policy.random:
        return "note", "not compared: it draws anew in a prefill of its own"
    if digests["shared"] != digests["private"]:
        outcome: Outcome = "wrong" if patient.policy.prefill == "shared" else "note"
        return outcome, (
            "no: in the shared one it leaves another cache than in its own. Does it draw from torch's generator, or "
            "keep something from one ratio to the next?"
        )
    return "ok", "yes: it leaves the same cache as in a prefill of its own"


def _short(patient: Patient) -> Result:
    """Reports short contexts that the press refuses, which it may."""
    prompt, refused = patient.prompts[0], []
    for length in SHORT:
        questions = tuple(replace(question, answer_tokens=(), evidence_tokens=()) for question in prompt.questions)
        context = tuple(range(max(1, length - prompt.question_tokens)))
        ids = prompt.token_ids[len(prompt.token_ids) - length :]
        cut = replace(prompt, token_ids=ids, context_tokens=context, questions=questions, stretches=())
        trace = patient.treat(cut, [patient.middle])
        refused += [(length, error)] if (error := error_of(trace.branches)) else []
    if not refused:
        return "ok", f"treated down to {SHORT[0]} tokens"
    return ("note", f"fails on {', '.join(str(n) for n, _ in refused)} tokens: {refused[-1][1]}")


def _freed(patient: Patient) -> Result:
    trace = patient.treat(patient.prompts[0], [patient.middle])
    held = sum(trace.branches[0].layers[layer].held_rows for layer in trace.compressed)
    rows = len(trace.compressed) * trace.keys[0].shape[0] * trace.length
    outcome: Outcome = "ok" if held < rows else "note"
    return outcome, f"{1 - held / rows:.0%} of the rows at ratio {patient.middle:g}"


def _unique(patient: Patient) -> Result:
    if patient.policy.while_decoding:
        return "note", "not compared: it acts while decoding"
    digests = [patient.treat(prompt, [patient.middle]).branches[0].digest for prompt in patient.prompts]
    if _alike(patient, [POLICIES[FULL]], digests):
        return "note", f"at ratio {patient.middle:g} it leaves the full cache, in which every token is kept"
    others = patient.others
    alike = {other.name for other in _alike(patient, others, digests)}
    if alike - set(patient.policy.same_as):
        return "wrong", f"it leaves the same cache as {', '.join(sorted(alike))} everywhere"
    return "ok", f"no: compared with {len(others)} policies on {len(patient.prompts)} contexts"


def _alike(patient: Patient, others: Sequence[Policy], digests: Sequence[str]) -> list[Policy]:
    """Finds the policies that leave the same cache of every prompt. All share one prefill of the first, and the next is
    read only for those that are the same so far."""
    for prompt, digest in zip(patient.prompts, digests, strict=True):
        branches = patient.treat(prompt, [patient.middle], *others).branches if others else []
        # A policy that does not reach the ratio has no branch.
        others = [one.treatment.policy for one in branches if not one.error and one.digest == digest]
    return list(others)


def _time(patient: Patient) -> Result:
    trace = patient.treat(patient.long, [patient.middle])
    if error := error_of(trace.branches):
        return "wrong", error
    seconds, beside = trace.branches[0].seconds, trace.seconds
    return (
        "ok",
        f"{1000 * seconds:.1f} ms on a context of {trace.length:,} tokens, beside {1000 * beside:.1f} of prefill",
    )


CHECKS: Mapping[str, Callable[[Patient], Result]] = {
    RUNS: _runs,
    "does it share the prefill?": _prefill,
    "is the budget kept?": budget_kept,
    "does ratio 0 change nothing?": nothing_at_zero,
    "is it deterministic?": repeated,
    "short contexts?": _short,
    "is memory freed?": _freed,
    "is it another policy under a new name?": _unique,
    "time?": _time,
}


def examine(patient: Patient, begin: Begin = silent) -> Iterator[Finding]:
    """Yields all findings in turn. It stops if the press fails at once or changes the model."""
    with _threads_of(patient.model):
        yield from _examine(patient, begin)


@contextmanager
def _threads_of(model: LoadedModel) -> Iterator[None]:
    """Leaves a small model one thread: on busy cores several wait for each other, which takes four times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if is_small(model) else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _examine(patient: Patient, begin: Begin) -> Iterator[Finding]:
    for question, check in CHECKS.items():
        begin(question)
        try:
            outcome, text = check(patient)
        except Exception:  # the model may raise anything once a press has damaged it
            if not patient.model.snapshot.first_change():
                raise
        if changed := patient.model.snapshot.first_change():  # findings on a changed model mean nothing
            yield Finding(LEFT_ALONE, "wrong", f"it changed {changed}")
            return
        yield Finding(question, outcome, text)
        if question == RUNS and outcome == "wrong":
            return
    begin(LEFT_ALONE)
    yield Finding(LEFT_ALONE, "ok", "no weight, buffer, hook or setting changed")
