"""A patient is a policy that is examined, with the model and the prompts on which it is tried."""

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, islice

import numpy as np
import torch
from kvpress import BasePress
from transformers import PreTrainedTokenizerBase

from datasets_gen import TASKS, Task
from kvbench.checks.findings import Outcome
from kvbench.engine.decode.answers import check_logits, decode
from kvbench.engine.decode.loop import Generation
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.catalogue import covers
from kvbench.models.load import LoadedModel, longest_sequence
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import Prompt, build_prompts
from policies import FULL, POLICIES, Point, Policy, at_ratios

MIDDLE = 0.5
TYPICAL = 1024  # tokens of a context for which a press is built to be looked at
STEPS = 8
CONTEXTS = 3
Result = tuple[Outcome, str]


@dataclass(frozen=True)
class Trial:
    """Holds what a policy leaves of a context of one length."""

    length: int
    error: str
    kept: Mapping[float, float]  # by ratio, the tokens of a head; without ratio 0
    left: tuple[str, ...]  # the digests of the caches, and what is written where the press acts meanwhile
    zero: bool  # whether ratio 0 leaves the full cache, or its answers
    rewritten: bool  # whether its answers tell so
    seconds: float  # of the longest prefill

    @property
    def off(self) -> tuple[float, float]:
        """Returns by how many tokens a head misses its budget at most, and at which ratio."""
        return max((abs(kept - self.length * (1 - ratio)), ratio) for ratio, kept in self.kept.items())

    @property
    def keeps_all(self) -> bool:
        return all(kept >= self.length for kept in self.kept.values())


@dataclass(frozen=True)
class Patient:
    """A policy to examine."""

    policy: Policy
    model: LoadedModel  # the model that it is tried on
    task: Task  # the policy is made for it
    mode: Mode
    prompts: Sequence[Prompt]  # of the task
    long: Prompt  # its press is timed on this one
    trials: list[Trial] = field(default_factory=list)  # at several lengths, once they are made

    @property
    def middle(self) -> float:
        """Returns a middle ratio that the policy reaches."""
        return min(MIDDLE, self.policy.highest_ratio)

    def treat(self, prompt: Prompt, ratios: Sequence[float], *policies: Policy, repeat: int = 0) -> Trace:
        """Treats a prompt by the policy, or by others, which share the prefill."""
        points = [Point(point.level, repeat) for point in at_ratios(ratios)]
        return prefill(self.model, prompt, plan(policies or [self.policy], points, prompt, seed=0))

    @property
    def others(self) -> list[Policy]:
        """Lists the policies that it may be the same as: they share a prefill, and need no question or weights. Those
        that read other texts first, to study the model, are among them only if the press looks at the model too."""
        spans, studies = bool(self.prompts[0].protected), self._looks_at_model
        return [
            other
            for other in POLICIES.values()
            if other.prefill == "shared" and other.kinds and other.name != self.policy.name
            if not (other.weights or other.per_question or other.needs_question or (other.needs_spans and not spans))
            if studies or not reads_texts(other)
        ]

    @property
    def _looks_at_model(self) -> bool:
        press = self.policy.press(self.policy.typical_situation(TYPICAL, TYPICAL))
        return type(press).post_init_from_model is not BasePress.post_init_from_model

    def generations(self, trace: Trace) -> list[Generation]:
        return decode(self.model, trace, STEPS, None)


def admit(policy: Policy, model: LoadedModel) -> Patient:
    """Chooses the prompts on which a policy is examined; raises :class:`KVBenchError` for a model that overflows."""
    mode: Mode = "aware" if policy.needs_question else "agnostic"
    task = next(task for task in TASKS.values() if covers(policy, task, mode))

    def prompt(name: str, index: int) -> Prompt:
        return build_prompts(model.tokenizer, TASKS[name], TASKS[name].example(0, index), mode)[0]

    check_logits(model, prompt(task.name, 0))
    long = task.name if policy.needs_spans else "long_context"
    return Patient(policy, model, task, mode, [prompt(task.name, index) for index in range(CONTEXTS)], prompt(long, 0))


def error_of(branches: Sequence[Branch]) -> str:
    return next((branch.error for branch in branches if branch.error), "")


