"""The engine answers with the tokens that kvpress's own pipeline answers with, on every
architecture."""

from collections.abc import Callable, Iterable
from functools import cache
from itertools import combinations
from typing import Any

import pytest
import torch
from kvpress import BasePress, ComposedPress, KnormPress, KVzipPress
from transformers import DynamicCache

import kvbench.engine.decode.together as reading
from datasets_gen import TASKS
from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import Generation
from kvbench.engine.decode.waves import waves
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.experiments.catalogue import unfit_for
from kvbench.models.load import LoadedModel
from kvbench.models.pretrained import cache_shape
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import Prompt, build_prompts
from kvbench.system.errors import KVBenchError, first_line
from policies import POLICIES, Policy, at_ratios
from tests.support.models.engine_paths import first_of_each_path, one_of_each_path
from tests.support.models.toy import (
    AGNOSTIC,
    KEY_HEADS,
    LAYERS,
    NETWORKS,
    PLENTY,
    RUNNABLE,
    WINDOW,
    ActingPress,
    ActingScorer,
    by_question,
    gemma3_text,
    keep_every_third,
    keep_of,
    kvpress_answers_branch,
    largest_row,
    model_of,
    pressing,
    prompt_for,
    sliding_mistral,
    toy_example,
    toy_model,
    toy_prompt,
    toy_tokenizer,
    treat,
)

RATIOS = (0.3, 0.9)  # at 0 each is the full cache: tests/policies/test_policy_contract.py
# Where fewer are tried: all of them are on the first architecture, and everywhere in slow tests.
ONE_RATIO = (0.3,)
STEPS = 8
PROTECTING = {name: policy for name, policy in RUNNABLE.items() if policy.needs.spans}
FIRSTS = first_of_each_path(AGNOSTIC.values())
every_path = pytest.mark.parametrize("policy", one_of_each_path(AGNOSTIC.values()))
a_part_or_every_policy = pytest.mark.parametrize(
    "every_policy",
    [pytest.param(False, id="each path"), pytest.param(True, id="all", marks=pytest.mark.slow)],
)
every_other_architecture = pytest.mark.parametrize(
    "architecture", [name for name in NETWORKS if name != "llama"]
)
every_architecture = pytest.mark.parametrize("architecture", NETWORKS)


# What cannot run on Gemma 3, by what kvpress's press says there.
NO_ROTATION = "'Gemma3RotaryEmbedding' object has no attribute"
NOT_GEMMA = "KVzipPress is not supported for Gemma3ForCausalLM"
UNFIT = {
    "expected_attention": NO_ROTATION,
    "capkv": NO_ROTATION,
    "finch": NO_ROTATION,
    "adakv_expected_attention": NO_ROTATION,
    "criticalkv_expected_attention": NO_ROTATION,
    "rerotated_streaming_llm": NO_ROTATION,
    "rerotated_snapkv": NO_ROTATION,
    "duo_attention": NO_ROTATION,
    "kvzip": NOT_GEMMA,
    "kvzip_plus": NOT_GEMMA,
    "kvgrad": NOT_GEMMA,
    "kvcompose": "it compresses layer 0, whose sliding window is left whole",
    "kvcompose_unstructured": "it compresses layer 0, whose sliding window is left whole",
    # kvpress's pipeline reads the question with the mask of the first layer, and it is cut by then
    # in the others.
    "prefill_decoding_knorm": "must match the size of tensor",
}


def fit_for(architecture: str, policies: Iterable[Policy]) -> list[Policy]:
    return [
        policy for policy in policies if architecture != "gemma3_text" or policy.name not in UNFIT
    ]


@cache
def answered(architecture: str, every_policy: bool = True) -> tuple[Trace, list[Generation]]:
    """All policies at all ratios, or the first of each path at one ratio, decoded together."""
    model = model_of(architecture)
    trace = (
        treat(model, fit_for(architecture, AGNOSTIC.values()), RATIOS, toy_prompt(questions=2))
        if every_policy
        else treat(model, fit_for(architecture, FIRSTS), ONE_RATIO, toy_prompt(questions=2))
    )
    return trace, decode(model, trace, STEPS, PLENTY)


