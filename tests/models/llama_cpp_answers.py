"""Prints what llama.cpp makes of texts, as one JSON object. It runs in a Python that has
``xllamacpp``, llama.cpp in a wheel; ``llama-cpp-python`` is the same code, and takes hours to build
on one core.

Arguments: a GGUF file, and a JSON file with ``texts`` to tokenize and ``prompts`` to continue by
``steps`` tokens."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from xllamacpp import CommonParams, Server  # type: ignore[import-not-found]

path, job = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
options = CommonParams()
options.model.path = path
options.n_ctx = 1024
options.n_parallel = 1
options.cpuparams.n_threads = 1
server = Server(options)


def ask(what: str, **body: Any) -> Any:
    """Asks the server of this process."""
    address, headers = f"{server.listening_address}/{what}", {"Content-Type": "application/json"}
    request = Request(address, json.dumps(body).encode(), headers)
    with urlopen(request) as answer:
        return json.loads(answer.read())


def tokens_of(text: str, begin: bool) -> list[int]:
    tokens: list[int] = ask("tokenize", content=text, add_special=begin, parse_special=True)[
        "tokens"
    ]
    return tokens


def continued(prompt: str) -> dict[str, list[int]]:
    tokens = tokens_of(prompt, begin=True)
    answer = ask(
        "completion",
        prompt=tokens,
        n_predict=job["steps"],
        samplers=["top_k"],
        top_k=1,
        return_tokens=True,
    )
    return {"prompt": tokens, "answer": answer["tokens"]}


texts = [tokens_of(text, begin=False) for text in job["texts"]]
print(json.dumps({"texts": texts, "answers": [continued(prompt) for prompt in job["prompts"]]}))
