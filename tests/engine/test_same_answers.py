"""What must change no answer: a fault that hits nothing, other waves, another worker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from datasets_gen import TASKS
from kvbench.engine.decode.answers import decode, decode_all
from kvbench.engine.decode.loop import Generation, Step
from kvbench.engine.decode.waves import waves
from kvbench.engine.treat.branch import Trace
from kvbench.experiments.catalogue import find_policy
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import Prompt
from policies import POLICIES, CacheRows, CacheTreatment, Level, Policy, Situation, list_points
from policies.faults.registry import FAULT_KINDS
from tests.support.models.toy import PLENTY, STEPS, largest_row, treat

CLOSE = 5e-4  # nats in float32: the rows of a batch are summed in another order


class Idle:
    """A step treatment that does nothing."""

    def __init__(self, situations: Sequence[Situation], questions: Sequence[str]) -> None: ...

    def after_prefill(self, cache: CacheRows) -> None: ...

    def after_step(self, cache: CacheRows, step: int) -> None: ...

    def copy_answers(self, copies: Mapping[int, int]) -> None: ...


# The full cache in each form that a batch gives to a branch: another form rounds otherwise, with a
# fault or without.
FULL_CACHES = {
    "shared rows": POLICIES["full"],
    "own rows": replace(
        POLICIES["full"], name="full in own rows", treatment=CacheTreatment(own_rows=True)
    ),
    "paired rows": replace(
        POLICIES["full"],
        name="full treated by nothing",
        treatment=CacheTreatment(step_treatment=Idle),
    ),
}


def full_cache_beside(policy: Policy) -> Policy:
    if policy.treatment.step_treatment:
        return FULL_CACHES["paired rows"]
    return FULL_CACHES["own rows" if policy.treatment.own_rows else "shared rows"]


class Logits:
    """Keeps the logits of every token of every answer, by policy, question and token."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, int, int], torch.Tensor] = {}

    def see(self, step: Step) -> None:
        for answer, logits in zip(step.answers, step.logits, strict=True):
            self.seen[answer.branch.treatment.policy.name, answer.question, step.number] = (
                logits.clone()
            )


@dataclass(frozen=True)
class Told:
    """What a batch says of one answer."""

    token_ids: tuple[int, ...]
    gold_nll: float | None
    logits: torch.Tensor  # shape (tokens, vocabulary)


def answers_by_policy(
    model: LoadedModel, policies: Sequence[Policy], prompt: Prompt, rate: float
) -> dict[str, list[Told]]:
    """By policy, what is said of the answers to all questions."""
    logits = Logits()
    trace = treat(model, policies, (), prompt, rates=(rate,))
    generations = decode(model, trace, STEPS, PLENTY, observers=[logits], gold=True)
    assert [branch.error for branch in trace.branches if branch.error] == []
    by_policy: dict[str, list[Told]] = {}
    for one in sorted(generations, key=lambda one: one.question):
        name = one.branch.treatment.policy.name
        of_tokens = torch.stack(
            [logits.seen[name, one.question, place] for place in range(len(one.token_ids))]
        )
        by_policy.setdefault(name, []).append(Told(one.token_ids, one.gold_nll, of_tokens))
    assert {len(answers) for answers in by_policy.values()} == {len(prompt.questions)}
    return by_policy


PHASES = ("resident", "write", "prefill_write", "every_step")


def faults_in(phase: str) -> list[Policy]:
    kinds = [
        kind for kind in FAULT_KINDS.values() if not (phase == "write" and kind.reads_other_rows)
    ]
    return [find_policy(f"{kind.name}(phase={phase})") for kind in kinds]


@pytest.mark.parametrize("phase", PHASES)
def test_every_fault_at_rate_0_is_the_full_cache_to_the_bit(
    llama: LoadedModel, prompt: Prompt, phase: str
) -> None:
    faults = faults_in(phase)
    answers = answers_by_policy(llama, [*FULL_CACHES.values(), *faults], prompt, 0.0)
    for fault in faults:
        for damaged, full in zip(
            answers[fault.name], answers[full_cache_beside(fault).name], strict=True
        ):
            assert damaged.token_ids == full.token_ids, fault.name
            assert damaged.gold_nll == full.gold_nll is not None, fault.name
            assert torch.equal(damaged.logits, full.logits), fault.name


