"""Treats contexts by the press that is examined, and holds what it leaves of them."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from transformers import PreTrainedTokenizerBase, set_seed

from datasets_gen import TASKS, Task
from kvbench.engine.decode.answers import check_logits, decode
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.catalogue import why_not
from kvbench.models.load import LoadedModel, longest_sequence
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import Prompt, Stretch, build_prompts
from policies import FULL, POLICIES, Point, Policy, at_ratios

MIDDLE = 0.5
STEPS = 8  # tokens of an answer
CONTEXTS = 3
LENGTHS = (32, 108, 300, 1_000, 4_000)  # tokens of a context
RATIOS = (0.1, 0.25, 0.5, 0.75, 0.9)
# A press with a prefill of its own reads the context once for each ratio: long ones are read at the
# middle one alone, and not at all where a shorter one took as long as this.
LONG, SLOW = 1_000, 2.0  # tokens; seconds of a prefill


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
        misses: list[tuple[float, float]] = []
        for ratio, kept in self.kept.items():
            budget = self.length * (1 - ratio)
            misses.append((abs(kept - budget), ratio))
        return max(misses)

    @property
    def tokens_off(self) -> float:
        return self.off[0]

    @property
    def keeps_all(self) -> bool:
        """Tells whether nothing is evicted at any ratio."""
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
        return min(MIDDLE, self.policy.levels.highest_ratio)

    @cached_property
    def trials(self) -> list[Trial]:
        """Returns the trials of all lengths, which are made once for all checks."""
        return try_lengths(self, LENGTHS)

    @cached_property
    def others(self) -> list[Policy]:
        """Lists the other policies that share a prefill and need no question, weights or
        calibration."""
        others = []
        for other in POLICIES.values():
            is_alike = other.prefill == "shared" and other.kinds and other.name != self.policy.name
            needs_more = other.needs.weights or other.needs.calibration
            needs_more = needs_more or other.per_question or other.needs.question
            has_spans = self.prompts[0].protected or not other.needs.spans
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
        nearest, highest_share = "", 0.0
        for other in rest:
            rows = places = shared = 0  # rows that this one keeps, all rows, and those both keep
            for layer in trace.compressed:
                kept, kept_by_other = mine.layers[layer].keep, other.layers[layer].keep
                if kept is not None and kept_by_other is not None:
                    rows += int(kept.sum())
                    places += kept.numel()
                    shared += int((kept & kept_by_other).sum())
            if rows >= places:  # it keeps all, or no mask says what it keeps
                continue
            share = shared / rows
            if not nearest or share > highest_share:
                nearest, highest_share = other.treatment.policy.name, share
        return nearest, highest_share

    def treat(
        self, prompt: Prompt, ratios: Sequence[float], *policies: Policy, repeat: int = 0
    ) -> Trace:
        """Treats a prompt by the policy, or by others, which share the prefill."""
        points = [Point(point.level, repeat) for point in at_ratios(ratios)]
        return prefill(self.model, prompt, plan(policies or [self.policy], points, prompt, seed=0))


def admit(policy: Policy, model: LoadedModel) -> Patient:
    """Chooses the prompts on which a policy is examined; raises :class:`KVBenchError` for a model
    that overflows."""
    mode: Mode = "agnostic"
    if policy.needs.question:
        mode = "aware"
    task = next(task for task in TASKS.values() if not why_not(policy, task, mode))

    def prompt(task: Task, index: int) -> Prompt:
        return build_prompts(model.tokenizer, task, task.example(0, index), mode)[0]

    check_logits(model, prompt(task, 0))
    long = TASKS["long_context"]
    if policy.needs.spans:
        long = task
    prompts = [prompt(task, index) for index in range(CONTEXTS)]
    return Patient(policy, model, prompts, prompt(long, 0))


def try_lengths(patient: Patient, lengths: Iterable[int], seed: int = 1) -> list[Trial]:
    """Tries the lengths that the model takes, until one is too slow."""
    trials: list[Trial] = []
    question_tokens = len(patient.prompts[0].questions[0].token_ids)
    longest = longest_sequence(patient.model) - STEPS - question_tokens
    is_private = patient.policy.prefill == "private"
    for length in lengths:
        is_slow = is_private and bool(trials) and trials[-1].seconds > SLOW
        if length > longest or is_slow:
            break
        trials.append(_try_at(patient, length, seed))
    return trials


def _try_at(patient: Patient, length: int, seed: int) -> Trial:
    """Treats a context of so many tokens at ratio 0 and all others, in one prefill where the press
    shares it."""
    policy = patient.policy
    set_seed(seed)  # every generator that a press may draw from without one of its own
    started = time.process_time()
    ratios: Sequence[float] = RATIOS
    if policy.prefill != "shared" and length >= LONG:
        ratios = (patient.middle,)
    trace = patient.treat(_prompt_at(patient, length), (0.0, *ratios), policy, POLICIES[FULL])
    seconds = (time.process_time() - started) / len(trace.branches)
    *branches, full = trace.branches
    if error := first_error(branches):
        return Trial(length, error, {}, (), True, seconds)
    written: dict[int, Sequence[int]] = {}
    if policy.while_decoding:
        for answer in decode(patient.model, trace, STEPS, None):
            written[id(answer.branch)] = answer.token_ids
    left = [f"{branch.digest} {written.get(id(branch))}" for branch in branches]
    zero = next(branch for branch in branches if branch.treatment.ratio == 0)
    # By the digest of the cache; where that differs, or the press acts later, by the answers.
    same = zero.digest == full.digest and not policy.while_decoding
    if not same:
        answers = decode(patient.model, replace(trace, branches=[zero, full]), STEPS, None)
        same = len({answer.token_ids for answer in answers}) == 1
    kept: dict[float, float] = {}
    for branch in branches:
        if branch is not zero:
            kept[branch.treatment.ratio] = _kept_tokens(trace, branch)
    return Trial(length, "", kept, tuple(left), same, seconds)


def first_error(branches: Sequence[Branch]) -> str:
    for branch in branches:
        if branch.error:
            return branch.error
    return ""


def _kept_tokens(trace: Trace, branch: Branch) -> float:
    """Returns how many tokens a head keeps, in the mean over all heads that presses compress."""
    rows = 0.0
    for layer in trace.compressed:
        cache = branch.layers[layer]
        rows += cache.read_rows * cache.filled
    heads = trace.keys[0].shape[0]
    return rows / (len(trace.compressed) * heads)


def _prompt_at(patient: Patient, length: int) -> Prompt:
    """Returns the first prompt at so many tokens: its last ones, or with other texts before it; one
    question."""
    prompt = patient.prompts[0]
    missing = length - len(prompt.token_ids)
    before = _text(patient.model.tokenizer, max(0, missing))
    ids = (*before, *prompt.token_ids)[-length:]
    stretches: list[Stretch] = []
    for stretch in prompt.stretches:
        start = stretch.start + missing
        if start >= 0:
            stretches.append(stretch._replace(start=start, end=stretch.end + missing))
    # The evidence may be cut off or have moved: its positions hold no longer.
    question = replace(prompt.questions[0], answer_tokens=(), evidence_tokens=())
    context_length = max(1, length - prompt.question_tokens)
    return replace(
        prompt,
        token_ids=ids,
        context_tokens=tuple(range(context_length)),
        questions=(question,),
        stretches=tuple(stretches),
    )


@cache
def _text(tokenizer: PreTrainedTokenizerBase, count: int) -> tuple[int, ...]:
    """Returns so many tokens of prose."""
    tokens: list[int] = []
    index = 0
    while len(tokens) < count:
        context = TASKS["long_context"].example(1, index).context
        tokens += tokenizer.encode(context, add_special_tokens=False)
        index += 1
    return tuple(tokens[:count])