def reads_texts(policy: Policy) -> bool:
    """Tells whether a press is handed texts that have nothing to do with the context; to read them takes long."""

    def texts() -> tuple[str, ...]:
        return ()

    situation = replace(policy.typical_situation(TYPICAL, TYPICAL), texts=texts)
    return any(value is texts for value in vars(policy.press(situation)).values())


LENGTHS = (32, 108, 300, 1_000, 4_000)
RATIOS = (0.1, 0.25, 0.5, 0.75, 0.9)
MAY_REFUSE = 40  # tokens of a context, up to which a press may say that it is too short
MOST_OFF = 0.05  # of the tokens of a context
# A press with a prefill of its own reads the context once for each ratio: long ones are read at the middle one alone,
# and not at all where a shorter one took as long as this.
LONG, SLOW = 1_000, 2.0  # tokens; seconds of a prefill


def try_at(patient: Patient, length: int, seed: int = 1) -> Trial:
    """Treats a context of so many tokens at ratio 0 and all others, in one prefill where the press shares it."""
    policy = patient.policy
    with _seeded(seed):
        started = time.process_time()
        ratios = RATIOS if policy.prefill == "shared" or length < LONG else (min(MIDDLE, policy.highest_ratio),)
        trace = patient.treat(prompt_of(patient, length), (0.0, *ratios), policy, POLICIES[FULL])
        seconds = (time.process_time() - started) / len(trace.branches)
        *branches, full = trace.branches
        if error := error_of(branches):
            return Trial(length, error, {}, (), True, False, seconds)
        written = {id(one.branch): one.token_ids for one in patient.generations(trace)} if policy.while_decoding else {}
        left = [f"{branch.digest} {written.get(id(branch))}" for branch in branches]
        zero = next(branch for branch in branches if branch.treatment.ratio == 0)
        is_whole = zero.digest == full.digest and not policy.while_decoding
        same = is_whole or _same_answers(patient, trace, zero, full)
    kept = {branch.treatment.ratio: _kept(trace, branch) for branch in branches if branch is not zero}
    return Trial(length, error_of(branches), kept, tuple(left), same, not is_whole, seconds)


def _kept(trace: Trace, branch: Branch) -> float:
    layers = [branch.layers[layer] for layer in trace.compressed]
    return sum(layer.read_rows * layer.filled for layer in layers) / (len(layers) * trace.keys[0].shape[0])


