"""A run on a model with random weights and a vocabulary of 131,072 tokens: it ends, and memory stays small."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kvbench.store.store import Store
from tests.support.models.tekken import tekken

GIGABYTES = 2.0  # of the whole process: 1.5 were measured, where logits of all read tokens alone would take 3 more


@pytest.fixture(scope="module")
def tekken_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of 17 million random weights, most of them embeddings."""
    folder = tmp_path_factory.mktemp("tekken")
    tokenizer = tekken()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        head_dim=32,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


# Prints the most bytes of the process that were in memory at once.
MEASURED = """
import sys
from pathlib import Path
from kvbench.cli.program import main
status = main(sys.argv[1:])
line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
print(int(line.split()[1]) * 1024)
sys.exit(status)
"""


@pytest.mark.slow
def test_a_run_ends_in_bounded_memory_and_random_weights_choose_among_all_tokens(
    tekken_model: Path, tmp_path: Path
) -> None:
    arguments = f"--model {tekken_model} --out {tmp_path / 'runs'} --site {tmp_path / 'site'} --name x"
    arguments += " --tasks base,instructions --limit 2 --ratios 0.5 --policies full,snapkv"
    words = [sys.executable, "-c", MEASURED, "run", *arguments.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(done.stdout.splitlines()[-1]) / 1e9 < GIGABYTES
    records = Store.open(tmp_path / "runs" / "x").frame(["policy", "gold_nll"])
    for _, likelihoods in records.groupby("policy")["gold_nll"]:
        assert likelihoods.mean() == pytest.approx(math.log(len(tekken())), abs=0.2)