def tokens_of(generations: list[Generation], branch: Branch) -> list[list[int]]:
    return [list(generation.token_ids) for generation in generations if generation.branch is branch]


def assert_equals_kvpress(
    model: LoadedModel,
    policy: Policy,
    prompt: Prompt,
    mode: Mode = "agnostic",
    ratios: tuple[float, ...] = RATIOS,
) -> list[Branch]:
    trace = treat(model, [policy], ratios, prompt)
    generations = decode(model, trace, STEPS, PLENTY)
    for branch in trace.branches:
        assert branch.error is None, branch.error
        assert tokens_of(generations, branch) == theirs(model, trace, branch, mode)
    return trace.branches


def theirs(
    model: LoadedModel, trace: Trace, branch: Branch, mode: Mode = "agnostic"
) -> list[list[int]]:
    """What kvpress answers. Where layers keep different numbers of rows, its pipeline masks the
    tokens of a question in all of them by the length of the first (or raises); one by one they need
    no mask (:class:`SlidingPipeline`)."""
    lengths = {layer.held_rows for layer in branch.layers}
    if len(lengths) > 1 and not any(model.windows):
        return [
            answer_token_by_token(model, trace, branch, number)
            for number in branch.treatment.questions
        ]
    return kvpress_answers_branch(model, trace.prompt, branch, STEPS, mode)


# --- every policy on every architecture


@pytest.mark.parametrize("policy", AGNOSTIC.values(), ids=AGNOSTIC)
def test_tokens_are_those_of_kvpress(policy: Policy) -> None:
    assert_together_equals_kvpress("llama", policy)


@every_other_architecture
@pytest.mark.parametrize("policy", FIRSTS, ids=lambda policy: policy.name)
def test_tokens_are_those_of_kvpress_on_every_architecture(
    architecture: str, policy: Policy
) -> None:
    assert_together_equals_kvpress(architecture, policy, every_policy=False)


@pytest.mark.slow
@every_other_architecture
@pytest.mark.parametrize("policy", AGNOSTIC.values(), ids=AGNOSTIC)
def test_tokens_are_those_of_kvpress_at_every_ratio_and_everywhere(
    architecture: str, policy: Policy
) -> None:
    assert_together_equals_kvpress(architecture, policy)


def assert_together_equals_kvpress(
    architecture: str, policy: Policy, every_policy: bool = True
) -> None:
    if not fit_for(architecture, [policy]):
        pytest.skip(f"{policy.name} cannot run on {architecture}: {UNFIT[policy.name]}")
    trace, generations = answered(architecture, every_policy)
    compared = 0
    for branch in trace.branches:
        if branch.treatment.policy is not policy:
            continue
        if branch.error is None:
            assert tokens_of(generations, branch) == theirs(model_of(architecture), trace, branch)
        # What the engine records as failed must fail under kvpress as well, and for the same
        # reason.
        else:
            with pytest.raises(Exception, match=r".") as raised:
                kvpress_answers_branch(model_of(architecture), trace.prompt, branch, STEPS)
            assert first_line(raised.value) in branch.error
        compared += 1
    assert compared >= len(policy.levels_among(at_ratios(RATIOS if every_policy else ONE_RATIO)))
    if architecture in ("llama", "qwen3", "gemma3_text"):
        assert all(branch.error is None for branch in trace.branches)


@every_architecture
def test_the_toy_answers_tell_branches_apart(architecture: str) -> None:
    """Else the comparison above would prove nothing."""
    trace, generations = answered(architecture, architecture == "llama")
    assert len({generation.token_ids for generation in generations}) > min(50, len(trace.branches))
    assert {generation.ended for generation in generations} == {True, False}


@pytest.mark.parametrize("policy", one_of_each_path([POLICIES["finch"], *AGNOSTIC.values()]))
def test_tokens_are_those_of_kvpress_with_the_question_in_the_context(
    llama: LoadedModel, policy: Policy
) -> None:
    for prompt in build_prompts(toy_tokenizer(), TASKS["base"], toy_example(), "aware")[:2]:
        assert_equals_kvpress(llama, policy, prompt, "aware")


