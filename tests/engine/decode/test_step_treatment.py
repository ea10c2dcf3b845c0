"""A treatment that writes to the cache of a branch between steps, against a plain loop over a plain
cache."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import Step
from kvbench.engine.decode.waves import all_rows, waves
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt
from policies import ABSENT, POLICIES, CacheRows, CacheTreatment, Policy, Situation
from tests.support.models.plain import plain_answer, plain_logits, plain_rows
from tests.support.models.toy import NETWORKS, PLENTY, STEPS, model_of, toy_model, toy_prompt, treat

CLOSE = 5e-4  # nats in float32: every step rounds what the one before has written


class Noise:
    """Scales values and disturbs keys of every row at every step, by layer, head, token and step
    alone."""

    def __init__(self, situations: Sequence[Situation], questions: Sequence[str]) -> None:
        self.amounts = torch.tensor([0.3 * situation.ratio for situation in situations])
        self.of_questions = torch.tensor([0.01 * len(question) for question in questions])

    def after_prefill(self, cache: CacheRows) -> None:
        self.disturb(cache, 1000)

    def after_step(self, cache: CacheRows, step: int) -> None:
        if step == 0:
            self.amounts[list(cache.answers)] += self.of_questions[list(cache.answers)]
        self.disturb(cache, step)

    def disturb(self, cache: CacheRows, step: int) -> None:
        for layer in range(cache.layers):
            tokens = cache.tokens(layer)
            heads = torch.arange(tokens.shape[1])[:, None]
            amount = self.amounts[list(cache.answers), None, None, None]
            wave = torch.sin(12.9898 * tokens + 78.233 * heads + 37.719 * layer + 4.581 * step)[
                ..., None
            ]
            keys = cache.keys(layer) + amount * wave
            values = cache.values(layer) * (1 + amount * wave)
            spoiled = (tokens == ABSENT)[..., None]  # nothing of this may reach the cache
            cache.write(
                layer, keys.masked_fill(spoiled, torch.nan), values.masked_fill(spoiled, torch.nan)
            )

    def copy_answers(self, copies: Mapping[int, int]) -> None:
        self.amounts[list(copies)] = self.amounts[list(copies.values())]


def noisy(name: str) -> Policy:
    treatment = CacheTreatment(step_treatment=Noise)
    return replace(POLICIES[name], name=f"noisy_{name}", treatment=treatment)


NOISY = [noisy(name) for name in ("recency", "adakv_snapkv", "merging_snapkv")]
OTHERS = [POLICIES[name] for name in ("full", "knorm", "oracle", "adakv_snapkv")]


@pytest.mark.parametrize(
    ("architecture", "rows"),
    [
        *((architecture, None) for architecture in NETWORKS),
        *(
            pytest.param(name, rows, marks=pytest.mark.slow if number else [])
            for rows in (1, 3)
            for number, name in enumerate(NETWORKS)
        ),
    ],
)
def test_what_it_writes_is_read_at_every_later_step(architecture: str, rows: int | None) -> None:
    model, prompt = model_of(architecture), toy_prompt(questions=3)
    trace = treat(model, [*OTHERS, *NOISY], (0.5,), prompt)
    bound = (
        PLENTY
        if rows is None
        else rows * max(row.size for row in all_rows(waves([trace], STEPS, 1)))
    )
    generations = decode(model, trace, STEPS, bound, gold=True)
    assert all(branch.error is None for branch in trace.branches)
    for generation in generations:
        branch, number = generation.branch, generation.question
        build = branch.treatment.policy.treatment.step_treatment
        if build is not None:
            question, gold = prompt.questions[number].question.id, prompt.questions[number].gold_ids
            answer = plain_answer(
                model, trace, branch, number, STEPS, build([branch.treatment.situation], [question])
            )
            assert list(generation.token_ids) == answer[0]
            treatment = build([branch.treatment.situation], [question])
            nll = plain_answer(model, trace, branch, number, STEPS, treatment, gold)[1]
            assert generation.gold_nll == pytest.approx(nll, abs=CLOSE)
    alone = decode(model, treat(model, OTHERS, (0.5,), prompt), STEPS, PLENTY, gold=True)
    untreated = [g for g in generations if g.branch.treatment.policy in OTHERS]
    assert sorted(g.token_ids for g in untreated) == sorted(g.token_ids for g in alone)
    likelihoods, expected = (sorted(g.gold_nll or 0.0 for g in of) for of in (untreated, alone))
    assert likelihoods == pytest.approx(expected, abs=CLOSE)


def test_it_changes_answers(llama: LoadedModel, prompt: Prompt) -> None:
    """Else the comparison above would prove nothing."""
    trace = treat(llama, [POLICIES["recency"], noisy("recency")], (0.5,), prompt)
    found: dict[str, list[tuple[int, ...]]] = {"recency": [], "noisy_recency": []}
    for generation in decode(llama, trace, STEPS, PLENTY):
        found[generation.branch.treatment.policy.name].append(generation.token_ids)
    assert found["recency"] != found["noisy_recency"]


def test_a_treatment_that_fails_fails_alone(llama: LoadedModel, prompt: Prompt) -> None:
    class Broken(Noise):
        def after_step(self, cache: CacheRows, step: int) -> None:
            if step == 2:
                raise ValueError("no more")

    treatment = CacheTreatment(step_treatment=Broken)
    broken = replace(POLICIES["recency"], name="broken", treatment=treatment)
    for bound in (PLENTY, 1_500_000):
        trace = treat(llama, [POLICIES["knorm"], broken], (0.5, 0.9), prompt)
        names = {g.branch.treatment.policy.name for g in decode(llama, trace, STEPS, bound)}
        assert names == {"knorm"}
        for branch in trace.branches:
            failed = branch.treatment.policy is broken
            said = (
                r"broken failed while decoding: ValueError: no more \(test_step_treatment\.py:\d+\)"
            )
            assert re.fullmatch(said, branch.error or "") if failed else branch.error is None


# --- the cache of a branch


@pytest.mark.parametrize("name", ["full", "knorm", "adakv_snapkv", "merging_snapkv", "oracle"])
def test_the_cache_of_a_branch_is_that_of_a_plain_loop_at_every_step(
    llama: LoadedModel, prompt: Prompt, name: str
) -> None:
    """Whatever its row shares with other questions, and whichever rows have finished."""
    looked = 0

    class Looking:
        def see(self, step: Step) -> None:
            nonlocal looked
            if step.number not in (0, 2):
                return
            for place, answer in enumerate(step.answers):
                if answer.branch.treatment.policy.name == name:
                    cache = step.cache(place)
                    states = [
                        (cache.tokens(n)[0], cache.keys(n)[0], cache.values(n)[0])
                        for n in range(cache.layers)
                    ]
                    caches[id(answer.branch), answer.question, step.number] = states
                    looked += 1

    caches: dict[Any, Any] = {}
    trace = treat(
        llama, [POLICIES[each] for each in dict.fromkeys(("full", "knorm", name))], (0.5,), prompt
    )
    generations = decode(llama, trace, STEPS, PLENTY, observers=[Looking()])
    for generation in generations:
        branch, question = generation.branch, prompt.questions[generation.question].token_ids
        for step in (0, 2):
            key = id(branch), generation.question, step
            if key in caches and len(generation.token_ids) > step:
                rows = plain_rows(trace, branch)
                plain_logits(
                    llama, rows, [*question, *generation.token_ids[:step]], branch.next_position
                )
                for layer, (tokens, keys, values) in enumerate(caches[key]):
                    assert torch.equal(tokens, rows.tokens(layer))
                    present = tokens != ABSENT
                    torch.testing.assert_close(
                        keys[present], rows.keys(layer)[present], rtol=1e-3, atol=1e-4
                    )
                    torch.testing.assert_close(
                        values[present], rows.values(layer)[present], rtol=1e-3, atol=1e-4
                    )
    assert looked > 4


def test_an_end_token_within_a_right_answer_does_not_end_it(prompt: Prompt) -> None:
    model = toy_model()
    model.network.generation_config.eos_token_id = sorted(
        {token for asked in prompt.questions for token in asked.gold_ids}
    )
    trace = treat(model, [noisy("recency")], (0.5,), prompt)
    for generation in decode(model, trace, STEPS, PLENTY, gold=True):
        question, gold = (
            prompt.questions[generation.question].question.id,
            prompt.questions[generation.question].gold_ids,
        )
        treatment = Noise([generation.branch.treatment.situation], [question])
        nll = plain_answer(
            model, trace, generation.branch, generation.question, STEPS, treatment, gold
        )[1]
        assert generation.gold_nll == pytest.approx(nll, abs=CLOSE)
    assert max(len(asked.gold_ids) for asked in prompt.questions) > 1
