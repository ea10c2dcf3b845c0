"""What comes with an adapter is used, or refused by name: the base alone is never scored under the
adapter's name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from kvbench.models.load import count_embeddings, hash_files, load_model
from kvbench.prompts.context_length import count_by
from kvbench.prompts.prompt import chat_template
from kvbench.system.errors import KVBenchError

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
PROJECTIONS = ["q_proj", "down_proj"]


@pytest.fixture
def base(toy_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_folder, tmp_path / "base"))


def adapter(base: Path, rows: int | None = None, **options: Any) -> tuple[Path, Any]:
    """Writes an adapter of random weights; returns its folder, and the network as peft has it.
    ``rows``: of the embeddings, where tokens were added."""
    torch.manual_seed(1)
    network = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    if rows is not None:
        network.resize_token_embeddings(rows, mean_resizing=False)
    settings = {
        "r": 2,
        "target_modules": PROJECTIONS,
        "task_type": "CAUSAL_LM",
        "init_lora_weights": False,
    } | options
    adapted = get_peft_model(network, LoraConfig(**settings))
    for name, weight in adapted.named_parameters():
        if "modules_to_save" in name:
            torch.nn.init.normal_(weight, std=0.1)
    adapted.peft_config["default"].base_model_name_or_path = str(base)
    folder = base.parent / "adapter"
    adapted.save_pretrained(folder, save_embedding_layers=rows is not None)
    return folder, adapted.eval()


def edit(folder: Path, **fields: object) -> None:
    content = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(content | fields))


def edit_weights(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, {"format": "pt"})


def same_logits(ours: Any, theirs: Any) -> bool:
    ids = torch.arange(12)[None]
    with torch.no_grad():
        return torch.allclose(ours(ids).logits, theirs(ids).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("named", ["../base", "base"])
def test_a_relative_base_begins_at_the_folder_of_the_adapter(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    folder, theirs = adapter(base)
    if named == "base":  # it lies within the adapter
        shutil.move(base, folder / "base")
    edit(folder, base_model_name_or_path=named)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for place in (elsewhere, tmp_path):
        monkeypatch.chdir(place)
        assert same_logits(load_model(str(folder), "cpu", "float32").network, theirs)
    edit(folder, base_model_name_or_path="../nothing")
    with pytest.raises(KVBenchError, match=f"there is no model at {tmp_path / 'nothing'}"):
        load_model(str(folder), "cpu", "float32")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"modules_to_save": ["lm_head"]},
        {"rank_pattern": {"down_proj": 1}, "alpha_pattern": {"down_proj": 3}},
        {"use_dora": True},
        {"use_rslora": True},
        {"layers_to_transform": [1]},
        {"bias": "lora_only"},
    ],
)
def test_an_adapter_computes_as_in_peft(base: Path, options: dict[str, Any]) -> None:
    folder, theirs = adapter(base, **options)
    model = load_model(str(folder), "cpu", "float32")
    assert same_logits(model.network, theirs)
    assert not same_logits(model.network, AutoModelForCausalLM.from_pretrained(base))
    assert model.packages == ("peft",)


def moved(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        key.replace("model.model.", "model.model.language_model."): weight
        for key, weight in weights.items()
    }


def without_a_layer(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key: weight for key, weight in weights.items() if ".layers.1." not in key}


def with_one_more(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**weights, "base_model.model.score.weight": torch.zeros(2, 2)}


def wider(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    key = min(weights)
    return {**weights, key: torch.cat([weights[key]] * 2, dim=-1)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (moved, r"has weights without a place in its base .*language_model.*in all"),
        (with_one_more, r"has weights without a place in its base .*score\.weight \(1 in all\)"),
        (without_a_layer, r"lacks weights for .*layers\.1\..*in all"),
        (wider, r"does not fit its base .*size mismatch for .*lora_A"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(
    base: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], said: str
) -> None:
    folder, _ = adapter(base)
    edit_weights(folder, change)
    with pytest.raises(KVBenchError, match=said):
        load_model(str(folder), "cpu")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"alpha_pattern": {"gate_proj": 64}},
            "alpha_pattern for 'gate_proj', which names no module",
        ),
        ({"task_type": "SEQ_CLS"}, "was made for the task SEQ_CLS"),
        ({"auto_mapping": {"base_model_class": "OPTForCausalLM"}}, "was made for a OPTForCausalLM"),
        (
            {"modules_to_save": ["lm_head"]},
            "names lm_head in modules_to_save and has no weights of it",
        ),
        (
            {"alora_invocation_tokens": [1, 2]},
            "alora_invocation_tokens, with which it is more than added weights",
        ),
        ({"layer_replication": [[0, 2], [1, 3]]}, "has layer_replication"),
    ],
)
def test_what_is_no_sum_of_weights_is_refused_by_name(
    base: Path, fields: dict[str, object], said: str
) -> None:
    folder, _ = adapter(base)
    edit(folder, **fields)
    with pytest.raises(KVBenchError, match=said):
        load_model(str(folder), "cpu")


def test_an_adapter_on_an_adapter_is_refused(base: Path, tmp_path: Path) -> None:
    """The one in the middle would be passed over."""
    folder, _ = adapter(base)
    second = Path(shutil.copytree(folder, tmp_path / "second"))
    edit(second, base_model_name_or_path=str(folder))
    with pytest.raises(KVBenchError, match="has a base that is an adapter itself"):
        load_model(str(second), "cpu")


def test_weights_in_other_files_are_refused(base: Path) -> None:
    folder, _ = adapter(base)
    save_file({"x": torch.zeros(1)}, folder / "new_embeddings.safetensors")
    with pytest.raises(
        KVBenchError, match=r"has weights in new_embeddings\.safetensors, which peft does not read"
    ):
        load_model(str(folder), "cpu")


def with_token(folder: Path, base: Path, token: str) -> PreTrainedTokenizerFast:
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(base)
    tokenizer.add_tokens([token])
    tokenizer.save_pretrained(folder)
    return tokenizer


def test_added_tokens_and_their_embeddings_are_used(base: Path) -> None:
    rows = len(PreTrainedTokenizerFast.from_pretrained(base)) + 1
    folder, theirs = adapter(base, rows)
    with pytest.raises(KVBenchError, match="put the tokenizer with the added tokens beside it"):
        load_model(str(folder), "cpu")
    tokenizer = with_token(folder, base, "Zyxomma")
    model = load_model(str(folder), "cpu", "float32")
    assert count_embeddings(model.network) == len(tokenizer) == rows
    assert model.tokenizer.encode("Zyxomma", add_special_tokens=False) == [rows - 1]
    assert count_by(str(folder))("Zyxomma") == 1
    assert same_logits(model.network, theirs)


def test_added_tokens_without_embeddings_are_refused(base: Path) -> None:
    folder, _ = adapter(base)
    with_token(folder, base, "Zyxomma")
    with pytest.raises(
        KVBenchError, match="and it brings none: save it with save_embedding_layers=True"
    ):
        load_model(str(folder), "cpu")


def test_a_chat_template_and_end_tokens_beside_an_adapter_are_used(base: Path) -> None:
    folder, _ = adapter(base)
    plain = load_model(str(folder), "cpu")
    template = (base / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text("Be brief. " + template)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7]}))
    model = load_model(str(folder), "cpu")
    assert chat_template(model.tokenizer).head == "Be brief. " + chat_template(plain.tokenizer).head
    assert model.end_tokens()[0] == 7
    assert model.fingerprint != plain.fingerprint


def test_half_a_tokenizer_beside_an_adapter_is_refused(base: Path) -> None:
    folder, _ = adapter(base)
    shutil.copy(base / "tokenizer_config.json", folder)
    with pytest.raises(
        KVBenchError, match=r"tokenizer_config\.json lies beside the adapter .* vocabulary does not"
    ):
        load_model(str(folder), "cpu")


def test_the_fingerprint_sees_an_adapter_on_one_file(base: Path, tmp_path: Path) -> None:
    """On a GGUF file the fingerprint was that of the base alone."""
    folder, _ = adapter(base)
    file = tmp_path / "base.gguf"
    file.write_bytes(b"GGUF, some weights")
    first = hash_files(str(file), adapter=folder)
    edit_weights(folder, lambda weights: {key: weight + 1 for key, weight in weights.items()})
    assert len({first, hash_files(str(file), adapter=folder), hash_files(str(file))}) == 3
