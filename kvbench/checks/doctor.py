"""Checks whether a press is sound: it runs the contract of every policy on one press."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from kvpress.utils import compute_n_kept

from kvbench.checks.findings import Begin, Finding, Outcome, silent
from kvbench.checks.patient import (
    CONTEXTS,
    MIDDLE,
    TYPICAL,
    Patient,
    Result,
    budget_kept,
    error_of,
    nothing_at_zero,
    repeated,
)
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Setting
from kvbench.models.load import LoadedModel
from kvbench.run.local import is_small
from policies import FULL, POLICIES, Policy, Situation, argument_warnings, arguments_of, at_ratios
from policies.declaration.names import RANDOM
from policies.declaration.same_code import presses_inside

# A press that scores by infinities, by values that are no numbers, or all tokens alike runs, keeps its budget and is
# deterministic; and yet what it keeps has nothing to do with the context.

MANY_ALIKE = 0.5  # of the tokens of a head, from which on ties are worth a note


@dataclass(frozen=True)
class Scores:
    """The scores that a press gave to the tokens of one layer, by one call of its ``score``."""

    values: torch.Tensor  # shape (..., tokens)
    ratio: float  # the share of the tokens that was to be removed


def recording(policy: Policy, seen: list[Scores]) -> Policy:
    """Returns the policy with a press whose ``score``, and that of presses inside, adds what it returns to ``seen``."""

    def build(situation: Situation) -> Any:
        press = policy.build(situation)
        _record(press, situation.ratio, seen)
        return press

    return replace(policy, build=build)


def has_score(press: Any) -> bool:
    """Tells whether a press, or one inside it, has a method that scores."""
    return callable(getattr(type(press), "score", None)) or any(map(has_score, presses_inside(press)))


def _record(press: Any, ratio: float, seen: list[Scores]) -> None:
    """Gives a press, and those inside it, a class of its own whose ``score`` records: the engine sets and deletes
    ``score`` of objects."""
    for inside in presses_inside(press):
        _record(inside, ratio, seen)
    kind = type(press)
    if not callable(getattr(kind, "score", None)):
        return

    def score(self: Any, *inputs: Any, **more: Any) -> Any:
        values = kind.score(self, *inputs, **more)
        if isinstance(values, torch.Tensor) and values.ndim and values.is_floating_point():
            seen.append(Scores(values.detach().clone(), ratio))
        return values

    press.__class__ = type(kind.__name__, (kind,), {"score": score, "__module__": kind.__module__})


def judge(seen: list[Scores]) -> tuple[Outcome, str]:
    """Says in a line whether scores decide what is kept."""
    if not seen:
        return "ok", "not compared: it has no method score"
    heads = [head for scores in seen for head in _heads(scores)]
    if any(head.not_finite for head in heads):
        return "wrong", "scores are not finite: kept tokens are arbitrary"
    alike = [head.alike for head in heads if head.alike >= MANY_ALIKE]
    if not alike:
        return "ok", "they are finite where they decide, and tell the tokens apart"
    which = "" if len(alike) == len(heads) else f" in {len(alike)} of {len(heads)} heads"
    if min(alike) == 1:
        return "note", f"all scores are equal{which}: the press keeps by position alone"
    return "note", f"{min(alike):.0%} of the scores are equal{which}: among these the press keeps by position alone"


@dataclass(frozen=True)
class _Head:
    not_finite: bool  # NaN, or infinite where the last token is chosen
    alike: float  # the share of the tokens that have the score at which the cut is, if some of these are evicted


def _heads(scores: Scores) -> Iterator[_Head]:
    for values in scores.values.reshape(-1, scores.values.shape[-1]):
        kept = compute_n_kept(len(values), scores.ratio)
        if values.isnan().any():
            yield _Head(not_finite=True, alike=0.0)
            continue
        ordered = values.sort(descending=True).values
        last = ordered[kept - 1]
        tied = kept < len(values) and bool(last == ordered[kept])  # a token of the same score is evicted
        yield _Head(tied and bool(last.isinf()), float((values == last).float().mean()) if tied else 0.0)


SOME = (0.25, MIDDLE)
SHORT = (2, 5, 16, 40)
WINDOW = "window_size"
USUAL_WINDOWS = (64, 32, 16, 8)  # which a press may have without an argument
RUNS, LEFT_ALONE = "does it run?", "is the model left alone?"


def _runs(patient: Patient) -> Result:
    trace = patient.treat(patient.prompts[0], [patient.middle])
    if error := error_of(trace.branches):
        return "wrong", error
    return "ok", f"on {trace.length} tokens of {patient.model.name}"


def _scores(patient: Patient) -> Result:
    seen: list[Scores] = []
    policy = recording(patient.policy, seen)
    for ratio in {SOME[0], patient.middle}:
        patient.treat(patient.prompts[0], [ratio], policy)
    if not seen and has_score(patient.policy.press(patient.policy.typical_situation(TYPICAL, TYPICAL))):
        return "note", "not judged: its own compress makes no use of its method score"
    return judge(seen)


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
    if patient.policy.name not in POLICIES and (what := _other_arguments(patient, others, digests)):
        return "note", what
    return "ok", f"no: compared with {len(others)} policies on {len(patient.prompts)} contexts"


def _other_arguments(patient: Patient, others: Sequence[Policy], digests: Sequence[str]) -> str:
    """Says which policy it is with other arguments: one whose code it runs, or one that leaves the same cache once its
    window is another; nothing if none is."""
    if warnings := argument_warnings(patient.policy, others):
        return warnings[0]
    situation = patient.policy.typical_situation(len(patient.prompts[0].token_ids))
    arguments = arguments_of(patient.policy.press(situation)).values()
    sizes = dict.fromkeys([value for value in arguments if type(value) is int and value > 0] + list(USUAL_WINDOWS))
    windows = [_with_window(other, size) for other in others if WINDOW in other.paper_arguments for size in sizes]
    for same in _alike(patient, windows, digests):
        return f"yes, with another argument: it leaves the cache of {same.name} everywhere"
    return ""


def _alike(patient: Patient, others: Sequence[Policy], digests: Sequence[str]) -> list[Policy]:
    """Finds the policies that leave the same cache of every prompt. All share one prefill of the first, and the next is
    read only for those that are the same so far."""
    for prompt, digest in zip(patient.prompts, digests, strict=True):
        branches = patient.treat(prompt, [patient.middle], *others).branches if others else []
        # A policy that does not reach the ratio has no branch.
        others = [one.treatment.policy for one in branches if not one.error and one.digest == digest]
    return list(others)


def _with_window(policy: Policy, size: int) -> Policy:
    def build(situation: Situation) -> Any:
        press = policy.build(situation)
        if hasattr(press, WINDOW):
            setattr(press, WINDOW, size)
        return press

    return replace(policy, name=f"{policy.name} with {WINDOW} {size}", build=build)


def _worth(patient: Patient) -> Result:
    """Tells what is right beside random tokens and the full cache, and that so few contexts measure nothing."""
    policies = {policy.name: policy for policy in (POLICIES[FULL], POLICIES[RANDOM], patient.policy)}
    setting = Setting(list(policies.values()), at_ratios([patient.middle]), mode=patient.mode)
    examples = [patient.task.example(0, index) for index in range(CONTEXTS)]
    scores: dict[str, list[float]] = {name: [] for name in policies}
    for record in collect(patient.model, patient.task, examples, setting).records:
        if record.right is not None:
            scores[record.policy].append(100 * record.right)
    if not all(scores.values()):
        return "note", f"not compared: {patient.task.name} has no gold answers"
    means = {name: sum(values) / len(values) for name, values in scores.items()}
    mean, count = means[patient.policy.name], len(scores[patient.policy.name])
    return "note", (
        f"right: {mean:.0f} % at ratio {patient.middle:g}, random tokens {means[RANDOM]:.0f}, full cache "
        f"{means[FULL]:.0f}{', so that it may keep the wrong tokens' * (mean < means[RANDOM])}. {CONTEXTS} contexts of "
        f"{patient.task.name} ({count} questions) measure little: compare measures it"
    )


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
    "do its scores choose?": _scores,
    "does it share the prefill?": _prefill,
    "is the budget kept?": budget_kept,
    "does ratio 0 change nothing?": nothing_at_zero,
    "is it deterministic?": repeated,
    "short contexts?": _short,
    "is memory freed?": _freed,
    "is it another policy under a new name?": _unique,
    "right beside random?": _worth,
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
