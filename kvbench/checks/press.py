"""Checks whether a press is sound: it runs the contract of every policy on one press."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, islice
from typing import Any, cast

import torch
from kvpress import BasePress
from transformers import PreTrainedTokenizerBase, set_seed

from datasets_gen import TASKS
from kvbench.checks.findings import Begin, Finding, Outcome, silent
from kvbench.engine.decode.answers import check_logits, decode
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.execution.local import is_small
from kvbench.experiments.catalogue import why_not
from kvbench.models.load import LoadedModel, longest_sequence
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import Prompt, build_prompts
from policies import FULL, POLICIES, Point, Policy, Situation, at_ratios

Result = tuple[Outcome, str]
MIDDLE = 0.5
STEPS = 8  # tokens of an answer
CONTEXTS = 3
LENGTHS = (32, 108, 300, 1_000, 4_000)  # tokens of a context
RATIOS = (0.1, 0.25, 0.5, 0.75, 0.9)
MAY_REFUSE = 40  # tokens of a context, up to which a press may say that it is too short
MOST_OFF = 0.05  # of the tokens of a context
# A press with a prefill of its own reads the context once for each ratio: long ones are read at the
# middle one alone, and not at all where a shorter one took as long as this.
LONG, SLOW = 1_000, 2.0  # tokens; seconds of a prefill
REWRITES = "none can be compared: it rewrites the cache"
RUNS, LEFT_ALONE = "does it run?", "is the model left alone?"
STATE = "it carries state from one context to the next: keep none, or seed its random numbers"


@dataclass(frozen=True)
class Trial:
    """Holds what a policy leaves of a context of one length."""

    length: int
    error: str
    kept: Mapping[float, float]  # by ratio, the tokens of a head; without ratio 0
    # The digests of the caches, and what is written where the press acts meanwhile.
    left: tuple[str, ...]
    zero: bool  # whether ratio 0 leaves the full cache, or its answers
    seconds: float  # of the longest prefill

    @property
    def off(self) -> tuple[float, float]:
        """Returns by how many tokens a head misses its budget at most, and at which ratio."""
        return max(
            (abs(kept - self.length * (1 - ratio)), ratio) for ratio, kept in self.kept.items()
        )

    @property
    def keeps_all(self) -> bool:
        return all(kept >= self.length for kept in self.kept.values())


@dataclass(frozen=True)
class Patient:
    """A policy to examine, with the model and the prompts on which it is tried."""

    policy: Policy
    model: LoadedModel
    prompts: Sequence[Prompt]
    long: Prompt  # its press is timed on this one

    @property
    def middle(self) -> float:
        """Returns a middle ratio that the policy reaches."""
        return min(MIDDLE, self.policy.highest_ratio)

    @cached_property
    def trials(self) -> list[Trial]:
        """Returns the trials of all lengths, which are made once for all checks."""
        return try_lengths(self, LENGTHS)

    @cached_property
    def others(self) -> list[Policy]:
        """Lists the other policies that share a prefill and need no question or weights."""
        others = []
        for other in POLICIES.values():
            is_alike = other.prefill == "shared" and other.kinds and other.name != self.policy.name
            needs_more = other.weights or other.per_question or other.needs_question
            has_spans = self.prompts[0].protected or not other.needs_spans
            if is_alike and not needs_more and has_spans:
                others.append(other)
        return others

    @cached_property
    def nearest(self) -> tuple[str, float]:
        """Returns the policy that keeps most of the rows that this one keeps of the first context,
        and which share; an empty name where none can be told, as of a press that rewrites the
        cache, keeps all or acts later."""
        if self.policy.while_decoding:
            return "", 0.0
        trace = self.treat(self.prompts[0], [self.middle], self.policy, *self.others)
        mine, *rest = (branch for branch in trace.branches if branch.layers)
        shares = {}
        for other in rest:
            rows = places = shared = 0  # rows that this one keeps, all rows, and those both keep
            for layer in trace.compressed:
                kept, kept_by_other = mine.layers[layer].keep, other.layers[layer].keep
                if kept is not None and kept_by_other is not None:
                    rows += int(kept.sum())
                    places += kept.numel()
                    shared += int((kept & kept_by_other).sum())
            if rows < places:
                shares[other.treatment.policy.name] = shared / rows
        return max(shares.items(), key=lambda item: item[1], default=("", 0.0))

    def treat(
        self, prompt: Prompt, ratios: Sequence[float], *policies: Policy, repeat: int = 0
    ) -> Trace:
        """Treats a prompt by the policy, or by others, which share the prefill."""
        points = [Point(point.level, repeat) for point in at_ratios(ratios)]
        return prefill(self.model, prompt, plan(policies or [self.policy], points, prompt, seed=0))


def admit(policy: Policy, model: LoadedModel) -> Patient:
    """Chooses the prompts on which a policy is examined; raises :class:`KVBenchError` for a model
    that overflows."""
    mode: Mode = "aware" if policy.needs_question else "agnostic"
    task = next(task for task in TASKS.values() if not why_not(policy, task, mode))

    def prompt(name: str, index: int) -> Prompt:
        return build_prompts(model.tokenizer, TASKS[name], TASKS[name].example(0, index), mode)[0]

    check_logits(model, prompt(task.name, 0))
    long = task.name if policy.needs_spans else "long_context"
    return Patient(
        policy, model, [prompt(task.name, index) for index in range(CONTEXTS)], prompt(long, 0)
    )


def try_lengths(patient: Patient, lengths: Iterable[int], seed: int = 1) -> list[Trial]:
    """Tries the lengths that the model takes, until one is too slow."""
    trials: list[Trial] = []
    longest = (
        longest_sequence(patient.model) - STEPS - len(patient.prompts[0].questions[0].token_ids)
    )
    for length in lengths:
        if length > longest or (
            trials and patient.policy.prefill == "private" and trials[-1].seconds > SLOW
        ):
            break
        trials.append(_try_at(patient, length, seed))
    return trials


def _try_at(patient: Patient, length: int, seed: int) -> Trial:
    """Treats a context of so many tokens at ratio 0 and all others, in one prefill where the press
    shares it."""
    policy = patient.policy
    set_seed(seed)  # every generator that a press may draw from without one of its own
    started = time.process_time()
    ratios = RATIOS if policy.prefill == "shared" or length < LONG else (patient.middle,)
    trace = patient.treat(_prompt_at(patient, length), (0.0, *ratios), policy, POLICIES[FULL])
    seconds = (time.process_time() - started) / len(trace.branches)
    *branches, full = trace.branches
    if error := _first_error(branches):
        return Trial(length, error, {}, (), True, seconds)
    written = {}
    if policy.while_decoding:
        written = {
            id(answer.branch): answer.token_ids
            for answer in decode(patient.model, trace, STEPS, None)
        }
    left = [f"{branch.digest} {written.get(id(branch))}" for branch in branches]
    zero = next(branch for branch in branches if branch.treatment.ratio == 0)
    same = zero.digest == full.digest and not policy.while_decoding
    if not same:
        answers = decode(patient.model, replace(trace, branches=[zero, full]), STEPS, None)
        same = len({answer.token_ids for answer in answers}) == 1
    kept = {
        branch.treatment.ratio: _kept(trace, branch) for branch in branches if branch is not zero
    }
    return Trial(length, "", kept, tuple(left), same, seconds)


def _first_error(branches: Sequence[Branch]) -> str:
    return next((branch.error for branch in branches if branch.error), "")


def _kept(trace: Trace, branch: Branch) -> float:
    layers = [branch.layers[layer] for layer in trace.compressed]
    return sum(layer.read_rows * layer.filled for layer in layers) / (
        len(layers) * trace.keys[0].shape[0]
    )


def _prompt_at(patient: Patient, length: int) -> Prompt:
    """Returns the first prompt at so many tokens: its last ones, or with other texts before it; one
    question."""
    prompt = patient.prompts[0]
    missing = length - len(prompt.token_ids)
    ids = (*_text(patient.model.tokenizer, max(0, missing)), *prompt.token_ids)[-length:]
    stretches = [
        stretch._replace(start=stretch.start + missing, end=stretch.end + missing)
        for stretch in prompt.stretches
    ]
    return replace(
        prompt,
        token_ids=ids,
        context_tokens=tuple(range(max(1, length - prompt.question_tokens))),
        questions=tuple(
            replace(question, answer_tokens=(), evidence_tokens=())
            for question in prompt.questions[:1]
        ),
        stretches=tuple(stretch for stretch in stretches if stretch.start >= 0),
    )


@cache
def _text(tokenizer: PreTrainedTokenizerBase, count: int) -> tuple[int, ...]:
    """Returns so many tokens of prose."""
    contexts = (TASKS["long_context"].example(1, index).context for index in range(count))
    tokens = (tokenizer.encode(context, add_special_tokens=False) for context in contexts)
    return tuple(islice(chain.from_iterable(tokens), count))


def _runs(patient: Patient) -> Result:
    trace = patient.treat(patient.prompts[0], [patient.middle])
    if error := _first_error(trace.branches):
        return "wrong", error
    return "ok", f"on {trace.length} tokens of {patient.model.name}"


def _prefill(patient: Patient) -> Result:
    digests = {}
    for kind in ("shared", "private"):
        policy = replace(patient.policy, prefill=kind)
        trace = patient.treat(patient.prompts[0], (0.25, MIDDLE), policy)
        digests[kind] = (
            None if _first_error(trace.branches) else [branch.digest for branch in trace.branches]
        )
    if patient.policy.while_decoding:
        return "note", "no: it acts while an answer is written, which is then written alone"
    if digests["shared"] is None:
        return "note", "no: it gets a prefill of its own, which costs one for every ratio"
    if patient.policy.random:
        return "note", "not compared: it draws anew in a prefill of its own"
    if digests["shared"] != digests["private"]:
        outcome: Outcome = "wrong" if patient.policy.prefill == "shared" else "note"
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
    return "ok", "yes: it leaves the same cache as in a prefill of its own"


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
            written.update(
                dict.fromkeys(
                    name for name in handed if not torch.equal(handed[name], before[name])
                )
            )
            return left

        press.compress = watched
        return cast("BasePress", press)

    patient.treat(
        patient.prompts[0],
        (patient.middle,),
        replace(patient.policy, build=build, prefill="private"),
    )
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
        return "wrong" if is_counted else "note", text
    worst = max(tried, key=lambda trial: trial.off[0] / trial.length)
    tokens_off, ratio = worst.off
    of_length = f"of {worst.length:,}, at ratio {ratio:g}"
    text = f"at most {tokens_off:.1f} tokens of a head off ({of_length})"
    wide = [trial for trial in tried if trial.off[0] > max(1, MOST_OFF * trial.length)]
    if wide and is_counted:
        return "wrong", f"{text}; more than {MOST_OFF:.0%} at {_at(wide)}"
    text = f"{text}; tried on {_at(tried)}"
    if all(trial.off[0] <= 1 for trial in tried):
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
    first = {trial.length: trial for trial in patient.trials if not trial.error}
    again = try_lengths(patient, sorted(first, reverse=True), seed=2)
    if broken := [trial for trial in again if trial.left != first[trial.length].left]:
        return "wrong", f"a second run leaves another cache of {_at(broken[::-1])}: {STATE}"
    if patient.policy.random:
        traces = [patient.treat(patient.prompts[0], (MIDDLE,), repeat=repeat) for repeat in (0, 1)]
        first_draw, second_draw = (trace.branches[0].digest for trace in traces)
        if first_draw == second_draw:
            text = "it is declared random, and its second draw leaves the cache of the first"
            return "wrong", text
    return "ok", f"twice the same at {_at(again[::-1])}"


def _freed(patient: Patient) -> Result:
    trace = patient.treat(patient.prompts[0], [patient.middle])
    held = sum(trace.branches[0].layers[layer].held_rows for layer in trace.compressed)
    rows = len(trace.compressed) * trace.keys[0].shape[0] * trace.length
    return (
        "ok" if held < rows else "note",
        f"{1 - held / rows:.0%} of the rows at ratio {patient.middle:g}",
    )


def _unique(patient: Patient) -> Result:
    policy = patient.policy
    if policy.while_decoding:
        return "note", "not compared: it acts while decoding"
    digests = [
        patient.treat(prompt, [patient.middle]).branches[0].digest for prompt in patient.prompts
    ]
    if _alike(patient, [POLICIES[FULL]], digests):
        return (
            "note",
            f"at ratio {patient.middle:g} it leaves the full cache, in which every token is kept",
        )
    alike = {other.name for other in _alike(patient, patient.others, digests)}
    if alike - set(policy.same_as):
        return "wrong", f"it leaves the same cache as {', '.join(sorted(alike))} everywhere"
    name, share = patient.nearest
    nearest = (
        f"{name} is nearest, which keeps {share:.0%} of the rows that it keeps"
        if name
        else REWRITES
    )
    return "ok", f"yes: of {len(patient.others)} policies {nearest}"


def _alike(patient: Patient, others: Sequence[Policy], digests: Sequence[str]) -> list[Policy]:
    """Finds the policies that leave the same cache of every prompt, one prompt after the other."""
    for prompt, digest in zip(patient.prompts, digests, strict=True):
        branches = patient.treat(prompt, [patient.middle], *others).branches if others else []
        # A policy that does not reach the ratio has no branch.
        others = [
            branch.treatment.policy
            for branch in branches
            if not branch.error and branch.digest == digest
        ]
    return list(others)


def _time(patient: Patient) -> Result:
    trace = patient.treat(patient.long, [patient.middle])
    if error := _first_error(trace.branches):
        return "wrong", error
    press = f"{1000 * trace.branches[0].seconds:.1f} ms on a context of {trace.length:,} tokens"
    return "ok", f"{press}, beside {1000 * trace.seconds:.1f} of prefill"


def _at(trials: Sequence[Trial]) -> str:
    return f"{', '.join(f'{trial.length:,}' for trial in trials)} tokens"


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
    if is_small(
        patient.model
    ):  # on busy cores several threads wait for each other, which takes four times as long
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
        if (
            changed := patient.model.snapshot.first_change()
        ):  # findings on a changed model mean nothing
            yield Finding(LEFT_ALONE, "wrong", f"it changed {changed}")
            return
        yield Finding(question, outcome, text)
        if question == RUNS and outcome == "wrong":
            return
    begin(LEFT_ALONE)
    yield Finding(LEFT_ALONE, "ok", "no weight, buffer, hook or setting changed")
