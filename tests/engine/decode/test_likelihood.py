"""How likely the right answer is to a branch, against a plain forward pass over a plain cache."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
import torch
from transformers import DynamicCache

import kvbench.engine.decode.together as reading
from datasets_gen import TASKS
from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import Generation, Step
from kvbench.engine.decode.waves import all_rows, waves
from kvbench.engine.treat.branch import Branch, Trace, clearing_masks
from kvbench.experiments.catalogue import find_policy
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel, find_decoder
from kvbench.prompts.prompt import Prompt
from kvbench.store.tables import Record
from policies import POLICIES, Policy, at_ratios
from policies.declaration.draws import derive_seed, drawing_from
from tests.support.models.plain import plain_gold, plain_nll
from tests.support.models.runs import by_policy
from tests.support.models.toy import AGNOSTIC, NETWORKS, PLENTY, STEPS, model_of, toy_prompt, treat

CLOSE = 2e-4  # nats, in float32: the answers cost about 10
TOGETHER = {name: policy for name, policy in AGNOSTIC.items() if not policy.while_decoding}
DECODING = {name: policy for name, policy in AGNOSTIC.items() if policy.while_decoding}
# One press of each engine path.
PATHS = ("full", "knorm", "adakv_snapkv", "think", "kvzip", "oracle", "streaming_llm")
Likelihoods = dict[tuple[str, float, int], float | None]


@cache
def decode_with_gold(architecture: str) -> tuple[Trace, list[Generation]]:
    """All policies that are decoded together on one architecture; on the others one of each
    path."""
    policies = [
        policy for name, policy in TOGETHER.items() if architecture == "llama" or name in PATHS
    ]
    trace = treat(model_of(architecture), policies, (0.3, 0.9), toy_prompt(questions=3))
    return trace, decode(model_of(architecture), trace, STEPS, PLENTY, gold=True)


def likelihoods(generations: Sequence[Generation]) -> Likelihoods:
    treatments = [(g.branch.treatment, g) for g in generations]
    return {
        (treatment.policy.name, treatment.ratio, g.question): g.gold_nll
        for treatment, g in treatments
    }


def assert_plain(model: LoadedModel, trace: Trace, generations: Sequence[Generation]) -> None:
    assert generations
    for generation in generations:
        expected = plain_nll(model, trace, generation.branch, generation.question)
        assert generation.gold_nll == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize("policy", TOGETHER)
def test_it_is_that_of_a_plain_pass(policy: str) -> None:
    trace, generations = decode_with_gold("llama")
    assert_plain(
        model_of("llama"),
        trace,
        [g for g in generations if g.branch.treatment.policy.name == policy],
    )


@pytest.mark.parametrize("architecture", [name for name in NETWORKS if name != "llama"])
def test_it_is_that_of_a_plain_pass_on_every_architecture(architecture: str) -> None:
    assert_plain(model_of(architecture), *decode_with_gold(architecture))


def test_it_tells_branches_and_questions_apart() -> None:
    """Else the comparison above would prove nothing."""
    _, generations = decode_with_gold("llama")
    assert len({round(g.gold_nll, 3) for g in generations if g.gold_nll is not None}) > 100
    assert len({len(question.gold_ids) for question in toy_prompt().questions}) > 1


@pytest.mark.parametrize("at_once", [1, 300])
def test_neither_waves_nor_passes_change_it(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    trace, generations = decode_with_gold("llama")
    monkeypatch.setattr(reading, "TOKENS_AT_ONCE", at_once)
    bound = 3 * max(row.size for row in all_rows(waves([trace], STEPS, 1)))
    again = likelihoods(decode(model_of("llama"), trace, STEPS, bound, gold=True))
    assert again == pytest.approx(likelihoods(generations), abs=CLOSE)


def likeliest(prompt: Prompt) -> Prompt:
    """The right answers are what the full cache writes, with every third token another one, so that
    some tokens are the most likely ones and some are not."""
    model = model_of("llama")
    written = {
        g.question: g.token_ids
        for g in decode(model, treat(model, [POLICIES["full"]], (0.5,), prompt), 9, PLENTY)
    }
    golds = [
        [5 if place % 3 == 2 else token for place, token in enumerate(written[n])]
        for n in sorted(written)
    ]
    questions = [
        replace(q, gold_ids=tuple(gold)) for q, gold in zip(prompt.questions, golds, strict=True)
    ]
    return replace(prompt, questions=tuple(questions))


@pytest.mark.parametrize("policy", ["knorm", "adakv_snapkv", "kvzip", "decoding_knorm", "int4"])
def test_each_token_is_told_in_its_order_with_whether_it_is_the_most_likely_one(
    policy: str,
) -> None:
    model, prompt = model_of("llama"), likeliest(toy_prompt())
    trace = treat(model, [POLICIES["full"], find_policy(policy)], (0.5,), prompt)
    generations = decode(model, trace, 2, PLENTY, gold=True)
    right = set()
    for generation in generations:
        gold = generation.gold
        assert gold is not None
        assert generation.gold_nll == pytest.approx(sum(gold.nats) / len(gold.nats))
        assert gold.accuracy == sum(gold.right) / len(gold.right)
        right |= set(gold.right)
        if generation.branch.treatment.policy.name not in ("decoding_knorm", "int4"):
            nats, best = plain_gold(model, trace, generation.branch, generation.question)
            assert gold.nats == pytest.approx(nats, abs=CLOSE)
            assert list(gold.right) == best
    assert right == {True, False}


@pytest.mark.parametrize("policy", DECODING.values(), ids=DECODING)
def test_of_a_press_that_acts_while_decoding_it_is_that_under_the_press(
    llama: LoadedModel, policy: Policy
) -> None:
    prompt = toy_prompt()
    trace = treat(llama, [policy], (0.5,), prompt)
    (branch,) = trace.branches
    for generation in decode(llama, trace, STEPS, PLENTY, gold=True):
        assert generation.gold_nll == pytest.approx(
            under_press(llama, trace, branch, generation.question), abs=CLOSE
        )


def under_press(model: LoadedModel, trace: Trace, branch: Branch, number: int) -> float:
    """A user's own loop: context, question and right answer under one press, token by token."""
    situation, question = branch.treatment.situation, trace.prompt.questions[number]
    press, seed = (
        branch.treatment.policy.press(situation),
        derive_seed(0, situation.example_id, f"answer {number}"),
    )
    cache, position, nats = DynamicCache(), branch.next_position, []
    with (
        torch.no_grad(),
        clearing_masks(model),
        drawing_from(seed, model.device),
        press(model.network),
    ):
        find_decoder(model.network)(
            input_ids=torch.tensor([trace.prompt.token_ids]), past_key_values=cache
        )
        pending = list(question.token_ids)
        for token in question.gold_ids:
            places = torch.arange(position, position + len(pending))
            output = model.network(
                torch.tensor([pending]), past_key_values=cache, position_ids=places[None]
            )
            nats.append(-float(output.logits[0, -1].log_softmax(-1)[token]))
            position += len(pending)
            pending = [token]
    return sum(nats) / len(nats)


