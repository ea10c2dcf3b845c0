"""Every fault in the batch against a plain loop over a plain cache, and which rows it touches."""

import math
from typing import Any

import pytest
import torch
from scipy.stats import binomtest

from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import Step
from kvbench.engine.decode.waves import rows_of, waves
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt
from policies import POLICIES, Policy
from policies.faults.registry import FAULTS
from tests.support.plain import plain_answer
from tests.support.toy import NETWORKS, PLENTY, STEPS, model_of, toy_prompt, treat

CLOSE = 5e-4  # nats in float32
OPTIONS = (
    "tensor=K",
    "tensor=V,unit=value",
    "unit=token",
    "layers=0,heads=1",
    "tokens=evidence",
    "tokens=random",
    "tokens=first4",
    "phase=every_step",
    "phase=every_step,persistence=transient",
    "phase=step,step=2,persistence=transient",
)
KINDS_OPTIONED = (
    "bitflip(rate=0.00001)",
    "bitflip(bits=exponent,rate=0.0001)",
    "bitflip(bits=[0-3,31],unit=value)",
    "bitflip(phase=every_step,rate=0.000005)",
    "multiplicative_uniform(low=0,high=2)",
    "stale(page=4,phase=every_step)",
    "bias(shift=-0.5)",
)
COMPOSED = ("knorm+zeros(rate=0.2)", "adakv_snapkv+zeros(rate=0.2,phase=every_step)", "merging_snapkv+zeros(rate=0.2)")


def every(seed: int) -> list[Policy]:
    """All kinds; with the first seed their options too."""
    names = (*(f"zeros({options})" for options in OPTIONS), *KINDS_OPTIONED, *COMPOSED)
    return [*FAULTS.values(), *(find_policy(name) for name in names if seed == 0)]


@pytest.mark.parametrize("architecture", NETWORKS)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_fault_is_that_of_a_plain_loop(architecture: str, seed: int) -> None:
    model, prompt = model_of(architecture), toy_prompt()
    trace = treat(model, every(seed), (0.5,), prompt, seed, rates=(0.2,))
    generations = decode(model, trace, STEPS, PLENTY, gold=True)
    assert [branch.error for branch in trace.branches if branch.error] == []
    assert {branch.treatment.policy.name for branch in trace.branches} == {policy.name for policy in every(seed)}
    for generation in generations:
        branch, number = generation.branch, generation.question
        gold = prompt.questions[number].gold_ids
        answer = plain_answer(model, trace, branch, number, STEPS, treatment_of(branch))
        assert list(generation.token_ids) == answer[0], branch.treatment.policy.name
        nll = plain_answer(model, trace, branch, number, STEPS, treatment_of(branch), gold)[1]
        if math.isfinite(nll):
            assert generation.gold_nll == pytest.approx(nll, rel=1e-5, abs=CLOSE), branch.treatment.policy.name
        else:
            assert generation.gold_nll is None, branch.treatment.policy.name
            assert not generation.finite, branch.treatment.policy.name


def treatment_of(branch: Branch) -> Any:
    policy, situation = branch.treatment.policy, branch.treatment.situation
    return policy.step_treatment(situation, "") if policy.step_treatment else policy.prefill_treatment(situation)  # type: ignore[misc]


def test_rate_0_is_the_full_cache_and_other_rates_are_not(llama: LoadedModel, prompt: Prompt) -> None:
    for rate, changes in ((0.0, False), (0.2, True)):
        trace = treat(llama, [POLICIES["full"], *FAULTS.values()], (), prompt, rates=(rate,))
        found: dict[str, list[Any]] = {}
        for generation in decode(llama, trace, STEPS, PLENTY, gold=True):
            name = generation.branch.treatment.policy.name
            found.setdefault(name, []).append((generation.question, generation.token_ids, generation.gold_nll))
        for name, policy in FAULTS.items():
            if policy.own_rows and not changes:  # another shape of the batch rounds otherwise
                close = zip(sorted(found[name]), sorted(found["full"]), strict=True)
                assert all(own[:2] == full[:2] and abs(own[2] - full[2]) < CLOSE for own, full in close)
            else:
                assert (sorted(found[name], key=str) != sorted(found["full"], key=str)) == changes, name


def test_a_draw_is_the_same_alone_and_in_the_batch_and_another_in_the_next_repeat(
    llama: LoadedModel, prompt: Prompt
) -> None:
    finite = {**FAULTS, "bitflip": find_policy("bitflip(bits=mantissa)")}
    policies = list(finite.values())
    together = treat(llama, [POLICIES["knorm"], *policies], (0.5,), prompt, rates=(0.2,), repeats=2)
    answers = {
        (g.branch.treatment.policy.name, g.branch.treatment.repeat, g.question): g.gold_nll
        for g in decode(llama, together, STEPS, largest_row(together), gold=True)
    }
    for policy in policies:
        alone = treat(llama, [policy], (), prompt, rates=(0.2,), repeats=2)
        for generation in decode(llama, alone, STEPS, PLENTY, gold=True):
            key = policy.name, generation.branch.treatment.repeat, generation.question
            assert generation.gold_nll == pytest.approx(answers[key], abs=CLOSE)
        assert answers[policy.name, 0, 0] != answers[policy.name, 1, 0]


