"""Prints what llama.cpp makes of texts, as one JSON object. It runs in a Python that has
``xllamacpp``, llama.cpp in a wheel; ``llama-cpp-python`` is the same code, and takes hours to build
on one core.

Arguments: a GGUF file, and a JSON file with ``texts`` to tokenize and ``prompts``, texts or tokens,
to continue by ``steps`` tokens; with ``keys`` and ``values`` the types in which its cache stores
them, such as ``q4_0``."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from xllamacpp import (  # type: ignore[import-not-found]
    CommonParams,
    Server,
    ggml_type,
    llama_flash_attn_type,
)

path, job = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
options = CommonParams()
options.model.path = path
options.n_ctx = 2048
options.n_parallel = 1
options.cpuparams.n_threads = 1
if "keys" in job:
    options.cache_type_k = getattr(ggml_type, f"GGML_TYPE_{job['keys'].upper()}")
    options.cache_type_v = getattr(ggml_type, f"GGML_TYPE_{job['values'].upper()}")
    # Without it llama.cpp refuses values that are quantised.
    options.flash_attn_type = llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
server = Server(options)


def ask(action: str, **body: Any) -> Any:
    """Asks the server of this process."""
    address, headers = f"{server.listening_address}/{action}", {"Content-Type": "application/json"}
    request = Request(address, json.dumps(body).encode(), headers)
    with urlopen(request) as answer:
        return json.loads(answer.read())


def tokenize(text: str, begin: bool) -> list[int]:
    """Returns the tokens of a text; ``begin``: with the token that begins a text."""
    answer = ask("tokenize", content=text, add_special=begin, parse_special=True)
    tokens: list[int] = answer["tokens"]
    return tokens


def complete(prompt: str | list[int]) -> dict[str, Any]:
    """Continues a prompt with the likeliest tokens."""
    tokens = tokenize(prompt, begin=True) if isinstance(prompt, str) else prompt
    answer = ask(
        "completion",
        prompt=tokens,
        n_predict=job["steps"],
        samplers=["top_k"],
        top_k=1,
        return_tokens=True,
        # Each prompt is read anew: rows of another must not be used again.
        cache_prompt=False,
    )
    return {"prompt": tokens, "answer": answer["tokens"], "text": answer["content"]}


texts = [tokenize(text, begin=False) for text in job.get("texts", ())]
print(json.dumps({"texts": texts, "answers": [complete(prompt) for prompt in job["prompts"]]}))
