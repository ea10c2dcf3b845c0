"""A GGUF file is a model like any other: its own tokenizer, the weights that were written, and one
line of what is wrong with it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from kvbench.cli.program import main
from kvbench.estimate.decoder import read_shape
from kvbench.models.gguf.header import read_header
from kvbench.models.gguf.tokenizer import build_tokenizer
from kvbench.models.load import hash_files, load_model, load_tokenizer
from kvbench.models.names import model_source
from kvbench.models.pretrained import read_cache_shape
from kvbench.prompts.context_length import count_by
from kvbench.system.errors import KVBenchError
from tests.support.models.gguf_files import (
    BYTE_LEVEL,
    SENTENCE_PIECE,
    toy_llama,
    write_gguf,
    write_sentence_piece,
)

TEXT = "the heron 123\n\nis here"
IDS = torch.tensor([list(range(20, 60))])


def logits_of(network: Any) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = network(IDS).logits
    return logits


@pytest.fixture(scope="module")
def original() -> LlamaForCausalLM:
    return toy_llama()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, original: LlamaForCausalLM) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "toy.gguf", original)


def test_the_weights_are_those_that_were_written(file: Path, original: LlamaForCausalLM) -> None:
    model = load_model(str(file), "cpu", "float32")
    assert torch.equal(logits_of(model.network), logits_of(original))
    assert model.end_tokens() == (2,)
    assert model.fingerprint == hash_files(str(file))
    assert len(model.tokenizer) == len(BYTE_LEVEL)
    assert model.tokenizer.model_max_length == 4096
    assert model.tokenizer.eos_token == "<|end|>"
    assert str(model.tokenizer.chat_template).startswith("{% for turn in messages %}")


def test_every_place_that_takes_a_model_takes_a_file(file: Path) -> None:
    assert model_source(str(file)) == str(file)
    shape, decoder = read_cache_shape(str(file)), read_shape(str(file), "bfloat16")
    assert shape is not None
    assert (shape.layers, shape.kv_heads, shape.head_size) == (2, 2, 8)
    assert decoder.parameters == sum(weight.numel() for weight in toy_llama().parameters())
    assert count_by(str(file))(TEXT) == len(
        load_tokenizer(str(file)).encode(TEXT, add_special_tokens=False)
    )
    assert main(["plan", "--model", str(file)]) == 0


def test_a_run_on_a_file_ends(file: Path, tmp_path: Path) -> None:
    words = "--tasks base --limit 1 --context-tokens native --policies knorm,kvzip --ratios 0.5 --max-new-tokens 2"
    places = ["--out", str(tmp_path / "runs"), "--site", str(tmp_path / "site"), "--name", "x"]
    assert main(["run", "--model", str(file), *words.split(), *places]) == 0
    assert main(["check-submission", str(tmp_path / "runs" / "x")]) == 0


@pytest.mark.parametrize(
    ("pre", "digits"),
    [
        ("gpt-2", ["123"]),
        ("smollm", ["1", "2", "3"]),
        ("qwen2", ["1", "2", "3"]),
        ("llama-bpe", ["123"]),
    ],
)
def test_digits_are_split_as_the_file_says(tmp_path: Path, pre: str, digits: list[str]) -> None:
    tokenizer = build_tokenizer(read_header(write_gguf(tmp_path / "x.gguf", pre=pre)))
    pieces = tokenizer.encode("the 123", add_special_tokens=False)
    assert pieces.tokens[-len(digits) :] == digits
    assert tokenizer.decode(pieces.ids) == "the 123"
    assert tokenizer.encode("a<|end|>b", add_special_tokens=False).tokens == ["a", "<|end|>", "b"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("ab", ["ab"]),
        (" ab", ["▁ab"]),
        ("a  b", ["a", "  ", "b"]),
        ("aé", ["a", "<0xC3>", "<0xA9>"]),
        ("b<|end|>ab", ["b", "<|end|>", "ab"]),
    ],
)
def test_a_vocabulary_of_llama_merges_by_score_and_falls_back_to_bytes(
    tmp_path: Path, text: str, tokens: list[str]
) -> None:
    tokenizer = build_tokenizer(read_header(write_sentence_piece(tmp_path / "x.gguf")))
    pieces = tokenizer.encode(text, add_special_tokens=False)
    assert pieces.tokens == tokens
    assert tokenizer.decode(pieces.ids, skip_special_tokens=False) == text
    # As llama.cpp where the file says nothing.
    assert tokenizer.encode("ab").tokens == [
        "<|begin|>",
        "ab",
    ]
    assert tokenizer.get_vocab_size() == len(SENTENCE_PIECE)


def test_an_end_of_turn_ends_an_answer_too(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", tokenizer__ggml__eot_token_id=1)
    assert load_model(str(path), "cpu").end_tokens() == (2, 1)


def test_positions_are_stretched_as_the_divisors_say(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    stretched = toy_llama(rope_parameters=rope)
    plain = toy_llama(rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    divisors = plain.model.rotary_emb.inv_freq / stretched.model.rotary_emb.inv_freq
    assert divisors.max() > 1
    path = write_gguf(tmp_path / "x.gguf", stretched, tensors={"rope_freqs.weight": divisors})
    model = load_model(str(path), "cpu", "float32")
    torch.testing.assert_close(logits_of(model.network), logits_of(stretched))
    assert not torch.allclose(logits_of(model.network), logits_of(plain))
    path = write_gguf(tmp_path / "y.gguf", stretched, tensors={"rope_freqs.weight": divisors + 1})
    with pytest.raises(
        KVBenchError, match="stretches its positions in a way that is not known here"
    ):
        load_model(str(path), "cpu")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"pre": "tekken"},
            "splits words by 'tekken', which is not known here: only gpt-2, smollm, qwen2",
        ),
        ({"architecture": "mamba"}, "holds the architecture 'mamba': of GGUF files, llama, qwen2"),
        ({"split__count": 3}, "is one of 3 parts: join them first"),
        (
            {"llama__rope__scaling__type": "yarn"},
            r"scales its positions \(yarn\), which cannot be read",
        ),
        (
            {"tensors": {"blk.0.attn_q.bias": torch.zeros(32)}},
            "holds 22 tensors where its architecture has 21",
        ),
        (
            {"tensors": {"blk.7.attn_q.weight": torch.zeros(32)}},
            "holds 22 tensors where its architecture has 21",
        ),
    ],
)
def test_what_would_be_read_wrongly_is_refused(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    path = write_gguf(tmp_path / "x.gguf", **options)
    with pytest.raises(KVBenchError, match=reason) as caught:
        load_model(str(path), "cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [0.0001, 0.1, 0.9])
def test_a_file_that_is_cut_off_is_one_line(file: Path, tmp_path: Path, share: float) -> None:
    cut = tmp_path / "cut.gguf"
    content = file.read_bytes()
    cut.write_bytes(content[: max(5, int(share * len(content)))])
    with pytest.raises(KVBenchError, match=r"cut\.gguf is cut off or damaged") as caught:
        load_model(str(cut), "cpu")
    assert "\n" not in str(caught.value)
