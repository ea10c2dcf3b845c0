"""A model is what all of its files say, and a damaged one is refused in one line."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import accelerate
import pandas as pd
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from datasets_gen import TASKS
from kvbench.engine.decode.answers import check_length
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel, count_embeddings, hash_files, load_model, wrap_model
from kvbench.prompts.prompt import build_prompts
from kvbench.system.errors import KVBenchError
from policies import POLICIES, at_ratios
from tests.support.models.runs import timeless
from tests.support.models.toy import toy_model

WEIGHTS = "model.safetensors"


def in_shards(folder: Path, shard: str) -> Path:
    """Moves the weights into one shard, which an index names; returns its place."""
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    place = folder / shard
    place.parent.mkdir(parents=True, exist_ok=True)
    save_file(weights, place, {"format": "pt"})
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(weights, shard)}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))
    return place


def change(place: Path, to: float) -> None:
    weights = load_file(place)
    name = next(name for name in weights if "q_proj" in name)
    weights[name] = weights[name].clone()
    weights[name][0, 0] = to
    save_file(weights, place, {"format": "pt"})


@pytest.mark.parametrize(
    "shard", ["model-00001-of-00001.safetensors", "parts/one.safetensors", ".hidden.safetensors"]
)
def test_two_models_of_different_weights_are_two_wherever_the_shards_lie(
    toy_copy: Path, shard: str
) -> None:
    place = in_shards(toy_copy, shard)
    first = load_model(str(toy_copy), "cpu").fingerprint
    assert load_model(str(toy_copy), "cpu").fingerprint == first
    change(place, 0.5)
    assert load_model(str(toy_copy), "cpu").fingerprint != first


def test_weights_outside_of_the_folder_are_refused(toy_copy: Path) -> None:
    in_shards(toy_copy, "../elsewhere.safetensors")
    with pytest.raises(
        KVBenchError, match=r"lie outside of it, in \.\./elsewhere\.safetensors: put them into"
    ):
        hash_files(str(toy_copy))


def test_a_tokenizer_may_be_longer_than_the_embeddings_unless_such_a_token_occurs(
    toy_copy: Path,
) -> None:
    examples = [TASKS["base"].example(0, index) for index in range(2)]
    word = next(
        word
        for word in re.findall("[A-Z][a-z]+", examples[0].context)
        if word not in examples[1].context
    )
    tokenizer = PreTrainedTokenizerFast.from_pretrained(toy_copy)
    tokenizer.add_tokens([word])
    tokenizer.save_pretrained(toy_copy)
    model = load_model(str(toy_copy), "cpu")
    assert len(model.tokenizer) == 1 + count_embeddings(model.network)
    holding, other = (
        build_prompts(model.tokenizer, TASKS["base"], example, "agnostic")[0]
        for example in examples
    )
    check_length(model, other, 4)
    with pytest.raises(
        KVBenchError, match=rf"holds the token \d+ \('{word}'\), and .* has [\d,]+ embeddings"
    ):
        check_length(model, holding, 4)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(toy_copy: Path, value: float) -> None:
    change(toy_copy / WEIGHTS, value)
    with pytest.raises(
        KVBenchError, match=r"is damaged: its weight model\.layers\.0\.\S+ is infinite or NaN"
    ):
        load_model(str(toy_copy), "cpu")


def test_code_of_a_folder_is_never_run(toy_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers would ask on a terminal, and run it on "y"."""
    config = json.loads((toy_copy / "config.json").read_text())
    config |= {
        "auto_map": {"AutoConfig": "theirs.Theirs", "AutoModelForCausalLM": "theirs.Model"},
        "model_type": "theirs",
    }
    (toy_copy / "config.json").write_text(json.dumps(config))
    (toy_copy / "theirs.py").write_text(f"open({str(toy_copy / 'ran')!r}, 'w').close()\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(KVBenchError, match="cannot load the model"):
        load_model(str(toy_copy), "cpu")
    assert not (toy_copy / "ran").exists()


def test_an_adapter_is_added_to_the_model_that_it_names(toy_copy: Path, tmp_path: Path) -> None:
    adapter, network = tmp_path / "adapter", AutoModelForCausalLM.from_pretrained(toy_copy)
    adapted = get_peft_model(
        network, LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    )
    adapted.peft_config["default"].base_model_name_or_path = str(toy_copy)
    adapted.save_pretrained(adapter)
    base, model = load_model(str(toy_copy), "cpu"), load_model(str(adapter), "cpu")
    ids = torch.arange(12)[None]
    with torch.no_grad():
        theirs, ours, without = (
            one(ids).logits for one in (adapted.eval(), model.network, base.network)
        )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert (ours - without).abs().max() > 1e-2
    assert (
        len({model.fingerprint, base.fingerprint, hash_files(str(toy_copy), adapter=toy_copy)}) == 3
    )
    assert not any("lora" in name for name, _ in model.network.named_parameters())


# --- weights spread over GPUs, on a machine without any


def collect_answers(model: LoadedModel) -> pd.DataFrame:
    chosen = [POLICIES[name] for name in ("full", "snapkv", "adakv_snapkv", "kvzip")]
    task = TASKS["base"]
    grid = Grid([(task, 1)], chosen, at_ratios((0.5,)))
    found = collect(model, task, [task.example(0, 0)], grid)
    return timeless(pd.DataFrame([record.model_dump() for record in found.records]))


def test_the_hooks_that_spread_weights_change_no_record(llama: LoadedModel) -> None:
    """accelerate gives every module another forward, which moves its input to its device: here, to
    the CPU."""
    spread = toy_model("llama").network
    places = {
        "model.embed_tokens": "cpu",
        "model.rotary_emb": "cpu",
        "model.norm": "cpu",
        "lm_head": "cpu",
    }
    layers = {f"model.layers.{number}": "cpu" for number in range(len(llama.network.model.layers))}
    spread = accelerate.dispatch_model(
        spread, {**places, **layers}, main_device="cpu", force_hooks=True
    )
    assert hasattr(spread.model.layers[1], "_hf_hook")
    model = wrap_model("llama", spread, llama.tokenizer, "toy")
    frame = collect_answers(model)
    assert set(frame["status"]) == {"ok"}
    assert frame["output_text"].nunique() > 1
    pd.testing.assert_frame_equal(frame, collect_answers(llama))
    assert not model.snapshot.first_change()


@pytest.mark.parametrize(
    "name", ["README.md", "LICENSE", "optimizer.pt", "trainer_state.json", "figure.png"]
)
def test_a_file_that_nothing_reads_makes_no_other_model(toy_copy: Path, name: str) -> None:
    first = hash_files(str(toy_copy))
    (toy_copy / name).write_text("x")
    assert hash_files(str(toy_copy)) == first


@pytest.mark.parametrize(
    "name", ["generation_config.json", "chat_template.jinja", "additional_chat_templates/a.jinja"]
)
def test_a_file_that_answers_rest_on_makes_another_model(toy_copy: Path, name: str) -> None:
    first = hash_files(str(toy_copy))
    (toy_copy / name).parent.mkdir(exist_ok=True)
    (toy_copy / name).write_text("{}")
    assert hash_files(str(toy_copy)) != first


def test_a_model_of_the_hub_is_what_its_files_in_the_cache_say(
    toy_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same commit, with another weight in its file; and another commit with the same files."""
    snapshots = tmp_path / "cache" / "models--some--model" / "snapshots"
    first, second = (
        shutil.copytree(toy_copy, snapshots / commit) for commit in ("1" * 40, "2" * 40)
    )
    monkeypatch.setattr(
        "kvbench.models.load.try_to_load_from_cache",
        lambda *_, revision: f"{snapshots}/{revision}/config.json",
    )
    config = {commit: SimpleNamespace(_commit_hash=commit) for commit in (first.name, second.name)}
    before = hash_files("some/model", config[first.name])
    assert hash_files("some/model", config[second.name]) == before == hash_files(str(toy_copy))
    change(first / WEIGHTS, 0.5)
    assert hash_files("some/model", config[first.name]) != before