def largest_row(trace: Trace) -> int:
    return max(row.size for row in rows_of(waves(trace, STEPS, 1)))


# --- which rows


class Looking:
    """Keeps the rows that each answer has read when its first token is chosen."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, float, int], list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def see(self, step: Step) -> None:
        if step.number == 0:
            for place, answer in enumerate(step.answers):
                treatment = answer.branch.treatment
                cache = step.cache(place)
                states = [(cache.keys(layer), cache.values(layer)) for layer in range(cache.layers)]
                self.rows[treatment.policy.name, treatment.level.value, answer.question] = states


def changed(llama: LoadedModel, prompt: Prompt, names: list[str], rate: float = 1.0) -> dict[tuple[str, int], Any]:
    """By fault and question, which values of the context differ: bool (layers, 2, heads, tokens, size)."""
    looking = Looking()
    policies = [POLICIES["full"], *(find_policy(name) for name in names)]
    decode(llama, treat(llama, policies, (), prompt, rates=(rate,)), STEPS, PLENTY, observers=[looking])
    length = len(prompt.token_ids)
    found = {}
    for (name, _, question), states in looking.rows.items():
        found[name, question] = of_context(states, length) != of_context(looking.rows["full", 0.0, question], length)
    return found


def of_context(states: Any, length: int) -> torch.Tensor:
    return torch.stack([torch.stack(layer)[:, :, :length] for layer in states])


def test_an_aimed_fault_touches_just_the_rows_it_is_aimed_at(llama: LoadedModel, prompt: Prompt) -> None:
    names = [f"zeros(tokens={tokens})" for tokens in ("evidence", "answer", "other", "random", "first4", "all")]
    found = changed(llama, prompt, [*names[:-1], "zeros"])
    for number, question in enumerate(prompt.questions):
        hit = {name: found[name, number].flatten(0, 2).any(-1) for name in [*names[:-1], "zeros"]}
        for name, by_slot in hit.items():
            assert (by_slot == by_slot[0]).all(), name
        tokens = {name: set(by_slot[0].nonzero()[:, 0].tolist()) for name, by_slot in hit.items()}
        evidence = set(question.evidence_tokens)
        assert tokens["zeros(tokens=evidence)"] == evidence
        assert tokens["zeros(tokens=answer)"] == set(question.answer_tokens) <= evidence
        assert tokens["zeros(tokens=other)"] == set(range(len(prompt.token_ids))) - evidence
        assert tokens["zeros(tokens=first4)"] == {0, 1, 2, 3}
        assert tokens["zeros"] == set(range(len(prompt.token_ids)))
        assert len(tokens["zeros(tokens=random)"]) == len(evidence)
        assert not tokens["zeros(tokens=random)"] & evidence


def test_layers_heads_and_tensors_are_those_asked_for(llama: LoadedModel, prompt: Prompt) -> None:
    found = changed(llama, prompt, ["zeros(tensor=K,layers=H2)", "zeros(tensor=V,heads=0)"])
    keys, values = found["zeros(tensor=K,layers=H2)", 0], found["zeros(tensor=V,heads=0)", 0]
    assert keys[1, 0].any(-1).all()
    assert not keys[0].any()
    assert not keys[:, 1].any()
    assert values[:, 1, 0].any(-1).all()
    assert not values[:, 1, 1].any()
    assert not values[:, 0].any()


@pytest.mark.parametrize("unit", ["row", "value", "token"])
@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_as_many_units_are_hit_as_asked_within_binomial_error(
    llama: LoadedModel, prompt: Prompt, unit: str, rate: float
) -> None:
    name = "gaussian" if unit == "row" else f"gaussian(unit={unit})"
    hit = changed(llama, prompt, [name], rate)[name, 0]
    of_unit = {"row": hit[:, 0].any(-1), "value": hit, "token": hit.flatten(0, 2).any(-1).any(0)}[unit]
    assert binomtest(int(of_unit.sum()), of_unit.numel(), rate).pvalue > 1e-4
    if unit == "row":
        assert (hit[:, 0].any(-1) == hit[:, 1].any(-1)).all()
    if unit == "token":
        assert (hit.flatten(0, 2).any(-1) == of_unit).all()


def test_a_higher_rate_hits_what_a_lower_one_hits_and_more(llama: LoadedModel, prompt: Prompt) -> None:
    low, high = (changed(llama, prompt, ["zeros"], rate)["zeros", 0] for rate in (0.1, 0.4))
    assert (high | ~low).all()
    assert high.sum() > low.sum()
