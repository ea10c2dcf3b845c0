"""A press that fails is recorded with its reason, and no other branch notices."""

import sys
from typing import Any

import pytest
import torch
from kvpress import AdaKVPress, BasePress, KnormPress, ObservedAttentionPress, ScorerPress

from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import Generation
from kvbench.engine.treat.branch import KNOWN, is_known
from kvbench.engine.treat.shared import Copies
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt
from policies import POLICIES, Policy, Situation
from tests.support.models.toy import (
    KEY_HEADS,
    PLENTY,
    STEPS,
    ActingPress,
    ActingScorer,
    Answers,
    answers,
    hooks_left,
    keep_of,
    pressing,
    toy_model,
    treat,
)

OTHERS = [POLICIES[name] for name in ("full", "knorm", "snapkv", "h2o", "expected_attention", "adakv_snapkv")]

Keys = torch.Tensor
Values = torch.Tensor


@pytest.fixture(scope="module")
def alone(llama: LoadedModel, prompt: Prompt) -> Answers:
    """What the others answer where no press misbehaves."""
    return answers(llama, treat(llama, OTHERS, [0.5], prompt))


# --- presses that do wrong


# Each is called as ``compress(module, hidden_states, keys, values, attentions, kwargs)``.


def raises_in_the_second_layer(module: Any, hidden_states: Any, keys: Keys, values: Values, *_: Any) -> Any:
    if module.layer_idx == 1:
        raise RuntimeError("no room\nfor more")
    return keys[:, :, :3], values[:, :, :3]


def gives_nan(module: Any, hidden_states: Any, keys: Keys, values: Values, *_: Any) -> Any:
    return keys * float("nan"), values


def masks(head: int, first: int = 0) -> Any:
    """Masks the first key of a head, and cuts the tokens before ``first`` off."""

    def act(module: Any, hidden_states: Any, keys: Keys, values: Values, *_: Any) -> Any:
        module.masked_key_indices = (torch.tensor([0]), torch.tensor([head]), torch.tensor([0]))
        return keys[:, :, first:], values[:, :, first:]

    return act


def masks_everything(module: Any, hidden_states: Any, keys: Keys, values: Values, *_: Any) -> Any:
    module.masked_key_indices = torch.ones(keys.shape[:3]).nonzero(as_tuple=True)
    return keys, values


def shortens_the_cache_itself(module: Any, hidden_states: Any, keys: Keys, values: Values, _: Any, kwargs: Any) -> Any:
    layer = kwargs["past_key_values"].layers[module.layer_idx]
    layer.keys, layer.values = layer.keys[:, :, :5], layer.values[:, :, :5]
    return keys, values


class Unready(ActingPress):
    def post_init_from_model(self, model: Any) -> None:
        raise OSError("no statistics for this model")


def acting(act: Any) -> Policy:
    return pressing("faulty", lambda situation: ActingPress(act))


def scoring(act: Any) -> Policy:
    return pressing("faulty", lambda situation: ActingScorer(situation.ratio, act))


class TakesTooLittle(ScorerPress):
    def score(self, keys: torch.Tensor) -> Any:
        return keys


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raising(error: Exception) -> Any:
    def act(*_: Any) -> Any:
        raise error

    return act