@pytest.mark.parametrize("policy", PROTECTING.values(), ids=PROTECTING)
def test_tokens_are_those_of_kvpress_where_instructions_are_protected(
    llama: LoadedModel, policy: Policy
) -> None:
    prompt = toy_prompt(task="instructions", questions=2)
    assert prompt.protected
    assert_equals_kvpress(llama, policy, prompt)


@every_path
@pytest.mark.parametrize(
    "ratio", [0.3, *(pytest.param(ratio, marks=pytest.mark.slow) for ratio in (0.0, 0.9))]
)
def test_tokens_are_those_of_kvpress_on_chains(
    llama: LoadedModel, policy: Policy, ratio: float
) -> None:
    assert_equals_kvpress(llama, policy, toy_prompt(task="hops", questions=2), ratios=(ratio,))


# --- other presses, with no edit of the engine


def merged(
    module: Any, hidden_states: Any, keys: torch.Tensor, values: torch.Tensor, *_: Any
) -> Any:
    """Every two neighbours become one, at the place of their mean."""
    even = keys.shape[2] // 2 * 2
    return tuple(part[:, :, :even].unflatten(2, (-1, 2)).mean(3) for part in (keys, values))


def rewritten_values(
    module: Any, hidden_states: Any, keys: torch.Tensor, values: torch.Tensor, *_: Any
) -> Any:
    """The keys of the later half stand as they were, their values doubled."""
    half = keys.shape[2] // 2
    return keys[:, :, half:], 2 * values[:, :, half:]


def backwards(
    module: Any, hidden_states: Any, keys: torch.Tensor, values: torch.Tensor, *_: Any
) -> Any:
    """Attention does not know an order of rows: positions are in the keys."""
    return keys[:, :, ::2].flip(2), values[:, :, ::2].flip(2)


def value_norm(module: Any, hidden_states: Any, keys: Any, values: torch.Tensor, *_: Any) -> Any:
    return values.norm(dim=-1)


REWRITING = {
    "merges": pressing("merges", lambda s: ActingPress(merged)),
    "rewrites values": pressing("rewrites values", lambda s: ActingPress(rewritten_values)),
}
SELECTING = {
    "every third": pressing("every third", lambda s: ActingPress(keep_every_third)),
    "backwards": pressing("backwards", lambda s: ActingPress(backwards)),
    "large values": pressing("large values", lambda s: ActingScorer(s.ratio, value_norm)),
}


@pytest.mark.parametrize("name", [*SELECTING, *REWRITING])
def test_a_press_that_is_not_registered_runs_with_no_edit_of_the_engine(
    llama: LoadedModel, prompt: Prompt, name: str
) -> None:
    for branch in assert_equals_kvpress(
        llama, {**SELECTING, **REWRITING}[name], prompt, ratios=(0.3,)
    ):
        assert all((cache.keep is None) == (name in REWRITING) for cache in branch.layers)


def test_presses_of_every_kind_share_one_wave(llama: LoadedModel, prompt: Prompt) -> None:
    """Rows that select, mask by head and rewrite, of different lengths in different layers."""
    chosen = [*SELECTING.values(), *REWRITING.values(), POLICIES["adakv_snapkv"], POLICIES["full"]]
    trace = treat(llama, chosen, [0.3], prompt)
    together = decode(llama, trace, STEPS, PLENTY)
    assert by_question(together) == by_question(
        decode(llama, trace, STEPS, largest_row(trace, STEPS))
    )
    for branch in trace.branches:
        assert tokens_of(together, branch) == theirs(llama, trace, branch)


def fewer_with_depth(
    module: Any, hidden_states: Any, keys: torch.Tensor, values: torch.Tensor, *_: Any
) -> Any:
    kept = keys.shape[2] // (2 + 2 * module.layer_idx)
    return keys[:, :, -kept:], values[:, :, -kept:]


