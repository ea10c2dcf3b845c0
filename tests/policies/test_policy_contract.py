"""The contract of every registered policy that needs nothing downloaded, on a toy Llama and through
the engine."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
import torch
from kvpress.utils import compute_n_kept

from kvbench.engine.decode.answers import decode
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import Prompt
from policies import UNTREATED, Level, Policy, Situation, at_ratios, list_arguments
from tests.support.models.toy import (
    HEAD_SIZE,
    KEY_HEADS,
    LAYERS,
    PLENTY,
    RUNNABLE,
    hooks_left,
    keep_of,
    model_of,
    prompt_for,
    toy_prompt,
    treat,
)
from tests.support.wording import assert_says

RATIOS = (0.0, 0.1, 0.45, 0.9)
STEPS = 4
# Tokens of a context of the tests that are the same word, at most at the edge of a threshold.
MOST_OF_A_WORD = 8
every_policy = pytest.mark.parametrize("policy", RUNNABLE.values(), ids=RUNNABLE)


@cache
def trace_of(name: str) -> Trace:
    return treat(model_of("llama"), [RUNNABLE[name]], RATIOS, prompt_for(RUNNABLE[name]))


def branches(policy: Policy, above: float = -1.0) -> list[Branch]:
    found = [branch for branch in trace_of(policy.name).branches if branch.treatment.ratio > above]
    for branch in found:
        assert branch.error is None
    if not found:
        pytest.skip(f"{policy.name} runs at ratio 0 only")
    return found


def by_number(trace: Trace) -> dict[int, Sequence[int]]:
    """The tokens of every question's answer."""
    return {
        answer.question: answer.token_ids
        for answer in decode(model_of("llama"), trace, STEPS, PLENTY)
    }


@cache
def untreated_answers(mode: Mode, with_instructions: bool) -> dict[int, Sequence[int]]:
    """The answers of the full cache to the prompt that :func:`prompt_for` gives policies of these
    needs."""
    task = "instructions" if with_instructions and mode == "agnostic" else "base"
    prompt = toy_prompt(mode, task, questions=2)
    return by_number(treat(model_of("llama"), [RUNNABLE["full"]], [0.0], prompt))


# --- the budget


@every_policy
def test_every_ratio_that_it_reaches_has_a_branch_for_every_question(policy: Policy) -> None:
    trace = trace_of(policy.name)
    ratios = {level.value for level in policy.levels_among(at_ratios(RATIOS))}
    assert {b.treatment.ratio for b in trace.branches} == ratios
    for ratio in ratios:
        numbers = [
            number
            for b in trace.branches
            if b.treatment.ratio == ratio
            for number in b.treatment.questions
        ]
        assert sorted(numbers) == list(range(len(trace.prompt.questions)))


@every_policy
def test_ratio_zero_is_the_full_cache_token_for_token(policy: Policy) -> None:
    trace = treat(model_of("llama"), [policy], [0.0], prompt_for(policy))
    assert by_number(trace) == untreated_answers(
        "aware" if policy.needs.question else "agnostic", policy.needs.spans
    )
    for branch in trace.branches:
        assert keep_of(branch).shape == (LAYERS, KEY_HEADS, trace.length)
        assert keep_of(branch).all()


@every_policy
def test_as_many_tokens_are_kept_as_the_policy_says(policy: Policy) -> None:
    if policy.counted == "nowhere" or policy.while_decoding:
        pytest.skip("it says of no place that the budget is counted there")
    for branch in branches(policy, above=0.0):
        length = trace_of(policy.name).length
        expected = compute_n_kept(length, branch.treatment.ratio)
        if policy.rewrites:
            assert [layer.read_rows for layer in branch.layers] == [KEY_HEADS * expected] * LAYERS
            continue
        kept = keep_of(branch).sum(-1)
        if policy.counted == "head":
            assert (kept == expected).all()
        elif policy.counted == "layer":
            # A count of a head is rounded down, one of a layer is not.
            exact = KEY_HEADS * length * (1 - branch.treatment.ratio)
            difference = (kept.sum(-1) - exact).abs()
            assert (difference[1:] <= KEY_HEADS).all()
            # In the first layer a word has keys of one norm wherever it stands, and a threshold
            # takes all or none.
            assert difference[0] <= KEY_HEADS + MOST_OF_A_WORD
        else:
            slots = LAYERS * KEY_HEADS * length
            assert int(kept.sum()) == slots - int(slots * branch.treatment.ratio)


