"""A real server: llama.cpp with SmolLM2 and Qwen, whose cache is stored in 16 and in 4 bits. It runs
in the Python that ``LLAMA_CPP_PYTHON`` names, by default this one, if it has ``xllamacpp``."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvbench.models.natural import NATURAL_MODELS
from tests.support.models.runs import CommandLine

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("llama_cpp_server.py")
NEEDLES = "niah_single_1,niah_single_2,niah_multikey_1"
# Other commands of tests answer in a few tokens, and a number of seven digits has as many.
WHOLE = ("--max-new-tokens", 48)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def served(name: str, kind: str) -> Iterator[str]:
    """Runs a server of a natural model, and gives its address."""
    python, model = os.environ.get("LLAMA_CPP_PYTHON", sys.executable), NATURAL_MODELS[name]
    if not model.is_here:
        pytest.skip(f"{model.path} is not there: python -m kvbench fetch {name}")
    if subprocess.run([python, "-c", "import xllamacpp"], capture_output=True).returncode:
        pytest.skip(
            f"{python} has no xllamacpp: pip install it in a Python that LLAMA_CPP_PYTHON names"
        )
    command = [python, str(SCRIPT), str(model.path), kind, str(free_port())]
    server = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    try:
        yield f"{server.stdout.readline().strip()}/v1"
    finally:
        server.communicate("")


def run(cli: CommandLine, address: str, name: str, *options: object) -> None:
    assert cli("run", "--model", address, "--name", name, *options) == 0, cli.err


def compare(cli: CommandLine, now: str, before: str) -> dict[str, Any]:
    cli("compare", f"runs/{now}", "--against", f"runs/{before}", "--json")
    (outcome,) = json.loads(cli.out)["tables"]["outcomes"]
    return dict(outcome)


def test_a_cache_of_16_bits_is_not_distinguished_from_itself(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--tasks", NEEDLES, "--limit", 24, "--context-tokens", 200, *WHOLE)
    with served("smollm2", "f16") as address:
        run(cli, address, "before", *options)
        assert "goes on from the beginning" in cli.err
        run(cli, address, "again", *options)
    assert compare(cli, "again", "before")["verdict"] == "not distinguished"


def test_four_bits_break_the_needles_of_qwen(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--tasks", "niah_single_2", "--limit", 20, "--context-tokens", 1000, *WHOLE)
    for kind in ("f16", "q4_0"):
        with served("qwen", kind) as address:
            run(cli, f"{address}(tokenizer=qwen,requests=2)", kind, *options)
    outcome = compare(cli, "q4_0", "f16")
    assert outcome["verdict"] == "worse"