def answer_token_by_token(
    model: LoadedModel, trace: Trace, branch: Branch, number: int
) -> list[int]:
    """The answer by the network's own attention. Level at once, it would mask all layers by the
    length of the first."""
    cache = DynamicCache()
    for layer, (keys, values) in enumerate(zip(trace.keys, trace.values, strict=True)):
        left = branch.layers[layer]
        keys, values = (
            (keys, values) if left.keys is None or left.values is None else (left.keys, left.values)
        )
        keep = left.keep if left.keep is not None else torch.ones(keys.shape[:2], dtype=torch.bool)
        index = torch.stack([of_head.nonzero()[:, 0] for of_head in keep])[..., None].expand(
            -1, -1, keys.shape[-1]
        )
        cache.update(keys.gather(1, index)[None], values.gather(1, index)[None], layer)
    position = torch.tensor([[branch.next_position]])
    pending, answer = list(trace.prompt.questions[number].token_ids), list[int]()
    with torch.inference_mode():
        while len(answer) < STEPS and not set(answer) & set(model.end_tokens()):
            output = model.network(
                torch.tensor([[pending.pop(0)]]), position_ids=position, past_key_values=cache
            )
            position = position + 1
            if not pending:
                pending = [int(output.logits[0, -1].argmax())]
                answer += pending
    return answer


def test_layers_that_keep_different_numbers_of_tokens_are_read_each_at_its_length(
    llama: LoadedModel, prompt: Prompt
) -> None:
    trace = treat(
        llama,
        [pressing("fewer", lambda s: ActingPress(fewer_with_depth)), POLICIES["knorm"]],
        [0.5],
        prompt,
    )
    branch = trace.branches[0]
    assert len({cache.read_rows for cache in branch.layers}) == LAYERS
    for generation in decode(llama, trace, STEPS, PLENTY):
        if generation.branch is branch:
            assert list(generation.token_ids) == answer_token_by_token(
                llama, trace, branch, generation.question
            )


def empties_the_first_layer(
    module: Any, hidden_states: Any, keys: Any, values: Any, *_: Any
) -> Any:
    kept = 5 * module.layer_idx
    return keys[:, :, keys.shape[2] - kept :], values[:, :, values.shape[2] - kept :]


ONE_BUDGET = ("kvzip", "kvzip_plus", "kvgrad", "kvcompose_unstructured")  # for the whole cache


def test_a_layer_that_keeps_nothing_reads_the_question_as_in_kvpress(llama: LoadedModel) -> None:
    emptying = pressing("emptying", lambda s: ActingPress(empties_the_first_layer))
    prompt = toy_prompt(questions=2)
    trace = treat(
        llama, [emptying, *(POLICIES[name] for name in (*ONE_BUDGET, "knorm"))], [0.99], prompt
    )
    generations = decode(llama, trace, STEPS, PLENTY)
    assert by_question(generations) == by_question(
        decode(llama, trace, STEPS, largest_row(trace, STEPS))
    )
    for branch in trace.branches:
        assert branch.error is None, branch.error
        assert (branch.layers[0].read_rows == 0) == (branch.treatment.policy.name != "knorm")
        assert branch.layers[1].read_rows > 0
        assert tokens_of(generations, branch) == theirs(llama, trace, branch)


NEED_THEIR_OWN_PREFILL: dict[str, Callable[[Any], BasePress]] = {
    "ComposedPress": lambda s: ComposedPress([KnormPress(0.3), KnormPress(0.2)]),
    "KVzipPress": lambda s: KVzipPress(0.5),
}


@pytest.mark.parametrize("name", NEED_THEIR_OWN_PREFILL)
def test_a_press_with_its_own_forward_pass_is_not_run_in_the_shared_one(
    llama: LoadedModel, prompt: Prompt, name: str
) -> None:
    build = NEED_THEIR_OWN_PREFILL[name]
    (branch,) = treat(llama, [pressing(name, build)], [0.5], prompt).branches
    assert branch.error is not None
    assert "needs a prefill of its own" in branch.error
    assert_equals_kvpress(llama, pressing(name, build, prefill="private"), prompt)


# --- waves