FAULTS: dict[str, tuple[Policy, str]] = {
    "raises in layer 1": (acting(raises_in_the_second_layer), "failed in layer 1: RuntimeError: no room"),
    "NaN": (acting(gives_nan), "failed in layer 0: it returned NaN"),
    "nothing kept": (acting(lambda m, h, k, v, *_: (k[:, :, :0], v[:, :, :0])), "failed in layer 0: it kept no token"),
    "a head is missing": (acting(lambda m, h, k, v, *_: (k[:, :1], v[:, :1])), "only the third dimension may differ"),
    "no batch": (acting(lambda m, h, k, v, *_: (k[0], v[0])), "it returned keys of shape"),
    "fewer values": (acting(lambda m, h, k, v, *_: (k, v[:, :, 1:])), "and values of shape"),
    "nothing returned": (acting(lambda *_: None), "failed in layer 0: TypeError"),
    "mask out of range": (acting(masks(KEY_HEADS)), "failed in layer 0: IndexError"),
    "mask and cut": (acting(masks(0, first=1)), "both shortens the cache and masks keys"),
    "scores are NaN": (
        scoring(lambda m, h, keys, *_: keys[..., 0] * float("nan")),
        "some of its scores are NaN (ActingScorer, toy.py:",
    ),
    "scores of one head": (scoring(lambda m, h, keys, *_: keys[:, :1, :, 0]), "it scored with shape"),
    "takes too little": (pressing("faulty", lambda s: TakesTooLittle()), "(TakesTooLittle, test_engine_faults.py:"),
    "scores are bool": (scoring(lambda m, h, keys, *_: keys[..., 0] > 0), "its scores are of type bool"),
    "error without text": (scoring(raising(SilentError())), "SilentError: it cannot say what is wrong"),
    "lone surrogates": (scoring(raising(ValueError("bad \udcff"))), "ValueError: bad \\udcff"),
    "a long text": (scoring(raising(ValueError("x" * 9000))), f"ValueError: {'x' * 300} …"),
    "no scores": (scoring(lambda *_: None), "failed in layer 0: AttributeError"),
    "not ready": (pressing("faulty", lambda s: Unready(gives_nan)), "failed at the start: OSError: no statistics"),
    "wants eager": (pressing("faulty", lambda s: ObservedAttentionPress(s.ratio)), 'attn_implementation="eager"'),
    "masks everything": (acting(masks_everything), "failed in layer 0: it kept no token"),
    "wider values": (acting(lambda m, h, k, v, *_: (2 * k, torch.cat([v, v], dim=-1))), "and values of shape"),
    "another dtype": (
        acting(lambda m, h, k, v, *_: (k.double(), v.double())),
        "it returned torch.float64 on cpu, the cache is torch.float32 on cpu",
    ),
    "cuts the cache": (acting(shortens_the_cache_itself), "it replaced the live cache"),
    "exits": (acting(lambda *_: sys.exit(0)), "failed in layer 0: SystemExit: 0"),
    "not built": (pressing("faulty", lambda s: sys.exit("no window")), "failed at the start: SystemExit: no window"),
}
every_fault = [pytest.param(policy, reason, id=name) for name, (policy, reason) in FAULTS.items()]


@pytest.mark.parametrize(("policy", "reason"), every_fault)
def test_a_fault_is_recorded_and_the_others_answer_as_without_it(
    llama: LoadedModel, prompt: Prompt, alone: Answers, policy: Policy, reason: str
) -> None:
    trace = treat(llama, [policy, *OTHERS], [0.5], prompt)
    (faulty,) = (branch for branch in trace.branches if branch.treatment.policy is policy)
    assert faulty.error is not None
    assert faulty.error.startswith("faulty ")
    assert reason in faulty.error
    assert "\n" not in faulty.error
    assert faulty.layers == []
    assert not hooks_left(llama.network)
    assert {getattr(module, "masked_key_indices", None) for module in llama.network.modules()} == {None}
    assert answers(llama, trace) == alone


def test_a_fault_at_one_ratio_spares_the_other_ratios_of_its_policy(llama: LoadedModel, prompt: Prompt) -> None:
    def fails_when_high(situation: Situation) -> BasePress:
        return ActingPress(gives_nan if situation.ratio > 0.5 else lambda m, h, keys, values, *_: (keys, values))

    trace = treat(llama, [pressing("faulty", fails_when_high)], [0.1, 0.9], prompt)
    assert [branch.error is None for branch in trace.branches] == [True, False]


# --- presses that write where they should read


def writes_into_the_shown_cache(module: Any, hidden: Any, keys: Keys, values: Values, _: Any, kwargs: Any) -> Any:
    layer = kwargs["past_key_values"].layers[module.layer_idx]
    layer.keys.mul_(0.5)
    layer.values.zero_()
    kwargs["hidden_states"].zero_()
    return keys[:, :, :8], values[:, :, :8]


def turns_positions(module: Any, hidden_states: Any, keys: Keys, values: Values, _: Any, kwargs: Any) -> Any:
    for part in kwargs["position_embeddings"]:
        part.zero_()
    return keys, values


def scores_and_writes(module: Any, hidden_states: Any, keys: Keys, *_: Any) -> Any:
    return keys.mul_(0.5).norm(dim=-1)


WRITING: dict[str, Policy] = {
    "keys and values": acting(lambda m, h, k, v, *_: (k.zero_()[:, :, :9], v.mul_(-1)[:, :, :9])),
    "arguments": acting(lambda m, h, k, v, _, kwargs: kwargs.clear() or (k, v)),
    "positions": acting(turns_positions),
    "hidden states": acting(lambda m, hidden_states, k, v, *_: (k, v + 0 * hidden_states.zero_().sum())),
    "cache and keyword arguments": acting(writes_into_the_shown_cache),
    "scorer": scoring(scores_and_writes),
}