@every_policy
def test_a_budget_in_tokens_is_kept_to_the_token_or_refused(policy: Policy) -> None:
    length = trace_of(policy.name).length
    trace = treat(
        model_of("llama"), [policy], (), prompt_for(policy), budgets=(48, length, length + 5)
    )
    assert {branch.treatment.level for branch in trace.branches} == (
        {Level("budget", tokens) for tokens in (48, length, length + 5)}
        if policy.kinds
        else {UNTREATED}
    )
    for branch in trace.branches:
        ratio, asked = branch.treatment.ratio, int(branch.treatment.level.value) or length
        assert ratio == pytest.approx(max(0, 1 - asked / length), abs=1e-6)
        if ratio > policy.levels.highest_ratio:
            assert branch.error is not None
            assert f"{policy.name} removes at most {policy.levels.highest_ratio:g}" in branch.error
            continue
        assert branch.error is None
        if asked >= length:
            assert ratio == 0
            assert keep_of(branch).all()
        elif policy.counted == "head" and not policy.while_decoding:
            assert [layer.read_rows for layer in branch.layers] == [KEY_HEADS * asked] * LAYERS


@every_policy
def test_more_goes_at_a_higher_ratio_whatever_the_budget_means(policy: Policy) -> None:
    if policy.while_decoding:
        pytest.skip("it acts later")
    left = {}
    for branch in branches(policy):
        left[branch.treatment.ratio] = sum(
            layer.read_rows * layer.filled for layer in branch.layers
        )
    ordered = [left[ratio] for ratio in sorted(left)]
    assert ordered == sorted(ordered, reverse=True)
    lazy = policy.name == "simlayerkv"  # and no layer of a model of random weights is
    assert not policy.kinds or lazy or ordered[-1] < ordered[0]


@every_policy
def test_what_frees_holds_what_is_read_and_what_masks_holds_everything(policy: Policy) -> None:
    for branch in branches(policy):
        for layer in branch.layers:
            whole = KEY_HEADS * trace_of(policy.name).length
            assert layer.held_rows == (layer.read_rows if policy.frees else whole)


# --- what is kept


@every_policy
def test_kept_rows_are_rows_of_the_full_cache_unless_it_says_that_it_rewrites(
    policy: Policy,
) -> None:
    """The keep mask is found by comparing rows bit by bit: there is one just where all rows were
    found."""
    for branch in branches(policy, above=0.2):
        selects = [layer.keep is not None for layer in branch.layers]
        assert selects == [not policy.rewrites or policy.while_decoding] * LAYERS


@every_policy
def test_shape_dtype_and_device_are_those_of_the_cache(policy: Policy) -> None:
    full = trace_of(policy.name).keys[0]
    for branch in branches(policy):
        for layer in branch.layers:
            for states in (layer.keys, layer.values):
                if states is not None:
                    assert states.shape[0::2] == (KEY_HEADS, HEAD_SIZE)
                    assert (states.dtype, states.device) == (full.dtype, full.device)
                    assert states.isfinite().all()


# --- the same again, and nothing left behind


def left_of(branch: Branch) -> list[torch.Tensor]:
    found = []
    for layer in branch.layers:
        found += [part for part in (layer.keep, layer.keys, layer.values) if part is not None]
    return found


