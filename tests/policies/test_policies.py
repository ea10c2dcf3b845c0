"""What single policies keep, and that it is what kvpress itself keeps; the contract of all is
tested elsewhere."""

from collections.abc import Callable, Iterator
from typing import Any

import kvpress
import pytest
import torch
from kvpress import BasePress, ObservedAttentionPress
from kvpress.utils import compute_n_kept
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    DynamicCache,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
)

from kvbench.engine.treat.branch import Branch, Trace
from kvbench.models.load import LoadedModel, find_decoder
from kvbench.prompts.prompt import Prompt
from policies import POLICIES, Policy, Situation, list_arguments
from policies.presses.h2o import H2OPress
from tests.support.models.toy import (
    KEY_HEADS,
    LAYERS,
    NETWORKS,
    QUERY_HEADS,
    keep_of,
    sizes,
    sliding_mistral,
    toy_model,
    toy_prompt,
    treat,
)

RATIOS = (0.0, 0.1, 0.5, 0.9)
# Those that share the prefill and select; others run under kvpress's own context manager, or
# rewrite what they keep.
SELECTING = {
    name: policy
    for name, policy in POLICIES.items()
    if policy.prefill == "shared"
    and not (policy.rewrites or policy.needs.weights or policy.needs.spans)
}
every_selecting = pytest.mark.parametrize("policy", SELECTING.values(), ids=SELECTING)


@pytest.fixture(scope="module")
def trace(llama: LoadedModel, prompt: Prompt) -> Trace:
    """All policies at all ratios, treated together."""
    return treat(llama, list(SELECTING.values()), RATIOS, prompt)


def branches(trace: Trace, policy: Policy, *ratios: float) -> list[Branch]:
    found = [
        b
        for b in trace.branches
        if b.treatment.policy is policy and b.treatment.ratio in (ratios or RATIOS)
    ]
    if not found:
        pytest.skip(f"{policy.name} runs at ratio 0 only")
    return found


@pytest.mark.parametrize("ratio", [0.5, 0.9])
def test_random_evicts_a_token_everywhere_as_often_as_chance_would(
    llama: LoadedModel, ratio: float
) -> None:
    """Independent in every slot: evicted in all of them with probability ratio ** slots, and not
    with ratio."""
    evicted, expected = [], []
    for index in range(20):
        trace = treat(llama, [POLICIES["random"]], [ratio], toy_prompt(index=index))
        evicted.append(~keep_of(trace.branches[0]).flatten(0, 1).any(0))
        share = 1 - compute_n_kept(trace.length, ratio) / trace.length
        expected.append(torch.full((trace.length,), share ** (LAYERS * KEY_HEADS)))
    assert torch.cat(evicted).float().mean().item() == pytest.approx(
        torch.cat(expected).mean().item(), abs=0.03
    )


# --- the controls


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_oracle_keeps_the_answer_first_then_the_evidence_then_the_sink_then_the_last(
    trace: Trace, prompt: Prompt, ratio: float
) -> None:
    kept = compute_n_kept(trace.length, ratio)
    for branch in branches(trace, POLICIES["oracle"], ratio):
        (number,) = branch.treatment.questions
        question = prompt.questions[number]
        rest = sorted(set(question.evidence_tokens) - set(question.answer_tokens), reverse=True)
        others = [
            place
            for place in reversed(range(1, trace.length))
            if place not in question.evidence_tokens
        ]
        order = [*sorted(question.answer_tokens), *rest, 0, *others]
        expected = torch.zeros(trace.length, dtype=torch.bool)
        expected[order[:kept]] = True
        assert len(question.answer_tokens) < kept
        assert torch.equal(keep_of(branch), expected.expand(LAYERS, KEY_HEADS, -1))


@pytest.mark.parametrize("ratio", [0.1, 0.9])
@pytest.mark.parametrize(("policy", "sinks"), [("recency", 0), ("streaming_llm", 4)])
def test_the_first_tokens_and_the_last_are_kept(
    trace: Trace, policy: str, sinks: int, ratio: float
) -> None:
    (branch,) = branches(trace, POLICIES[policy], ratio)
    kept = compute_n_kept(trace.length, ratio)
    expected = [*range(sinks), *range(trace.length - kept + sinks, trace.length)]
    assert keep_of(branch).nonzero()[:, 2].unique().tolist() == expected
    assert (keep_of(branch).sum(-1) == kept).all()


# --- the measured method is kvpress's own