@pytest.mark.parametrize("policy", WRITING.values(), ids=WRITING)
@pytest.mark.parametrize("known", [KNOWN, ("",)], ids=["copies of its own", "copies that others were handed"])
def test_a_press_that_writes_into_its_inputs_harms_no_other(
    llama: LoadedModel,
    prompt: Prompt,
    alone: Answers,
    policy: Policy,
    known: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvbench.engine.treat.branch.KNOWN", known)
    answered = answers(llama, treat(llama, [policy, *OTHERS], [0.5], prompt))
    assert {key: ids for key, ids in answered.items() if key[0] != "faulty"} == alone


def test_one_copy_serves_presses_until_one_writes_into_it() -> None:
    with torch.inference_mode():
        original, copies = torch.ones(2, 3), Copies()
        first = copies.of("keys", original)
        assert first is not original
        assert copies.of("keys", original) is first
        assert copies.of("values", original) is not first
        first[:, 1:].transpose(0, 1).mul_(2)
        second = copies.of("keys", original)
        assert second is not first
        assert torch.equal(second, original)
        assert torch.equal(original, torch.ones(2, 3))


def test_a_press_is_known_with_what_it_is_built_around() -> None:
    ours, foreign = KnormPress(0.5), ActingScorer(0.5, scores_and_writes)
    assert is_known(ours)
    assert is_known(AdaKVPress(ours))
    assert not is_known(foreign)
    assert not is_known(AdaKVPress(foreign))


def test_a_scorer_that_masks_leaves_no_mask_behind(llama: LoadedModel, prompt: Prompt) -> None:
    try:
        treat(llama, [scoring(lambda *given: masks(0)(*given)[0][..., 0].clone())], [0.5], prompt)
        left = [getattr(module, "masked_key_indices", None) for module in llama.network.modules()]
    finally:
        for module in llama.network.modules():
            if hasattr(module, "masked_key_indices"):
                module.masked_key_indices = None  # type: ignore[assignment]
    assert left == [None] * len(left)


# --- decoding


def test_decoding_a_trace_twice_gives_the_same_answers(llama: LoadedModel, prompt: Prompt) -> None:
    trace = treat(llama, OTHERS, [0.5], prompt)
    assert answers(llama, trace) == answers(llama, trace)


@pytest.mark.parametrize("places", [1, 25, 40, 60, 90])
def test_it_does_not_matter_how_many_questions_are_read_at_once(
    llama: LoadedModel, prompt: Prompt, monkeypatch: pytest.MonkeyPatch, places: int
) -> None:
    """Portions that begin before as many places as they are wide once overwrote their own keys."""
    trace = treat(llama, OTHERS, [0.2, 0.8], prompt)
    monkeypatch.setattr("kvbench.engine.decode.bundle.PLACES_AT_ONCE", 10**6)
    together = answers(llama, trace)
    monkeypatch.setattr("kvbench.engine.decode.bundle.PLACES_AT_ONCE", places)
    assert len(prompt.questions) > 2
    assert answers(llama, trace) == together


def test_a_trace_whose_branches_all_failed_has_no_answers(llama: LoadedModel, prompt: Prompt) -> None:
    assert decode(llama, treat(llama, [acting(gives_nan)], [0.5], prompt), STEPS, PLENTY) == []


def test_the_attention_of_the_model_is_restored(
    llama: LoadedModel, prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = treat(llama, OTHERS, [0.5], prompt)
    decode(llama, trace, 1, PLENTY)
    assert llama.network.config._attn_implementation == "sdpa"
    monkeypatch.setattr("kvbench.engine.decode.together.Wave", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        decode(llama, trace, 1, PLENTY)
    assert llama.network.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_answers_are_no_longer_than_asked_and_end_at_the_first_end_token(
    llama: LoadedModel, prompt: Prompt, steps: int
) -> None:
    generations = decode(llama, treat(llama, OTHERS, [0.5], prompt), steps, PLENTY)
    if steps == 5:
        assert {generation.ended for generation in generations} == {True, False}
    for generation in generations:
        ends = [token in llama.end_tokens() for token in generation.token_ids]
        assert not any(ends[:-1])
        assert ends[-1] == generation.ended
        assert generation.ended or len(ends) == steps


def test_fewer_steps_give_the_beginning_of_the_same_answers(llama: LoadedModel, prompt: Prompt) -> None:
    def decoded(steps: int) -> list[Generation]:
        return decode(llama, treat(llama, [POLICIES["full"]], [0.0], prompt), steps, PLENTY)

    for short, long in zip(decoded(3), decoded(9), strict=True):
        assert long.token_ids[:3] == short.token_ids


def test_a_model_without_end_tokens_answers_to_the_last_step(prompt: Prompt) -> None:
    model = toy_model("llama")
    model.network.generation_config.eos_token_id = None
    trace = treat(model, [POLICIES["full"]], [0.0], prompt)
    assert keep_of(trace.branches[0]).all()
    for generation in decode(model, trace, 5, PLENTY):
        assert len(generation.token_ids) == 5
        assert not generation.ended
