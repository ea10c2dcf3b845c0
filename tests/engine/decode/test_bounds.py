"""A press that never ends or asks for all memory fails alone; and what is read is what was left of the cache."""

import copy
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from kvpress import KnormPress

from datasets_gen import TASKS
from kvbench.engine.decode.answers import decode
from kvbench.engine.options import TimeLimit
from kvbench.engine.treat.branch import Trace
from kvbench.engine.treat.keep import LayerCache
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Setting
from kvbench.models.load import LoadedModel
from kvbench.models.snapshot import ModelChangedError, Snapshot
from kvbench.prompts.prompt import Prompt
from kvbench.store.tables import RowsByTable
from policies import POLICIES, Policy, at_ratios
from policies.declaration.faults import TookTooLongError
from tests.support.models.toy import (
    PLENTY,
    STEPS,
    ActingPress,
    ActingScorer,
    Answers,
    answers,
    hooks_left,
    pressing,
    treat,
)

OTHERS = [POLICIES[name] for name in ("full", "knorm", "leverage", "adakv_snapkv", "kvzip", "decoding_knorm")]


@pytest.fixture(scope="module")
def alone(llama: LoadedModel, prompt: Prompt) -> Answers:
    return answers(llama, treat(llama, OTHERS, [0.5], prompt))


# --- bounds


def never_ends(*_: Any) -> Any:
    while True:
        pass


def never_ends_and_catches(*_: Any) -> Any:
    try:
        while True:
            time.sleep(0.01)
    except Exception as error:
        raise ValueError("something else") from error


def takes_all_memory(*_: Any) -> Any:
    held = []
    while True:  # never touched, so that no page of it is real
        held.append(torch.empty(2**30, dtype=torch.uint8))