def prefilled(model: LoadedModel, prompt: Prompt) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values by layer, (num_kv_heads, tokens, head_dim), after a forward pass of the
    network itself."""
    cache: Any = DynamicCache()
    with torch.inference_mode():
        find_decoder(model.network)(
            input_ids=torch.tensor([prompt.token_ids]), past_key_values=cache
        )
    return [(layer.keys[0], layer.values[0]) for layer in cache.layers]


def kept_by_kvpress(model: LoadedModel, prompt: Prompt, press: BasePress) -> torch.Tensor:
    """What a press keeps under its own context manager, found by comparing every kept key with
    every full one."""
    full = prefilled(model, prompt)
    with press(model.network):
        cut = prefilled(model, prompt)
    keep = torch.zeros(LAYERS, KEY_HEADS, len(prompt.token_ids), dtype=torch.bool)
    for number, layer in enumerate(find_decoder(model.network).layers):
        for head in range(KEY_HEADS):
            whole, some = full[number][0][head], cut[number][0][head]
            equal = (some[:, None] == whole[None]).all(-1)
            assert (equal.sum(1) == 1).all()
            keep[number, head, equal.nonzero()[:, 1]] = True
        if layer.self_attn.masked_key_indices is not None:
            _, heads, places = layer.self_attn.masked_key_indices
            keep[number, heads, places] = False
            layer.self_attn.masked_key_indices = None
    return keep


@pytest.mark.parametrize("ratio", [0.5])
@every_selecting
def test_what_is_kept_is_what_the_press_itself_keeps(
    llama: LoadedModel, prompt: Prompt, trace: Trace, policy: Policy, ratio: float
) -> None:
    for branch in branches(trace, policy, ratio):
        press = policy.press(branch.treatment.situation)
        assert torch.equal(keep_of(branch), kept_by_kvpress(llama, prompt, press))


# --- the model


# --- what depends on the length of the context


@pytest.mark.parametrize(
    ("context_length", "window"), [(2, 1), (31, 1), (160, 10), (703, 43), (704, 64), (9999, 64)]
)
def test_snapkv_has_the_window_of_its_paper_unless_the_context_is_short(
    context_length: int, window: int
) -> None:
    for name in ("snapkv", "adakv_snapkv"):
        outer: Any = POLICIES[name].press(Situation(0.5, context_length, 0, "example"))
        assert getattr(outer, "press", outer).window_size == window
        assert [
            value for argument, value in list_arguments(outer).items() if "window_size" in argument
        ] == [window]


# --- H2O without the attention matrix


class ComparingPress(ObservedAttentionPress):
    """Keeps everything, and remembers H2O's scores beside those of kvpress."""

    def __init__(self, block_size: int) -> None:
        super().__init__(0.0)
        self.ours = H2OPress(0.5, block_size)
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def compress(
        self, module: Any, hidden_states: Any, keys: Any, values: Any, attentions: Any, kwargs: Any
    ) -> Any:
        ours = self.ours.score(module, hidden_states, keys, values, None, kwargs)
        self.pairs.append(
            (ours, self.score(module, hidden_states, keys, values, attentions, kwargs))
        )
        return keys, values


def compare_h2o(
    model: LoadedModel, prompt: Prompt, block_size: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    press = ComparingPress(block_size)
    model.network.set_attn_implementation("eager")
    try:
        with torch.inference_mode(), press(model.network):
            token_ids = torch.tensor([prompt.token_ids])
            find_decoder(model.network)(input_ids=token_ids, past_key_values=DynamicCache())
    finally:
        model.network.set_attn_implementation("sdpa")
    assert len(press.pairs) == LAYERS
    yield from press.pairs


def _half_rotated() -> PreTrainedModel:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    return Phi3ForCausalLM(Phi3Config(**sizes(rope_parameters=rope)))


@pytest.mark.parametrize(
    ("architecture", "build", "block_size"),
    [
        *((name, None, 7) for name in NETWORKS),
        *(("llama", None, block_size) for block_size in (1, 256)),
        ("phi3", _half_rotated, 7),
        ("mistral", sliding_mistral, 7),
    ],
)
def test_h2o_scores_are_those_of_kvpress(
    architecture: str, build: Any, block_size: int, prompt: Prompt
) -> None:
    for ours, theirs in compare_h2o(toy_model(architecture, build), prompt, block_size):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0.0)


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements that an operation gave out."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for tensor in output if isinstance(output, (tuple, list)) else [output]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return output


def largest_tensor_of_h2o(model: LoadedModel, length: int, block_size: int) -> int:
    module: Any = find_decoder(model.network).layers[0].self_attn
    hidden_states = torch.randn(1, length, model.network.config.hidden_size)
    keys = torch.randn(1, KEY_HEADS, length, module.head_dim)
    rotary: Callable[..., Any] = find_decoder(model.network).rotary_emb
    kwargs = {"position_embeddings": rotary(hidden_states, torch.arange(length)[None])}
    largest = LargestTensor()
    with torch.inference_mode(), largest:
        scores = H2OPress(0.5, block_size).score(module, hidden_states, keys, keys, None, kwargs)
    assert scores.shape == (1, KEY_HEADS, length)
    return largest.elements


def test_h2o_never_holds_the_attention_matrix(llama: LoadedModel) -> None:
    length, block = 2000, 160
    assert (
        largest_tensor_of_h2o(llama, length, block)
        <= QUERY_HEADS * block * length
        < length * length
    )
    # The meter sees the matrix where one block is the whole context.
    assert largest_tensor_of_h2o(llama, length, length) >= length * length


# Ours draws anew for each layer, head and example, and the same on any device.
OWN_CONTROL = {"RandomPress"}


def presses_in(press: BasePress) -> set[str]:
    """The classes of a press and of those inside it, with what kvpress derives them from."""
    found = {each.__name__ for each in type(press).__mro__}
    for value in vars(press).values():
        for inner in value if isinstance(value, list) else [value]:
            found |= presses_in(inner) if isinstance(inner, BasePress) else set()
    return found


def test_every_press_of_kvpress_is_a_policy_or_inside_one() -> None:
    exported = {
        name
        for name, each in vars(kvpress).items()
        if isinstance(each, type) and issubclass(each, BasePress)
    }
    assert len(exported) > 30
    used: set[str] = set()
    for policy in POLICIES.values():
        ratio = min(0.4, policy.levels.highest_ratio) if policy.kinds else 0.0
        used |= presses_in(policy.build(Situation(ratio, 160, 0, "example", 9, ((3, 9), (9, 20)))))
    assert exported - used == OWN_CONTROL - used
