"""A model in memory: it is measured as it is, known by what it is, and left as it was."""

import copy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel, PreTrainedTokenizerBase
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import kvbench
from kvbench.models.digest import digest_model
from kvbench.models.load import LoadedModel
from tests.support.models.runs import SHORT, record_calls, timeless
from tests.support.models.toy import NETWORKS, toy_tokenizer

SMALL: dict[str, Any] = {
    "limit": 1,
    "ratios": [0.5],
    "policies": ["knorm"],
    "tasks": ["base"],
    "context_tokens": "native",
    "max_new_tokens": SHORT,
}


@pytest.fixture
def network(llama: LoadedModel) -> PreTrainedModel:
    """A toy model that a test may change."""
    return copy.deepcopy(llama.network)


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    copied = copy.deepcopy(toy_tokenizer())
    vars(copied).pop("apply_chat_template", None)  # that other tests have set
    return copied


def run(model: Any, tokenizer: Any, folder: Path, **more: Any) -> kvbench.RunResult:
    places = {"out": folder / "runs", "site": folder / "site"}
    return kvbench.run(model, tokenizer, **{**SMALL, **places, **more})


def test_numbers_are_those_of_the_same_model_from_its_files(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    toy_run: Path,
    tmp_path: Path,
) -> None:
    in_memory = run(network, tokenizer, tmp_path, tasks=["base", "hops"]).records()
    of_files = kvbench.load(toy_run / "runs" / "x").records()
    pd.testing.assert_frame_equal(timeless(in_memory), timeless(of_files), check_exact=True)


def test_a_model_is_left_as_it_was_with_its_hooks(
    network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, capsys: Any
) -> None:
    passes: list[int] = []

    def spy(module: nn.Module, inputs: Any, output: Any) -> None:
        passes.append(1)

    network.train()
    network.model.layers[0].mlp.eval()
    network.set_attn_implementation("eager")
    handle = network.model.layers[1].register_forward_hook(spy)
    tokenizer.backend_tokenizer.enable_truncation(7)
    before = digest_model(network, tokenizer)
    result = run(network, tokenizer, tmp_path)
    assert result.fault == ""
    assert network.training
    assert not network.model.layers[0].mlp.training
    assert network.config._attn_implementation == "eager"
    assert "apply_chat_template" not in vars(tokenizer)
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 7
    assert digest_model(network, tokenizer) == before
    assert passes
    assert "model.layers.1.forward_hooks" in capsys.readouterr().err
    handle.remove()
    assert digest_model(network, tokenizer) != before


def test_the_same_model_goes_on_and_a_changed_one_is_another(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = record_calls(monkeypatch)
    first = run(network, tokenizer, tmp_path)
    asked = len(calls)
    again = run(copy.deepcopy(network), tokenizer, tmp_path)
    assert again.folder == first.folder
    assert len(calls) == asked > 0
    with torch.no_grad():
        network.model.layers[0].mlp.up_proj.weight.data[0, 0] += 1
    changed = run(network, tokenizer, tmp_path)
    assert changed.folder != first.folder
    with pytest.raises(kvbench.KVBenchError, match="belongs to another run"):
        run(network, tokenizer, tmp_path, name=first.folder.name)


def test_what_makes_another_model(
    network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    digests = {digest_model(network, tokenizer)}
    network.config.rms_norm_eps *= 2
    digests.add(digest_model(network, tokenizer))
    tokenizer.chat_template = "{{ messages[0].content }}"
    digests.add(digest_model(network, tokenizer))
    layer = network.model.layers[0].mlp
    usual = layer.forward

    def doubled(states: torch.Tensor) -> Any:
        return 2 * usual(states)

    layer.forward = doubled
    digests.add(digest_model(network, tokenizer))

    def halved(states: torch.Tensor) -> Any:
        return usual(states) / 2

    layer.forward = halved
    digests.add(digest_model(network, tokenizer))
    assert len(digests) == 5
    network.config._name_or_path = "elsewhere"
    assert digest_model(network, tokenizer) in digests


class TunedMLP(nn.Module):
    """A part that somebody put into a model: the old one with weights of its own beside it."""

    def __init__(self, inner: nn.Module, size: int) -> None:
        super().__init__()
        self.inner = inner
        self.added = nn.Linear(size, size, bias=False)

    def forward(self, states: torch.Tensor) -> Any:
        return self.inner(states) + self.added(states)


def test_a_model_with_other_parts_runs_under_its_class(
    tokenizer: PreTrainedTokenizerBase, network: PreTrainedModel, tmp_path: Path
) -> None:
    kind: Any = type(network)
    patched = type("MyLlama", (kind,), {})
    network.__class__ = patched
    network.config._name_or_path = ""
    layer = network.model.layers[0]
    layer.mlp = TunedMLP(layer.mlp, network.config.hidden_size)
    result = run(network, tokenizer, tmp_path)
    assert result.fault == ""
    assert "MyLlama-in-memory" in repr(result)


def test_weights_of_eight_bits_run(
    network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    quanto = pytest.importorskip("optimum.quanto")
    before = digest_model(network, tokenizer)
    quanto.quantize(network, weights=quanto.qint8)
    quanto.freeze(network)
    assert digest_model(network, tokenizer) != before
    assert run(network, tokenizer, tmp_path).fault == ""


def own_attention(module: Any, *states: Any, **options: Any) -> Any:
    return sdpa_attention_forward(module, *states, **options)


def with_own_attention(network: PreTrainedModel) -> None:
    AttentionInterface.register("of_my_own", own_attention)
    network.set_attn_implementation("of_my_own")


def with_replaced_layer(network: PreTrainedModel) -> None:
    def forward(hidden_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        return hidden_states, None

    network.model.layers[1].self_attn.forward = forward


def on_no_device(network: Any) -> None:
    network.to("meta")


def with_broken_weight(network: PreTrainedModel) -> None:
    network.model.norm.weight.data[0] = float("nan")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (with_own_attention, "runs an attention of your own, 'of_my_own'"),
        (with_replaced_layer, "the attention of layer 1 was replaced"),
        (on_no_device, "the model is on meta"),
        (with_broken_weight, "model.norm.weight of the model is infinite or NaN"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_sentence(
    change: Any,
    sentence: str,
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
) -> None:
    change(network)
    with pytest.raises(kvbench.KVBenchError, match=sentence):
        run(network, tokenizer, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "needs its tokenizer"),
        ({"tokenizer": toy_tokenizer(), "device": "cpu"}, "leave device out"),
        ({"tokenizer": toy_tokenizer(), "executor": "ray"}, "leave executor out"),
        ({"model": nn.Linear(1, 1)}, "not a Linear"),
        ({"model": "reference", "tokenizer": toy_tokenizer()}, "leave tokenizer out"),
    ],
)
def test_what_is_no_model_is_said_in_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(kvbench.KVBenchError, match=sentence):
        kvbench.run(**{"model": NETWORKS["llama"](), **SMALL, **arguments})