# --- records


def collected(model: LoadedModel, policies: Sequence[Policy]) -> dict[str, list[Record]]:
    task = TASKS["base"]
    grid = Grid([(task, 2)], policies, at_ratios([0.5]))
    return by_policy(collect(model, task, [task.example(0, 1)], grid))


def test_the_rise_is_over_the_full_cache_whether_that_is_asked_for_or_not(
    llama: LoadedModel,
) -> None:
    chosen = [POLICIES[name] for name in ("full", "knorm", "oracle", "decoding_knorm")]
    with_full = collected(llama, chosen)
    without = collected(llama, chosen[1:])
    assert set(without) == {"knorm", "oracle", "decoding_knorm"}, (
        "the full cache is no result where nobody asks for it"
    )
    assert {record.delta_nll for record in with_full["full"]} == {0.0}
    full = {record.question_id: record.gold_nll for record in with_full["full"]}
    for name, records in without.items():
        for record, beside_full in zip(records, with_full[name], strict=True):
            assert record.gold_nll == pytest.approx(beside_full.gold_nll, abs=CLOSE)
            assert record.delta_nll == pytest.approx(beside_full.delta_nll, abs=CLOSE)
            assert beside_full.delta_nll == beside_full.gold_nll - full[record.question_id]
            assert record.output_token_ids == beside_full.output_token_ids


# --- samplers and observers


def test_an_observer_sees_the_logits_that_every_token_is_chosen_by() -> None:
    model, seen = model_of("llama"), {}

    class Watching:
        def see(self, step: Step) -> None:
            for answer, logits in zip(step.answers, step.logits, strict=True):
                seen[id(answer.branch), answer.question, step.number] = logits

    trace = treat(
        model,
        [POLICIES[name] for name in ("full", "knorm", "oracle", "decoding_knorm")],
        (0.5,),
        toy_prompt(),
    )
    expected = decode(model, trace, STEPS, PLENTY)
    generations = decode(model, trace, STEPS, PLENTY, observers=[Watching()])
    assert [g.token_ids for g in generations] == [g.token_ids for g in expected]
    for generation in generations:
        logits = [
            seen[id(generation.branch), generation.question, step]
            for step in range(len(generation.token_ids))
        ]
        assert [int(of_step.argmax()) for of_step in logits] == list(generation.token_ids)
