"""The two natural models that are fetched, held to known tokens and to llama.cpp.

A model is tested where it was fetched (``python -m kvbench fetch NAME``). llama.cpp is asked in the
Python that ``LLAMA_CPP_PYTHON`` names, by default this one, if it has the package ``xllamacpp``.
"""

import json
import os
import random
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from datasets_gen import TASKS
from kvbench.models.gguf.config import load_gguf
from kvbench.models.gguf.header import read_header
from kvbench.models.gguf.tokenizer import build_tokenizer
from kvbench.models.natural import NATURAL_MODELS
from kvbench.models.pretrained import read_config, read_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
every_model = pytest.mark.parametrize("name", NATURAL_MODELS)
TEXTS = 1000
PROMPTS = [
    "The capital of France is",
    "Once upon a time, there was a",
    "def fibonacci(n):\n    ",
    "1, 2, 3, 4, 5, 6,",
    "Water boils at a temperature of",
]
STEPS = 16
# Of a logit: llama.cpp rounds what it multiplies to 8 bits, so that two close tokens may change
# places.
CLOSE = 0.75
LETTERS = "aäßñéçøłżαβγдлмשלםعربहिन्दी日本語中文한국어ไทย"
SIGNS = "0123456789 .,;:!?'\"()[]{}<>/\\|@#$%^&*-_=+~`€£¥©®°±×÷→←∞≠≤≥…—–“”‘’«»\t"
EMOJI = "😀👍🏽👩‍👩‍👧🇫🇷🎉❤️🧪\u200d\ufe0f"
CODE = (
    "for (int i = 0; i < {n}; ++i) {{\n\tsum += a[i] * {n}u;\n}}\n",
    "def f_{n}(x, *, y=None):\n    return x if y is None else {{'k': [x, y, {n}]}}\n\n\n",
    "SELECT name, COUNT(*) FROM t{n} WHERE id >= {n} GROUP BY name;\r\n",
    '<p class="c{n}">it\'s {n}&nbsp;% &amp; more</p>\n<br/>',
)


def texts(count: int) -> list[str]:
    """Draws texts of all kinds: prose of the generators, letters of many scripts, code, numbers and
    white space."""
    chance = random.Random(11)
    tasks = list(TASKS.values())

    def prose() -> str:
        context = chance.choice(tasks).example(5, chance.randrange(40)).context
        start = chance.randrange(len(context))
        return context[start : start + chance.randrange(1, 300)]

    def letters() -> str:
        return "".join(
            chance.choice(LETTERS + SIGNS + EMOJI) for _ in range(chance.randrange(1, 60))
        )

    def code() -> str:
        return "".join(
            chance.choice(CODE).format(n=chance.randrange(10**4))
            for _ in range(chance.randrange(1, 4))
        )

    def numbers() -> str:
        drawn = (
            f"{chance.randrange(10**9)}{chance.choice([' ', ', ', '.', '-', ''])}" for _ in range(8)
        )
        return "".join(drawn)

    def spaces() -> str:
        words = ("the", "Ein", "x", "I'm", "they'll", "12", "\u00a0", "\u3000")
        gaps = (" ", "  ", "   ", " " * 9, "\n", "\n\n", "\n \n", "\t", "\t\t", "\r\n", " \n  ")
        return "".join(
            chance.choice(gaps) + chance.choice(words) for _ in range(chance.randrange(1, 15))
        )

    kinds = (prose, prose, letters, code, numbers, spaces)
    return [chance.choice(kinds)() for _ in range(count)]


def path_of(name: str) -> Path:
    if not NATURAL_MODELS[name].is_here:
        pytest.skip(f"{name} is not on this machine: python -m kvbench fetch {name}")
    return NATURAL_MODELS[name].path


@cache
def network_of(name: str) -> Any:
    path = path_of(name)
    network, report = load_gguf(
        path, read_config(str(path)), dtype=torch.float32, attn_implementation="sdpa"
    )
    assert not report["missing_keys"]
    return network.eval()


@cache
def of_llama_cpp(name: str) -> dict[str, Any]:
    """Returns what llama.cpp makes of all texts and prompts."""
    path, python = path_of(name), os.environ.get("LLAMA_CPP_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import xllamacpp"], capture_output=True).returncode:
        pytest.skip(
            f"{python} has no xllamacpp: pip install it in a Python that LLAMA_CPP_PYTHON names"
        )
    script = Path(__file__).parents[2] / "docs" / "scripts" / "llama_cpp_answers.py"
    job = NATURAL_MODELS[name].path.with_suffix(f".{os.getpid()}.json")
    job.write_text(json.dumps({"texts": texts(TEXTS), "prompts": PROMPTS, "steps": STEPS}))
    try:
        done = subprocess.run(
            [python, str(script), str(path), str(job)], capture_output=True, text=True, check=True
        )
    finally:
        job.unlink()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        ("smollm2", "Hello world! 123", "19556 905 17 216 33 34 35"),
        ("smollm2", "The capital of France is", "504 3575 282 4649 314"),
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


@every_model
def test_a_thousand_texts_have_the_tokens_of_llama_cpp(name: str) -> None:
    theirs = of_llama_cpp(name)["texts"]
    tokenizer = build_tokenizer(read_header(path_of(name)))
    ours = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts(TEXTS)]
    other = [
        (text, one, two)
        for text, one, two in zip(texts(TEXTS), ours, theirs, strict=True)
        if one != two
    ]
    assert len(ours) == TEXTS
    assert not other, f"{len(other)} of {TEXTS}, the first: {other[0]}"


@every_model
def test_greedy_answers_are_those_of_llama_cpp(name: str) -> None:
    """Every token of llama.cpp is our first, or as close to it as its rounding explains."""
    network, first = network_of(name), 0
    answers = of_llama_cpp(name)["answers"]
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert read_tokenizer(str(path_of(name))).encode(prompt) == answer["prompt"]
        whole = torch.tensor([answer["prompt"] + answer["answer"]])
        with torch.inference_mode():
            logits = network(whole).logits[0, len(answer["prompt"]) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(answer["answer"])[:, None])[:, 0]
        behind = logits.max(dim=1).values - chosen
        assert behind.max() < CLOSE, (prompt, answer["answer"], behind.tolist())
        first += int((behind == 0).sum())
    assert first >= 0.9 * STEPS * len(PROMPTS)


@every_model
def test_greedy_answers_make_sense(name: str) -> None:
    network, tokenizer = network_of(name), read_tokenizer(str(path_of(name)))
    prompt = "The Eiffel Tower stands in the city of"
    ids = tokenizer(prompt, return_tensors="pt")
    with torch.inference_mode():
        answer = network.generate(**ids, max_new_tokens=6, do_sample=False)[
            0, ids["input_ids"].shape[1] :
        ]
    assert "Paris" in tokenizer.decode(answer)
