"""Checks whether a press is sound: it runs the contract of every policy on one press."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from kvpress import BasePress

from kvbench.checks.findings import Begin, Finding, Outcome, silent
from kvbench.checks.patient import MIDDLE, Patient, Trial, first_error, try_lengths
from kvbench.execution.local import is_small
from policies import FULL, POLICIES, Policy, Situation

Result = tuple[Outcome, str]
MAY_REFUSE = 40  # tokens of a context, up to which a press may say that it is too short
MOST_OFF = 0.05  # of the tokens of a context
REWRITES = "none can be compared: it rewrites the cache"
RUNS, LEFT_ALONE = "does it run?", "is the model left alone?"
STATE = "it carries state from one context to the next: keep none, or seed its random numbers"


def _runs(patient: Patient) -> Result:
    trace = patient.treat(patient.prompts[0], [patient.middle])
    if error := first_error(trace.branches):
        return "wrong", error
    return "ok", f"on {trace.length} tokens of {patient.model.name}"


def _prefill(patient: Patient) -> Result:
    """Compares the caches that a press leaves in a shared prefill with those of its own."""
    digests: dict[str, list[str] | None] = {}
    for kind in ("shared", "private"):
        # The same press on both ways, whichever it is declared for.
        policy = replace(patient.policy, prefill=kind)
        trace = patient.treat(patient.prompts[0], (0.25, MIDDLE), policy)
        digests[kind] = None
        if not first_error(trace.branches):
            digests[kind] = [branch.digest for branch in trace.branches]
    if patient.policy.while_decoding:
        return "note", "no: it acts while an answer is written, which is then written alone"
    if digests["shared"] is None:
        return "note", "no: it gets a prefill of its own, which costs one for every ratio"
    if patient.policy.random:
        return "note", "not compared: it draws anew in a prefill of its own"
    if digests["shared"] == digests["private"]:
        return "ok", "yes: it leaves the same cache as in a prefill of its own"
    outcome: Outcome = "note"
    if patient.policy.prefill == "shared":
        outcome = "wrong"
    if written := _written_in_place(patient):
        return outcome, (
            f"no: it writes in place to the {' and '.join(written)} that it is handed, which "
            f"in kvpress are those of the live cache: let it work on a copy "
            f"({written[0]}.clone())"
        )
    return outcome, (
        "no: in the shared one it leaves another cache than in its own. Does it draw from "
        "torch's generator, or keep something from one ratio to the next?"
    )


def _written_in_place(patient: Patient) -> list[str]:
    """Names the tensors that the press writes to while it compresses: they differ behind a call
    from before it. Writing through ``.data`` would be missed by torch's version counter."""
    written: dict[str, None] = {}

    def build(situation: Situation) -> BasePress:
        press: Any = patient.policy.build(situation)
        compress = press.compress

        def watched(
            module: Any, hidden_states: Any, keys: Any, values: Any, attentions: Any, kwargs: Any
        ) -> Any:
            handed = {"keys": keys, "values": values, "hidden_states": hidden_states}
            before = {name: states.clone() for name, states in handed.items()}
            left = compress(module, hidden_states, keys, values, attentions, kwargs)
            for name, states in handed.items():
                if not torch.equal(states, before[name]):
                    written[name] = None
            return left

        # On the instance, and so on this press alone.
        press.compress = watched
        return cast("BasePress", press)

    # In a prefill of its own, where it gets the live tensors as in kvpress; in a shared one the
    # engine hands it copies.
    watched_policy = replace(patient.policy, build=build, prefill="private")
    patient.treat(patient.prompts[0], (patient.middle,), watched_policy)
    return list(written)


def _budget(patient: Patient) -> Result:
    """Compares the tokens kept with the budget: one token of a head is rounding, and whole chunks
    make more."""
    if failed := [trial for trial in patient.trials if trial.error and trial.length > MAY_REFUSE]:
        return "wrong", f"on {_at(failed)}: {failed[0].error}"
    if patient.policy.while_decoding:
        return "note", "it is spent while decoding: see realised_ratio of a run"
    tried = [trial for trial in patient.trials if not trial.error]
    is_counted = patient.policy.counted != "nowhere"
    if whole := [trial for trial in tried if trial.keeps_all]:
        text = f"nothing is compressed: every token is kept of {_at(whole)}"
        if is_counted:
            return "wrong", text
        return "note", text
    worst = max(tried, key=lambda trial: trial.tokens_off / trial.length)
    tokens_off, ratio = worst.off
    of_length = f"of {worst.length:,}, at ratio {ratio:g}"
    text = f"at most {tokens_off:.1f} tokens of a head off ({of_length})"
    wide: list[Trial] = []
    for trial in tried:
        allowed = max(1, MOST_OFF * trial.length)
        if trial.tokens_off > allowed:
            wide.append(trial)
    if wide and is_counted:
        return "wrong", f"{text}; more than {MOST_OFF:.0%} at {_at(wide)}"
    text = f"{text}; tried on {_at(tried)}"
    if all(trial.tokens_off <= 1 for trial in tried):
        return "ok", text
    return "note", text


def _nothing_at_zero(patient: Patient) -> Result:
    tried = [trial for trial in patient.trials if not trial.error]
    if broken := [trial for trial in tried if not trial.zero]:
        return "wrong", f"its answers differ from those of the full cache at {_at(broken)}"
    return "ok", f"the full cache, or its answers, at {_at(tried)}"