@every_policy
def test_a_second_run_gives_the_same_whatever_was_drawn_before(policy: Policy) -> None:
    answers = []
    torch.manual_seed(12345)
    first = trace_of(policy.name)
    answers.append(
        [generation.token_ids for generation in decode(model_of("llama"), first, STEPS, PLENTY)]
    )
    torch.manual_seed(7)
    second = treat(model_of("llama"), [policy], RATIOS, prompt_for(policy))
    answers.append(
        [generation.token_ids for generation in decode(model_of("llama"), second, STEPS, PLENTY)]
    )
    for one, other in zip(first.branches, second.branches, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(left_of(one), left_of(other), strict=True))
    assert answers[0] == answers[1]


@every_policy
def test_another_seed_gives_another_cache_if_and_only_if_the_policy_declares_that_it_is_random(
    policy: Policy,
) -> None:
    prompt, ratio = prompt_for(policy), min(0.45, policy.levels.highest_ratio)
    outcomes = []
    for seed in (0, 1):
        trace = treat(model_of("llama"), [policy], [ratio], prompt, seed)
        if policy.while_decoding:  # what such a press draws may show in the answers alone
            generations = decode(model_of("llama"), trace, STEPS, PLENTY)
            outcomes.append(
                [
                    generation.final_cache.digest
                    for generation in generations
                    if generation.final_cache
                ]
            )
        else:
            outcomes.append([branch.digest for branch in trace.branches])
    assert outcomes[0]
    assert (outcomes[0] != outcomes[1]) == policy.random


@every_policy
def test_the_generator_hooks_masks_and_the_model_are_left_alone(policy: Policy) -> None:
    network, prompt = model_of("llama").network, prompt_for(policy)
    weights = {name: weight.clone() for name, weight in network.named_parameters()}
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    trace = treat(model_of("llama"), [policy], [0.4], prompt)
    decode(model_of("llama"), trace, 2, PLENTY)
    assert torch.equal(torch.rand(2), expected)
    assert not hooks_left(network)
    for module in network.modules():
        assert getattr(module, "masked_key_indices", None) is None
        own = type(module).forward  # KVzipPress puts the one of the class on its module
        assert getattr(vars(module).get("forward", module.forward), "__func__", None) is own
    assert network.config._attn_implementation == "sdpa"
    assert all(torch.equal(weight, weights[name]) for name, weight in network.named_parameters())
    assert all(not weight.requires_grad or weight.grad is None for weight in network.parameters())


@every_policy
def test_each_press_is_built_anew_and_its_arguments_are_plain(policy: Policy) -> None:
    ratio = 0.4 if policy.kinds else 0.0
    situation = Situation(
        ratio, 160, 0, "example", 9 if policy.needs.question else 0, ((3, 9), (9, 20))
    )
    one, other = policy.press(situation), policy.press(situation)
    assert one is not other
    assert list_arguments(one) == list_arguments(other)
    assert all(
        isinstance(value, bool | int | float | str) for value in list_arguments(one).values()
    )


# --- contexts that are too short


def shortened(prompt: Prompt, length: int) -> Prompt:
    questions = tuple(
        replace(question, answer_tokens=(), evidence_tokens=()) for question in prompt.questions
    )
    context = tuple(range(max(1, length - prompt.question_tokens)))
    return replace(
        prompt,
        token_ids=prompt.token_ids[:length],
        context_tokens=context,
        questions=questions,
        stretches=(),
    )


@pytest.mark.parametrize("length", [1, 2, 5, 17, 30])
@every_policy
def test_a_context_shorter_than_its_window_is_treated_or_refused_in_one_line(
    policy: Policy, length: int
) -> None:
    for branch in treat(
        model_of("llama"), [policy], [0.45], shortened(prompt_for(policy), length)
    ).branches:
        if branch.error is None:
            assert len(branch.layers) == LAYERS
            continue
        assert "\n" not in branch.error
        assert branch.layers == []
        if length <= policy.needs.more_tokens_than:
            assert_says(
                branch.error, policy.name, f"longer than {policy.needs.more_tokens_than} tokens"
            )
        else:
            assert policy.needs.question, branch.error