# The seconds that each is given: to ask for all memory takes as long as the machine is busy, and ends by itself.
FAULTS: dict[str, tuple[Callable[..., Any], str, float]] = {
    "never ends": (never_ends, "failed in layer 0: it took longer than", 0.2),
    "never ends and catches": (never_ends_and_catches, "failed in layer 0: it took longer than", 0.2),
    "all memory": (takes_all_memory, "memory", 600),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_press_out_of_bounds_fails_and_the_others_answer_as_without_it(
    llama: LoadedModel, prompt: Prompt, alone: Answers, name: str
) -> None:
    act, reason, seconds = FAULTS[name]
    faulty = pressing("faulty", lambda situation: ActingPress(act))
    scorings = [
        *plan([faulty], at_ratios([0.5]), prompt, 0, TimeLimit(seconds)),
        *plan(OTHERS, at_ratios([0.5]), prompt, 0),
    ]
    trace = prefill(llama, prompt, scorings)
    assert trace.branches[0].error is not None
    assert reason in trace.branches[0].error
    assert "\n" not in trace.branches[0].error
    assert answers(llama, trace) == alone


def test_a_press_that_hangs_while_decoding_fails_alone(llama: LoadedModel, prompt: Prompt) -> None:
    class Hanging(KnormPress):
        def forward_hook(self, module: Any, inputs: Any, kwargs: Any, output: Any) -> Any:
            return never_ends() if kwargs["cache_position"][0] > 0 else output

    policy = pressing("hanging", lambda s: Hanging(s.ratio), prefill="private", while_decoding=True)
    trace = prefill(llama, prompt, plan([policy, POLICIES["full"]], at_ratios([0.5]), prompt, 0, TimeLimit(0.5)))
    assert {g.branch.treatment.policy.name for g in decode(llama, trace, STEPS, PLENTY)} == {"full"}
    assert str(trace.branches[0].error).startswith("hanging failed while decoding: it took longer than")
    assert not hooks_left(llama.network)


def test_the_time_bound_ends_with_what_it_bounds() -> None:
    time_limit = TimeLimit(0.05)
    with time_limit.for_call("quick"):
        pass
    time.sleep(0.1)
    with (
        pytest.raises(TookTooLongError, match=r"^it took longer than 0.05 s \(--cell-seconds\)$"),
        time_limit.for_call("slow"),
    ):
        never_ends()


def test_a_press_that_hangs_again_and_again_is_waited_for_three_times(llama: LoadedModel, prompt: Prompt) -> None:
    tried: list[float] = []

    def waits(*_: Any) -> Any:
        started = time.monotonic()
        try:
            never_ends()
        finally:
            tried.append(time.monotonic() - started)

    hanging = pressing("hanging", lambda situation: ActingPress(waits))
    ratios = [0.1, 0.3, 0.5, 0.7, 0.9]
    branches = prefill(
        llama, prompt, plan([hanging, POLICIES["knorm"]], at_ratios(ratios), prompt, 0, TimeLimit(0.2))
    ).branches
    reasons = [str(branch.error).partition(": ")[2] for branch in branches[: len(ratios)]]
    waited = "it took longer than 0.2 s (--cell-seconds)"
    assert reasons == [waited] * 3 + [f"given up: {waited} 3 times before"] * 2
    assert all(seconds > 0.1 for seconds in tried[:3])
    assert all(branch.error is None for branch in branches[len(ratios) :])


# --- vandals


def tampers(
    module: Any, hidden_states: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, _: Any, kwargs: Any
) -> Any:
    torch.manual_seed(99)
    torch.rand(7)
    module.masked_key_indices = (torch.tensor([0]), torch.tensor([0]), torch.tensor([3]))
    for part in (hidden_states, keys, values, *kwargs["position_embeddings"]):
        part.zero_()
    for layer in kwargs["past_key_values"].layers[: module.layer_idx]:
        layer.keys.zero_()
        layer.values.zero_()
    kwargs["past_key_values"].update(keys, values, 0)
    if module.layer_idx:
        kwargs["past_key_values"].layers[0].crop(-3)
    kwargs["past_key_values"].layers.clear()
    kwargs.clear()
    raise RuntimeError("done")


class Vandal(KnormPress):
    """In its own prefill it leaves masks and another attention behind, and does to the model what it is made for."""

    spoil: Callable[[Any], object] = staticmethod(lambda model: None)

    def __call__(self, model: Any) -> Any:
        for layer in model.model.layers:
            layer.self_attn.masked_key_indices = (torch.tensor([0]), torch.tensor([0]), torch.tensor([3]))
        model.set_attn_implementation("eager")
        self.spoil(model)
        raise RuntimeError("done")


class LeavesHooks(Vandal):
    spoil = staticmethod(lambda model: model.model.layers[0].register_forward_hook(lambda *given: given[2] * 0))


class LeavesForward(Vandal):
    spoil = staticmethod(lambda model: setattr(model.model, "forward", lambda *_, **__: 1 / 0))


VANDALS: dict[str, Policy] = {
    "compress": pressing("vandal", lambda s: ActingPress(tampers)),
    "score": pressing("vandal", lambda s: ActingScorer(s.ratio, tampers)),
    "own prefill": pressing("vandal", lambda s: Vandal(s.ratio), prefill="private"),
}


@pytest.mark.parametrize("name", VANDALS)
def test_a_vandal_changes_nothing_for_the_others(llama: LoadedModel, prompt: Prompt, alone: Answers, name: str) -> None:
    for order in ([VANDALS[name], *OTHERS], [*OTHERS, VANDALS[name]]):
        trace = treat(llama, order, [0.5], prompt)
        found = {key: ids for key, ids in answers(llama, trace).items() if key[0] != "vandal"}
        assert found == alone
        (broken,) = (branch for branch in trace.branches if branch.treatment.policy.name == "vandal")
        assert "RuntimeError: done (test_bounds.py:" in str(broken.error)
    assert answers(llama, treat(llama, OTHERS, [0.5], prompt)) == alone


def apart(model: LoadedModel) -> LoadedModel:
    """A copy of the model, to be spoiled."""
    network = copy.deepcopy(model.network)
    return replace(model, network=network, snapshot=Snapshot.of(network))


def collect_base(model: LoadedModel, policies: Sequence[Policy]) -> RowsByTable:
    task = TASKS["base"]
    return collect(model, task, [task.example(0, 0)], Setting(policies, at_ratios((0.5,))))


# What a press does to an attention module, and the place that is named.
SPOILERS: list[tuple[Callable[[Any], object], str]] = [
    (lambda module: setattr(module, "o_proj", torch.nn.Linear(64, 64, bias=False)), "o_proj"),
    (lambda module: setattr(module.o_proj, "weight", torch.nn.Parameter(torch.zeros(3, 3))), "o_proj.weight"),
    (lambda module: delattr(module.o_proj, "weight"), "o_proj.weight"),
    (lambda module: module.half(), "q_proj.weight"),
    (lambda module: module.o_proj.register_forward_hook(lambda *_: 1 / 0), "o_proj._forward_hooks"),
    (lambda module: module.k_proj.weight.data.mul_(1.5), "k_proj.weight"),  # what autograd does not count
    (lambda module: setattr(module, "scaling", 0.0), "scaling"),
    (lambda module: setattr(module.o_proj, "forward", lambda states: states * 0), "o_proj.forward"),
    (lambda module: setattr(module, "forward", None), "self_attn.forward"),
    (lambda module: module.rotary_emb.inv_freq.mul_(3), "inv_freq"),
    (lambda module: module.o_proj.register_forward_hook(lambda m, i, output: output * 0.5), "o_proj._forward_hooks"),
    (lambda module: module.o_proj.register_forward_pre_hook(lambda m, i: (i[0] * 0.5,)), "o_proj._forward_pre_hooks"),
    (
        lambda module: setattr(module.config, "_attn_implementation", "eager"),
        "config._attn_implementation_internal",
    ),
]


@pytest.mark.parametrize(("spoil", "where"), SPOILERS)
def test_a_press_that_writes_to_the_model_is_named_and_nothing_goes_on(
    llama: LoadedModel, spoil: Callable[[Any], object], where: str
) -> None:
    def act(module: Any, *_: Any) -> Any:
        spoil(module)
        raise RuntimeError("done")

    vandal = replace(pressing("vandal", lambda s: ActingScorer(s.ratio, act)), origin="a file")
    with pytest.raises(ModelChangedError, match=rf"^vandal changed .*{where} of the model: run without it") as caught:
        collect_base(apart(llama), [*OTHERS, vandal])
    assert pickle.loads(pickle.dumps(caught.value)).place == caught.value.place  # it crosses processes


@pytest.mark.parametrize(
    ("press", "where"), [(LeavesHooks, "model.layers.0._forward_hooks"), (LeavesForward, "model.forward")]
)
def test_so_is_one_that_leaves_something_behind_in_its_own_prefill(
    llama: LoadedModel, press: type[Vandal], where: str
) -> None:
    vandal = replace(pressing("vandal", lambda s: press(s.ratio), prefill="private"), origin="a file")
    with pytest.raises(ModelChangedError, match=rf"^vandal changed {where} of the model"):
        collect_base(apart(llama), [*OTHERS, vandal])


def test_nothing_is_seen_in_a_model_that_presses_left_alone(llama: LoadedModel) -> None:
    collect_base(llama, OTHERS)
    assert llama.snapshot.first_change() == ""
    assert llama.snapshot.first_change(by_content=False) == ""


# --- the compressed cache is the one that is read


def corrupted(cache: LayerCache, trace: Trace, number: int, kept: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The trace's keys and values with noise in a row that the layer keeps in all its heads, or in none."""
    assert cache.keep is not None
    places = cache.keep.all(0) if kept else ~cache.keep.any(0)
    keys, values = trace.keys[number].clone(), trace.values[number].clone()
    keys[:, places] += 1.0
    values[:, places] -= 1.0
    return keys, values


@pytest.mark.parametrize("name", ["streaming_llm", "knorm", "adakv_snapkv", "snapkv", "kvzip"])
def test_a_kept_row_is_read_and_an_evicted_one_is_not(llama: LoadedModel, prompt: Prompt, name: str) -> None:
    trace = treat(llama, [POLICIES[name]], [0.5], prompt)
    before = answers(llama, trace)
    for kept in (False, True):
        layers = trace.branches[0].layers
        states = [corrupted(cache, trace, number, kept) for number, cache in enumerate(layers)]
        changed = replace(trace, keys=[keys for keys, _ in states], values=[values for _, values in states])
        assert any(not torch.equal(one, other) for one, other in zip(changed.keys, trace.keys, strict=True))
        assert (answers(llama, changed) != before) == kept