def _deterministic(patient: Patient) -> Result:
    """Tries all lengths again behind other contexts and with another seed, on which nothing may
    depend."""
    left_first: dict[int, tuple[str, ...]] = {}
    for trial in patient.trials:
        if not trial.error:
            left_first[trial.length] = trial.left
    # Longest first, and so in another order: what a press carries from one context to the next
    # comes elsewhere.
    again = try_lengths(patient, sorted(left_first, reverse=True), seed=2)
    if broken := [trial for trial in again if trial.left != left_first[trial.length]]:
        return "wrong", f"a second run leaves another cache of {_at(broken[::-1])}: {STATE}"
    if patient.policy.random:
        first_draw = patient.treat(patient.prompts[0], (MIDDLE,), repeat=0)
        second_draw = patient.treat(patient.prompts[0], (MIDDLE,), repeat=1)
        if first_draw.branches[0].digest == second_draw.branches[0].digest:
            text = "it is declared random, and its second draw leaves the cache of the first"
            return "wrong", text
    return "ok", f"twice the same at {_at(again[::-1])}"


def _freed(patient: Patient) -> Result:
    trace = patient.treat(patient.prompts[0], [patient.middle])
    branch = trace.branches[0]
    held = sum(branch.layers[layer].held_rows for layer in trace.compressed)
    heads = trace.keys[0].shape[0]
    rows = len(trace.compressed) * heads * trace.length
    text = f"{1 - held / rows:.0%} of the rows at ratio {patient.middle:g}"
    if held < rows:
        return "ok", text
    return "note", text


def _unique(patient: Patient) -> Result:
    policy = patient.policy
    if policy.while_decoding:
        return "note", "not compared: it acts while decoding"
    digests: list[str] = []
    for prompt in patient.prompts:
        trace = patient.treat(prompt, [patient.middle])
        digests.append(trace.branches[0].digest)
    if _alike(patient, [POLICIES[FULL]], digests):
        text = f"at ratio {patient.middle:g} it leaves the full cache, in which every token is kept"
        return "note", text
    alike = {other.name for other in _alike(patient, patient.others, digests)}
    if alike - set(policy.same_as):
        return "wrong", f"it leaves the same cache as {', '.join(sorted(alike))} everywhere"
    name, share = patient.nearest
    nearest = REWRITES
    if name:
        nearest = f"{name} is nearest, which keeps {share:.0%} of the rows that it keeps"
    return "ok", f"yes: of {len(patient.others)} policies {nearest}"


def _alike(patient: Patient, others: Sequence[Policy], digests: Sequence[str]) -> list[Policy]:
    """Finds the policies that leave the same cache of every prompt, one prompt after the other."""
    alike = list(others)
    for prompt, digest in zip(patient.prompts, digests, strict=True):
        if not alike:
            break
        # A policy that does not reach the ratio has no branch.
        branches = patient.treat(prompt, [patient.middle], *alike).branches
        alike = []
        for branch in branches:
            if not branch.error and branch.digest == digest:
                alike.append(branch.treatment.policy)
    return alike


def _time(patient: Patient) -> Result:
    trace = patient.treat(patient.long, [patient.middle])
    if error := first_error(trace.branches):
        return "wrong", error
    milliseconds = 1000 * trace.branches[0].seconds
    press = f"{milliseconds:.1f} ms on a context of {trace.length:,} tokens"
    return "ok", f"{press}, beside {1000 * trace.seconds:.1f} of prefill"


def _at(trials: Sequence[Trial]) -> str:
    lengths = [f"{trial.length:,}" for trial in trials]
    return f"{', '.join(lengths)} tokens"


CHECKS: Mapping[str, Callable[[Patient], Result]] = {
    RUNS: _runs,
    "does it share the prefill?": _prefill,
    "is the budget kept?": _budget,
    "does ratio 0 change nothing?": _nothing_at_zero,
    "is it deterministic?": _deterministic,
    "is memory freed?": _freed,
    "is it new?": _unique,
    "time?": _time,
}


def examine(patient: Patient, begin: Begin = silent) -> Iterator[Finding]:
    """Yields all findings in turn. It stops if the press fails at once or changes the model."""
    threads = torch.get_num_threads()
    # On busy cores several threads wait for each other, which takes four times as long.
    if is_small(patient.model):
        torch.set_num_threads(1)
    try:
        yield from _examine(patient, begin)
    finally:
        torch.set_num_threads(threads)


def _examine(patient: Patient, begin: Begin) -> Iterator[Finding]:
    for question, check in CHECKS.items():
        begin(question)
        try:
            outcome, text = check(patient)
        except Exception:  # the model may raise anything once a press has damaged it
            if not patient.model.snapshot.first_change():
                raise
        # Findings on a changed model mean nothing.
        if changed := patient.model.snapshot.first_change():
            yield Finding(LEFT_ALONE, "wrong", f"it changed {changed}")
            return
        yield Finding(question, outcome, text)
        if question == RUNS and outcome == "wrong":
            return
    begin(LEFT_ALONE)
    yield Finding(LEFT_ALONE, "ok", "no weight, buffer, hook or setting changed")
