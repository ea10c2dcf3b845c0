"""A patient is a policy that is examined, with the model and the prompts on which it is tried."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvpress import BasePress

from datasets_gen import TASKS, Task
from kvbench.checks.findings import Outcome
from kvbench.engine.decode.answers import check_logits, decode
from kvbench.engine.decode.generation import Generation
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.catalogue import covers
from kvbench.models.load import LoadedModel
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import Prompt, build_prompts
from policies import POLICIES, Point, Policy, at_ratios

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
