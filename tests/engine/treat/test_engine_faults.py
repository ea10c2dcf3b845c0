"""A press that fails, hangs, asks for all memory or writes where it should not fails alone, and no
other notices."""

import copy
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from kvpress import KnormPress, KVComposePress, KVzipPress, ObservedAttentionPress, ScorerPress

from datasets_gen import TASKS
from kvbench.engine.decode.answers import decode
from kvbench.engine.time_limit import TimeLimit
from kvbench.engine.treat.branch import KNOWN, Trace
from kvbench.engine.treat.keep import LayerCache
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel
from kvbench.models.snapshot import ModelChangedError, Snapshot
from kvbench.prompts.prompt import Prompt
from kvbench.store.tables import RowsByTable
from policies import POLICIES, PlugInCode, Policy, at_ratios
from tests.support.models.toy import (
    KEY_HEADS,
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

OTHERS = [
    POLICIES[name]
    for name in ("full", "knorm", "h2o", "leverage", "adakv_snapkv", "kvzip", "decoding_knorm")
]

Keys = torch.Tensor
Values = torch.Tensor


@pytest.fixture(scope="module")
def alone(llama: LoadedModel, prompt: Prompt) -> Answers:
    """What the others answer where no press misbehaves."""
    return answers(llama, treat(llama, OTHERS, [0.5], prompt))


# --- presses that do wrong


# Each is called as ``compress(module, hidden_states, keys, values, attentions, kwargs)``.


def raises_in_the_second_layer(
    module: Any, hidden_states: Any, keys: Keys, values: Values, *_: Any
) -> Any:
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


def shortens_the_cache_itself(
    module: Any, hidden_states: Any, keys: Keys, values: Values, _: Any, kwargs: Any
) -> Any:
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


FAULTS: dict[str, tuple[Policy, str]] = {
    "raises in layer 1": (
        acting(raises_in_the_second_layer),
        "failed in layer 1: RuntimeError: no room",
    ),
    "NaN": (acting(gives_nan), "failed in layer 0: it returned NaN"),
    "fewer values": (acting(lambda m, h, k, v, *_: (k, v[:, :, 1:])), "and values of shape"),
    "mask out of range": (acting(masks(KEY_HEADS)), "failed in layer 0: IndexError"),
    "mask and cut": (acting(masks(0, first=1)), "both shortens the cache and masks keys"),
    "scores are NaN": (
        scoring(lambda m, h, keys, *_: keys[..., 0] * float("nan")),
        "some of its scores are NaN (ActingScorer, toy.py:",
    ),
    "takes too little": (
        pressing("faulty", lambda s: TakesTooLittle()),
        "(TakesTooLittle, test_engine_faults.py:",
    ),
    "scores in place": (
        scoring(lambda m, h, keys, values, *_: values.mul_(0).sum(-1) + keys.norm(dim=-1)),
        "its score writes into the hidden states, keys or values",
    ),
    "scores are bool": (
        scoring(lambda m, h, keys, *_: keys[..., 0] > 0),
        "its scores are of type bool",
    ),
    "not ready": (
        pressing("faulty", lambda s: Unready(gives_nan)),
        "failed at the start: OSError: no statistics",
    ),
    "wants eager": (
        pressing("faulty", lambda s: ObservedAttentionPress(s.ratio)),
        'attn_implementation="eager"',
    ),
    "masks everything": (acting(masks_everything), "failed at the end: it kept no token"),
    "wider values": (
        acting(lambda m, h, k, v, *_: (2 * k, torch.cat([v, v], dim=-1))),
        "and values of shape",
    ),
    "another dtype": (
        acting(lambda m, h, k, v, *_: (k.double(), v.double())),
        "it returned torch.float64 on cpu, the cache is torch.float32 on cpu",
    ),
    "cuts the cache": (acting(shortens_the_cache_itself), "it replaced the live cache"),
    "exits": (acting(lambda *_: sys.exit(0)), "failed in layer 0: SystemExit: 0"),
}
# To ask for all memory takes as long as the machine is busy, and ends by itself.
OUT_OF_BOUNDS: dict[str, tuple[Callable[..., Any], str, float]] = {
    "never ends": (never_ends, "failed in layer 0: it took longer than", 0.2),
    "never ends and catches": (
        never_ends_and_catches,
        "failed in layer 0: it took longer than",
        0.2,
    ),
    "all memory": (takes_all_memory, "memory", 600),
}


def test_a_fault_is_recorded_and_the_others_answer_as_without_it(
    llama: LoadedModel, prompt: Prompt, alone: Answers
) -> None:
    points, policies = at_ratios([0.5]), [policy for policy, _ in FAULTS.values()]
    scorings = plan(policies, points, prompt, 0)
    for act, _, seconds in OUT_OF_BOUNDS.values():
        scorings += plan([acting(act)], points, prompt, 0, TimeLimit(seconds))
    trace = prefill(llama, prompt, [*scorings, *plan(OTHERS, points, prompt, 0)])
    reasons = {name: reason for name, (_, reason) in FAULTS.items()}
    reasons |= {name: reason for name, (_, reason, _) in OUT_OF_BOUNDS.items()}
    for (name, reason), branch in zip(reasons.items(), trace.branches, strict=False):
        error = str(branch.error)
        assert error.startswith("faulty "), name
        assert reason in error, name
        assert "\n" not in error
        assert branch.layers == []
    assert not hooks_left(llama.network)
    assert {getattr(module, "masked_key_indices", None) for module in llama.network.modules()} == {
        None
    }
    assert answers(llama, trace) == alone


@pytest.mark.parametrize(
    ("name", "kind", "compress"),
    [
        ("kvzip", KVzipPress, "compress_post"),
        ("kvcompose", KVComposePress, "compress_structured"),
        ("kvcompose_unstructured", KVComposePress, "compress_unstructured"),
    ],
)
def test_one_prefill_serves_all_ratios_and_one_that_fails_fails_alone(
    llama: LoadedModel,
    prompt: Prompt,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kind: type[Any],
    compress: str,
) -> None:
    policy = POLICIES[name]
    alone = [treat(llama, [policy], [ratio], prompt).branches[0].digest for ratio in (0.3, 0.5)]
    assert alone[0] != alone[1]
    begin, compress_once = kind.__call__, getattr(kind, compress)
    begun = []

    def note_begin(press: Any, network: Any) -> Any:
        begun.append(press.compression_ratio)
        return begin(press, network)

    def fail_at_high(press: Any, *network: Any) -> None:
        if press.compression_ratio > 0.8:
            raise RuntimeError("too high")
        compress_once(press, *network)

    monkeypatch.setattr(kind, "__call__", note_begin)
    monkeypatch.setattr(kind, compress, fail_at_high)
    together = treat(llama, [policy], [0.3, 0.5], prompt).branches
    assert [branch.digest for branch in together] == alone
    assert begun == [0.3]
    failing = treat(llama, [policy], [0.3, 0.9, 0.5], prompt).branches
    assert begun == [0.3, 0.3, 0.3, 0.9, 0.5]
    assert [branch.treatment.ratio for branch in failing if branch.error] == [0.9]
    assert "RuntimeError: too high" in str([branch.error for branch in failing])
    assert [branch.digest for branch in failing if not branch.error] == alone


def test_a_press_that_hangs_while_decoding_fails_alone(llama: LoadedModel, prompt: Prompt) -> None:
    class Hanging(KnormPress):
        def forward_hook(self, module: Any, inputs: Any, kwargs: Any, output: Any) -> Any:
            return never_ends() if kwargs["cache_position"][0] > 0 else output

    policy = pressing("hanging", lambda s: Hanging(s.ratio), prefill="private", while_decoding=True)
    trace = prefill(
        llama, prompt, plan([policy, POLICIES["full"]], at_ratios([0.5]), prompt, 0, TimeLimit(0.5))
    )
    assert {g.branch.treatment.policy.name for g in decode(llama, trace, STEPS, PLENTY)} == {"full"}
    assert str(trace.branches[0].error).startswith(
        "hanging failed while decoding: it took longer than"
    )
    assert not hooks_left(llama.network)


def test_a_press_that_is_given_up_is_not_begun_again(llama: LoadedModel, prompt: Prompt) -> None:
    begun = []

    class Hanging(KnormPress):
        def post_init_from_model(self, model: Any) -> None:
            begun.append(self.compression_ratio)
            if len(begun) > len(ratios):  # its prefills are over
                never_ends()

    ratios, limit = [0.2, 0.4, 0.6, 0.8], TimeLimit(0.1)
    policy = pressing("hanging", lambda s: Hanging(s.ratio), prefill="private", while_decoding=True)
    trace = prefill(llama, prompt, plan([policy], at_ratios(ratios), prompt, 0, limit))
    assert decode(llama, trace, STEPS, PLENTY) == []
    too_long = "it took longer than 0.1 s (cell_seconds of --executor)"
    given_up = f"given up: {too_long} 3 times before"
    errors = [f"hanging failed while decoding: {reason}" for reason in [too_long] * 3 + [given_up]]
    assert [branch.error for branch in trace.branches] == errors
    again = prefill(llama, prompt, plan([policy], at_ratios(ratios), prompt, 0, limit)).branches
    assert {branch.error for branch in again} == {f"hanging failed in its own prefill: {given_up}"}
    assert begun == [*ratios, *ratios[:3]]
    assert not hooks_left(llama.network)


# --- presses that write where they should read


def writes_into_the_shown_cache(
    module: Any, hidden: Any, keys: Keys, values: Values, _: Any, kwargs: Any
) -> Any:
    layer = kwargs["past_key_values"].layers[module.layer_idx]
    layer.keys.mul_(0.5)
    layer.values.zero_()
    kwargs["hidden_states"].zero_()
    return keys[:, :, :8], values[:, :, :8]


def turns_positions(
    module: Any, hidden_states: Any, keys: Keys, values: Values, _: Any, kwargs: Any
) -> Any:
    for part in kwargs["position_embeddings"]:
        part.zero_()
    return keys, values


def scores_and_writes(module: Any, hidden_states: Any, keys: Keys, *_: Any) -> Any:
    return keys.mul_(0.5).norm(dim=-1)


WRITING: dict[str, Policy] = {
    "keys and values": acting(lambda m, h, k, v, *_: (k.zero_()[:, :, :9], v.mul_(-1)[:, :, :9])),
    "arguments": acting(lambda m, h, k, v, _, kwargs: kwargs.clear() or (k, v)),
    "positions": acting(turns_positions),
    "hidden states": acting(
        lambda m, hidden_states, k, v, *_: (k, v + 0 * hidden_states.zero_().sum())
    ),
    "cache and keyword arguments": acting(writes_into_the_shown_cache),
    "scorer": scoring(scores_and_writes),
}


@pytest.mark.parametrize(
    "known", [KNOWN, ("",)], ids=["copies of its own", "copies that others were handed"]
)
def test_a_press_that_writes_into_its_inputs_harms_no_other(
    llama: LoadedModel,
    prompt: Prompt,
    alone: Answers,
    known: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvbench.engine.treat.branch.KNOWN", known)
    writing = [replace(policy, name=f"faulty: {name}") for name, policy in WRITING.items()]
    answered = answers(llama, treat(llama, [*writing, *OTHERS], [0.5], prompt))
    assert {key: ids for key, ids in answered.items() if not key[0].startswith("faulty")} == alone


# --- vandals


def apart(model: LoadedModel) -> LoadedModel:
    """A copy of the model, to be spoiled."""
    network = copy.deepcopy(model.network)
    return replace(model, network=network, snapshot=Snapshot.of(network))


def collect_base(model: LoadedModel, policies: Sequence[Policy]) -> RowsByTable:
    task = TASKS["base"]
    grid = Grid([(task, 1)], policies, at_ratios((0.5,)))
    return collect(model, task, [task.example(0, 0)], grid)


# What a press does to an attention module, and the place that is named.
SPOILERS: list[tuple[Callable[[Any], object], str]] = [
    (
        lambda module: setattr(module.o_proj, "weight", torch.nn.Parameter(torch.zeros(3, 3))),
        "o_proj.weight",
    ),
    (lambda module: module.o_proj.register_forward_hook(lambda *_: 1 / 0), "o_proj._forward_hooks"),
    (
        lambda module: module.k_proj.weight.data.mul_(1.5),
        "k_proj.weight",
    ),  # what autograd does not count
    (lambda module: setattr(module, "scaling", 0.0), "scaling"),
    (lambda module: setattr(module.o_proj, "forward", lambda states: states * 0), "o_proj.forward"),
    (lambda module: module.rotary_emb.inv_freq.mul_(3), "inv_freq"),
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

    code = PlugInCode(origin="a file")
    vandal = pressing("vandal", lambda s: ActingScorer(s.ratio, act), code=code)
    with pytest.raises(
        ModelChangedError, match=rf"^vandal changed .*{where} of the model: run without it"
    ) as caught:
        collect_base(apart(llama), [POLICIES["full"], vandal])
    # It crosses processes.
    assert pickle.loads(pickle.dumps(caught.value)).place == caught.value.place


# --- the compressed cache is the one that is read


def corrupted(
    cache: LayerCache, trace: Trace, number: int, kept: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The trace's keys and values with noise in a row that the layer keeps in all its heads, or in
    none."""
    assert cache.keep is not None
    places = cache.keep.all(0) if kept else ~cache.keep.any(0)
    keys, values = trace.keys[number].clone(), trace.values[number].clone()
    keys[:, places] += 1.0
    values[:, places] -= 1.0
    return keys, values


@pytest.mark.parametrize("name", ["streaming_llm", "adakv_snapkv", "kvzip"])
def test_a_kept_row_is_read_and_an_evicted_one_is_not(
    llama: LoadedModel, prompt: Prompt, name: str
) -> None:
    trace = treat(llama, [POLICIES[name]], [0.5], prompt)
    before = answers(llama, trace)
    for kept in (False, True):
        layers = trace.branches[0].layers
        states = [corrupted(cache, trace, number, kept) for number, cache in enumerate(layers)]
        changed = replace(
            trace, keys=[keys for keys, _ in states], values=[values for _, values in states]
        )
        assert any(
            not torch.equal(one, other) for one, other in zip(changed.keys, trace.keys, strict=True)
        )
        assert (answers(llama, changed) != before) == kept


# --- decoding


@pytest.mark.parametrize("places", [1, 40])
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


@pytest.mark.parametrize("steps", [1, 5])
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
