"""llama.cpp with its cache in types of its own, against the formats that stand for them in process:
the same needles, and the same verdicts. It runs in the Python that ``LLAMA_CPP_PYTHON`` names, by
default this one, if it has ``xllamacpp``."""

import os
import subprocess
import sys

import pytest

from docs.scripts.engines import breaks, compare_engines
from kvbench.models.natural import NATURAL_MODELS

pytestmark = pytest.mark.slow

NEEDLES = 4
PAIRS = (("q8_0", "q8_0"), ("q4_0", "q4_0"))


@pytest.mark.parametrize("name", ["smollm2", "qwen"])
def test_types_of_llama_cpp_hold_or_break_as_formats_in_process_do(name: str) -> None:
    if not NATURAL_MODELS[name].is_here:
        pytest.skip(f"{name} is not there: python -m kvbench fetch {name}")
    python = os.environ.get("LLAMA_CPP_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import xllamacpp"], capture_output=True).returncode:
        pytest.skip(f"{python} has no xllamacpp: name one that has it in LLAMA_CPP_PYTHON")
    measured = compare_engines(name, NEEDLES, PAIRS)
    assert measured["llama_cpp_full"] == measured["full"] == NEEDLES
    verdicts = []
    for pair in measured["pairs"]:
        # As llama.cpp stands: without its rotation, few needles do not tell a verdict.
        verdict = breaks(pair["llama_cpp"], NEEDLES, NEEDLES)
        assert verdict == breaks(pair["written_turned"], NEEDLES, NEEDLES), pair
        verdicts.append(verdict)
    # Both verdicts are met: a test of one alone would pass where nothing breaks.
    assert verdicts == [False, name == "qwen"]