@pytest.mark.parametrize("phase", PHASES)
def test_at_another_rate_every_fault_changes_logits(
    llama: LoadedModel, prompt: Prompt, phase: str
) -> None:
    """Else the comparison above would prove nothing."""
    faults = faults_in(phase)
    answers = answers_by_policy(llama, [*FULL_CACHES.values(), *faults], prompt, 0.2)
    for fault in faults:
        both = list(zip(answers[fault.name], answers[full_cache_beside(fault).name], strict=True))
        assert not all(damaged.gold_nll == full.gold_nll for damaged, full in both), fault.name
        assert not all(torch.equal(damaged.logits[0], full.logits[0]) for damaged, full in both), (
            fault.name
        )


# --- waves and workers

TREATED = (
    *("full", "random", "snapkv", "adakv_snapkv"),
    *(
        "gaussian",
        "gaussian(phase=every_step)",
        "bitflip(bits=mantissa)",
        "zeros(phase=prefill_write)",
    ),
    *("multiplicative_normal(phase=write)", "int4+zeros(phase=write,rate=0.2)"),
    *("int4", "int2(residual=4)", "knorm+int4", "snapkv+zeros(rate=0.2)"),
    "q4_0(phase=write,group=8)",
)


def test_waves_of_any_size_give_the_same_tokens(llama: LoadedModel, prompt: Prompt) -> None:
    trace = treat(
        llama, [find_policy(name) for name in TREATED], (0.5,), prompt, rates=(0.2,), repeats=2
    )
    least = largest_row(trace)
    counts, found = [], []
    for bound in (least, 2 * least + 1, 5 * least, PLENTY):
        counts.append(len(waves([trace], STEPS, bound)))
        found.append(
            {
                (one.branch.treatment.policy.name, one.branch.treatment.repeat, one.question): one
                for one in decode(llama, trace, STEPS, bound, gold=True)
            }
        )
    assert counts == sorted(set(counts), reverse=True)
    assert counts[-1] == 1
    for other in found[:-1]:
        assert other.keys() == found[-1].keys()
        for key, one in found[-1].items():
            assert other[key].token_ids == one.token_ids, key
            assert other[key].gold_nll == pytest.approx(one.gold_nll, abs=CLOSE), key
    assert {name for name, *_ in found[0]} == set(TREATED)


@pytest.mark.parametrize("mode", ["agnostic", pytest.param("aware", marks=pytest.mark.slow)])
def test_contexts_that_are_decoded_together_are_answered_as_each_alone(
    llama: LoadedModel, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In mode aware each question has a prefill of its own.
    task = replace(TASKS["base"], questions_per_context=2, max_new_tokens=STEPS)
    points = list_points([Level("ratio", 0.5), Level("rate", 0.2)], 2)
    chosen = [find_policy(name) for name in TREATED]
    grid = Grid([(task, 3)], chosen, points, mode=mode, max_kv_bytes=PLENTY)
    examples = list(task.generate(0, 3))
    counts = []

    def counted(
        model: LoadedModel, traces: Sequence[Trace], *others: Any, **named: Any
    ) -> list[list[Generation]]:
        counts.append(len(traces))
        return decode_all(model, traces, *others, **named)

    monkeypatch.setattr("kvbench.experiments.collect.decode_all", counted)
    monkeypatch.setattr("kvbench.experiments.collect.BRANCHES_TOGETHER", 1000)
    together = collect(llama, task, examples, grid).records
    assert max(counts) >= 3
    alone = [
        record for example in examples for record in collect(llama, task, [example], grid).records
    ]
    assert len(together) == len(alone)
    for one, other in zip(together, alone, strict=True):
        assert (one.question_id, one.policy, one.output_token_ids) == (
            other.question_id,
            other.policy,
            other.output_token_ids,
        )
        assert one.gold_nll == pytest.approx(other.gold_nll, abs=CLOSE)