@a_part_or_every_policy
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_small_waves_give_the_same_tokens_as_a_large_one(
    llama: LoadedModel, rows: int, every_policy: bool
) -> None:
    trace, generations = answered("llama", every_policy)
    bound = rows * largest_row(trace, STEPS)
    assert len(waves([trace], STEPS, bound)) > len(waves([trace], STEPS, PLENTY))
    assert by_question(decode(llama, trace, STEPS, bound)) == by_question(generations)


@a_part_or_every_policy
@pytest.mark.parametrize("at_once", [1, 300, 10**6])
def test_reading_questions_in_chunks_of_rows_changes_no_token(
    llama: LoadedModel, monkeypatch: pytest.MonkeyPatch, at_once: int, every_policy: bool
) -> None:
    trace, generations = answered("llama", every_policy)
    monkeypatch.setattr(reading, "TOKENS_AT_ONCE", at_once)
    assert by_question(decode(llama, trace, STEPS, PLENTY)) == by_question(generations)


# --- what a sliding window hides


def test_a_context_longer_than_a_sliding_window_is_refused(prompt: Prompt) -> None:
    with pytest.raises(KVBenchError, match="mistral takes 40, the least of its positions"):
        assert_equals_kvpress(toy_model("mistral", sliding_mistral), POLICIES["full"], prompt)


def test_a_sliding_layer_holds_what_the_first_token_behind_the_context_sees(prompt: Prompt) -> None:
    for policy in (
        POLICIES["streaming_llm"],
        POLICIES["per_layer_knorm"],
    ):  # in the shared prefill, and in its own
        (branch,) = treat(sliding_model("sff", WINDOW), [policy], [0.5], prompt).branches
        sliding, *full = keep_of(branch)
        assert (
            sliding.nonzero()[:, 1].unique().tolist()
            == list(range(len(prompt.token_ids)))[1 - WINDOW :]
        )
        assert branch.layers[0].held_rows == KEY_HEADS * (WINDOW - 1)
        assert torch.stack(full).float().mean() == pytest.approx(0.5, abs=0.01)


SLIDING = ["full", "snapkv", "adakv_snapkv", "merging_snapkv", "decoding_knorm"]
# Shorter than a question, than the context, as long as it, and longer than all that is read.
WINDOWS = (5, 40, len(toy_prompt().token_ids), 4000)
# Layers that slide and that do not.
LAYOUTS = [*(("sf", window) for window in WINDOWS), ("sfs", 20), ("ssff", 50)]


@pytest.mark.parametrize("policy", [POLICIES[name] for name in SLIDING], ids=SLIDING)
@pytest.mark.parametrize(("layout", "window"), LAYOUTS)
def test_tokens_are_those_of_kvpress_in_every_window(
    policy: Policy, layout: str, window: int
) -> None:
    assert_equals_kvpress(
        sliding_model(layout, window), policy, toy_prompt(questions=2), ratios=(0.5,)
    )


@cache
def sliding_model(layout: str, window: int) -> LoadedModel:
    types = [{"s": "sliding_attention", "f": "full_attention"}[kind] for kind in layout]
    return toy_model("gemma3_text", lambda: gemma3_text(types, window))


def test_windows_change_answers(prompt: Prompt) -> None:
    """Else the comparison above would prove nothing."""
    full = [POLICIES["full"]]
    by_window = [
        by_question(decode(model, treat(model, full, [], prompt), STEPS, PLENTY))
        for model in (sliding_model("sf", window) for window in WINDOWS)
    ]
    assert all(one != other for one, other in combinations(by_window, 2))


def test_what_cannot_run_there_is_known_before_and_fails_for_the_reason_that_is_told(
    prompt: Prompt,
) -> None:
    model = model_of("gemma3_text")
    shape = cache_shape(model.network.config, "float32")
    assert set(unfit_for(list(RUNNABLE.values()), shape)) == set(UNFIT)
    assert (
        unfit_for(list(POLICIES.values()), cache_shape(model_of("llama").network.config, "float32"))
        == {}
    )
    for name, reason in UNFIT.items():
        policy = POLICIES[name]
        trace = treat(model, [policy], [0.5], prompt_for(policy))
        decode(model, trace, 2, PLENTY)
        assert all(reason in (branch.error or "") for branch in trace.branches), name
