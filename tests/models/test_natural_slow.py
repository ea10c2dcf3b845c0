"""The two natural models that are fetched, held to known tokens. A model is tested where it was fetched
(``python -m kvbench fetch NAME``)."""

from pathlib import Path

import pytest
import torch

from kvbench.models.gguf.config import load_gguf
from kvbench.models.gguf.header import read_header
from kvbench.models.gguf.tokenizer import build_tokenizer
from kvbench.models.natural import NATURAL_MODELS
from kvbench.models.pretrained import read_config, read_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def path_of(name: str) -> Path:
    if not NATURAL_MODELS[name].is_here:
        pytest.skip(f"{name} is not on this machine: python -m kvbench fetch {name}")
    return NATURAL_MODELS[name].path


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        ("smollm2", "Hello world! 123", "19556 905 17 216 33 34 35"),
        ("smollm2", "  multiple   spaces", "216 2701 256 5600"),
        ("smollm2", "Café déjà vu.", "51 1939 2756 32564 90 16739 386 101 30"),
        ("gemma3", "The capital of France is", "818 5279 529 7001 563"),
    ],
)
def test_known_texts_have_known_tokens(name: str, text: str, ids: str) -> None:
    path = path_of(name)
    expected = [int(number) for number in ids.split()]
    assert build_tokenizer(read_header(path)).encode(text, add_special_tokens=False).ids == expected
    assert read_tokenizer(str(path)).encode(text, add_special_tokens=False) == expected


@pytest.mark.parametrize("name", NATURAL_MODELS)
def test_greedy_answers_make_sense(name: str) -> None:
    path = path_of(name)
    network, report = load_gguf(path, read_config(str(path)), dtype=torch.float32, attn_implementation="sdpa")
    assert not report["missing_keys"]
    tokenizer = read_tokenizer(str(path))
    ids = tokenizer("The Eiffel Tower stands in the city of", return_tensors="pt")
    with torch.inference_mode():
        answer = network.eval().generate(**ids, max_new_tokens=6, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
