"""--device-map: weights spread over GPUs, by accelerate; on a machine without GPUs, what can be known of it there."""

from pathlib import Path
from typing import Any

import accelerate
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

import kvbench.models.load
from datasets_gen import TASKS
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Setting
from kvbench.models.load import LoadedModel, check_spread, load_model, wrap_model
from kvbench.system.errors import KVBenchError
from policies import POLICIES, at_ratios
from tests.support.models.runs import CommandLine, timeless
from tests.support.models.toy import toy_model


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A machine that says it has a GPU; what the loader is asked for is noted, and the CPU is given."""
    asked: list[dict[str, Any]] = []
    load = AutoModelForCausalLM.from_pretrained

    def noted(source: str, **options: Any) -> Any:
        asked.append(dict(options))
        if "device_map" in options:
            options["device_map"] = {"": "cpu"}
        return load(source, **options)

    monkeypatch.setattr(kvbench.models.load, "choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", noted)
    return asked


def test_the_map_reaches_the_loader_and_what_stays_outside_is_refused(
    toy_folder: Path, pretended: list[dict[str, Any]]
) -> None:
    with pytest.raises(KVBenchError, match=r"does not fit on the GPUs \("):
        load_model(str(toy_folder), "cuda", "float32", "auto")
    assert [options["device_map"] for options in pretended] == ["auto"]


def test_without_a_map_nothing_is_spread(
    toy_folder: Path, pretended: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvbench.models.load, "choose_device", lambda _: torch.device("cpu"))
    load_model(str(toy_folder), "cpu", "float32")
    assert "device_map" not in pretended[0]


def test_layers_on_gpus_are_accepted_and_others_named() -> None:
    check_spread("large", {"layers.0.weight": "cuda", "layers.1.weight": "cuda"})
    with pytest.raises(KVBenchError, match=r"'large' does not fit .* \(layers.1.weight and 1 more weights"):
        check_spread("large", {"layers.0.weight": "cuda", "layers.1.weight": "cpu", "norm.weight": "meta"})


def answered(model: LoadedModel) -> pd.DataFrame:
    chosen = [POLICIES[name] for name in ("full", "snapkv", "adakv_snapkv", "kvzip")]
    found = collect(model, TASKS["base"], [TASKS["base"].example(0, 0)], Setting(chosen, at_ratios((0.5,))))
    return timeless(pd.DataFrame([record.model_dump() for record in found.records]))


def test_the_hooks_that_spread_weights_change_no_record(llama: LoadedModel) -> None:
    """accelerate gives every module another forward, which moves its input to its device: here, to the CPU."""
    spread = toy_model("llama").network
    places = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "cpu", "lm_head": "cpu"}
    layers = {f"model.layers.{number}": "cpu" for number in range(len(llama.network.model.layers))}
    spread = accelerate.dispatch_model(spread, {**places, **layers}, main_device="cpu", force_hooks=True)
    assert hasattr(spread.model.layers[1], "_hf_hook")
    model = wrap_model("llama", spread, llama.tokenizer, "toy")
    frame = answered(model)
    assert set(frame["status"]) == {"ok"}
    assert frame["output_text"].nunique() > 1
    pd.testing.assert_frame_equal(frame, answered(llama))
    assert not model.snapshot.first_change()


BASE = ("run", "--tasks", "base", "--policies", "knorm")


def test_without_a_gpu_one_line_says_so(cli: CommandLine) -> None:
    assert "there is none: leave it out" in cli.error(*BASE, "--device", "cpu", "--device-map", "auto")


def test_without_accelerate_one_line_says_how_to_get_it(
    cli: CommandLine, pretended: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvbench.models.load, "find_spec", lambda _: None)
    assert "pip install accelerate" in cli.error(*BASE, "--device-map", "auto")
    assert pretended == []