def _same_answers(patient: Patient, trace: Trace, *branches: Branch) -> bool:
    written = patient.generations(replace(trace, branches=list(branches)))
    return len({one.token_ids for one in written}) == 1


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds every generator that a press may draw from without one of its own, and leaves them as they were."""
    before = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def prompt_of(patient: Patient, length: int) -> Prompt:
    """Returns the first prompt of the patient at so many tokens: its last ones, or with other texts before it. One
    question is asked."""
    prompt = patient.prompts[0]
    missing = length - len(prompt.token_ids)
    ids = (*_text(patient.model.tokenizer, max(0, missing)), *prompt.token_ids)[-length:]
    stretches = [
        stretch._replace(start=stretch.start + missing, end=stretch.end + missing) for stretch in prompt.stretches
    ]
    return replace(
        prompt,
        token_ids=ids,
        context_tokens=tuple(range(max(1, length - prompt.question_tokens))),
        questions=tuple(replace(one, answer_tokens=(), evidence_tokens=()) for one in prompt.questions[:1]),
        stretches=tuple(stretch for stretch in stretches if stretch.start >= 0),
    )


@cache
def _text(tokenizer: PreTrainedTokenizerBase, count: int) -> tuple[int, ...]:
    """Returns so many tokens of prose."""
    contexts = (TASKS["long_context"].example(1, index).context for index in range(count))
    tokens = (tokenizer.encode(context, add_special_tokens=False) for context in contexts)
    return tuple(islice(chain.from_iterable(tokens), count))


def trials_of(patient: Patient, lengths: Iterable[int], seed: int = 1) -> list[Trial]:
    """Tries the lengths that the model takes, until one is too slow."""
    trials: list[Trial] = []
    most = longest_sequence(patient.model) - STEPS - len(patient.prompts[0].questions[0].token_ids)
    for length in lengths:
        if length > most or (trials and patient.policy.prefill == "private" and trials[-1].seconds > SLOW):
            break
        trials.append(try_at(patient, length, seed))
    return trials


def _trials(patient: Patient) -> list[Trial]:
    """Returns the trials of all lengths, which are made once for all checks."""
    if not patient.trials:
        patient.trials.extend(trials_of(patient, LENGTHS))
    return patient.trials


def budget_kept(patient: Patient) -> Result:
    """Compares the tokens kept with the budget: one token of a head is rounding, and whole chunks make more."""
    trials = _trials(patient)
    if failed := [trial for trial in trials if trial.error and trial.length > MAY_REFUSE]:
        return "wrong", f"on {_at(failed)}: {failed[0].error}"
    if patient.policy.while_decoding:
        return "note", "it is spent while decoding: see realised_ratio of a run"
    tried = [trial for trial in trials if not trial.error]
    strict = patient.policy.counted != "nowhere"
    whole = [trial for trial in tried if trial.keeps_all]
    wide = [trial for trial in tried if trial.off[0] > max(1, MOST_OFF * trial.length) and trial not in whole]
    broken = [*whole, *(wide if strict else [])]
    parts = [f"nothing is compressed: every token is kept at every ratio of {_at(whole)}"] if whole else []
    if shown := (wide if strict and wide else [one for one in tried if one not in broken]):
        worst = max(shown, key=lambda trial: trial.off[0] / trial.length)
        off, ratio = worst.off
        parts.append(
            f"{off:.1f} tokens of a head off where it is farthest (a context of {worst.length:,} tokens, ratio "
            f"{ratio:g}); tried on {_at(shown)}"
        )
    if broken and (sound := [trial for trial in tried if trial not in broken and trial not in shown]):
        parts.append(f"kept at {_at(sound)}")
    rounded = all(trial.off[0] <= 1 for trial in tried)
    return ("wrong" if broken and strict else "ok" if rounded else "note"), "; ".join(parts) + _not_tried(trials)


def nothing_at_zero(patient: Patient) -> Result:
    """Tells at which lengths ratio 0 does not leave what the full cache is."""
    tried = [trial for trial in _trials(patient) if not trial.error]
    if broken := [trial for trial in tried if not trial.zero]:
        return "wrong", f"its answers differ from those of the full cache at {_at(broken)}"
    text = "the answers of the full cache" if any(trial.rewritten for trial in tried) else "the full cache"
    return "ok", f"{text} at {_at(tried)}"


def repeated(patient: Patient) -> Result:
    """Tries all lengths once more behind other contexts: what is left must not depend on these, nor on a seed that
    nobody set."""
    first = {trial.length: trial for trial in _trials(patient) if not trial.error}
    again = trials_of(patient, sorted(first, reverse=True), seed=2)
    broken = [trial for trial in again if trial.left != first[trial.length].left]
    if broken:
        return "wrong", f"a second run leaves another cache of {_at(broken[::-1])}: {STATE}"
    if not patient.policy.random:
        return "ok", f"twice the same at {_at(again[::-1])}"
    digests = []
    for repeat in (0, 1):
        trace = patient.treat(patient.prompts[0], (MIDDLE,), repeat=repeat)
        digests.append([branch.digest for branch in trace.branches])
    if digests[0] == digests[1]:
        return "wrong", "it is declared random, and its second draw leaves the cache of the first"
    return "ok", "twice the same, and another cache for its second draw"


STATE = (
    "it carries state from one context to the next (in a class, a global or a shared object): keep none; or seed its "
    "random numbers"
)


def _at(trials: Sequence[Trial]) -> str:
    *names, last = (f"{trial.length:,}" for trial in trials)
    return f"{', '.join(names)} and {last} tokens" if names else f"{last} tokens"


def _not_tried(trials: Sequence[Trial]) -> str:
    lengths = [f"{length:,}" for length in LENGTHS if length not in {trial.length for trial in trials}]
    return f"; not tried at {', '.join(lengths)} tokens: too slow, or too long for the model" if lengths else ""
