"""Bytes are those of a cache as it is kept in use, whatever type of numbers a model computes in."""

import pytest

from datasets_gen import TASKS
from kvbench.experiments.catalogue import find_policy
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.models.load import load_model
from policies import HeadRows, Level, Situation, at_ratios

TASK = TASKS["base"]
# Of 16 bits: codes of 8 bits, and those with a scale of 16 bits for each 32.
SHARES = {"full": 1.0, "fp8_e4m3": 8 / 16, "q8_0": 8.5 / 16}


def test_bits_that_are_cut_off_count_from_16_on() -> None:
    count = find_policy("mantissa").treatment.stored_bytes
    assert count is not None
    shares = {}
    for bits in (7, 16, 20):
        situation = Situation(0.0, 80, 0, "", level=Level("bits", bits))
        shares[bits] = count(situation, HeadRows(80, 32, number_bytes=4)) / (2 * 2 * 80 * 32)
    # float32 has 32 bits, of which so many are cut off.
    assert shares == {7: 1.0, 16: 1.0, 20: 12 / 16}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_format_holds_its_share_of_a_cache_in_16_bits(dtype: str) -> None:
    model = load_model("reference", "cpu", dtype)
    names = (*SHARES, "streaming_llm")
    grid = Grid([(TASK, 1)], [find_policy(name) for name in names], at_ratios((0.5,)))
    rows = collect(model, TASK, [TASK.example(0, 0)], grid)
    held = {record.policy: record.kv_bytes for record in rows.records}
    config = model.network.config
    heads, size = config.num_key_value_heads, config.head_dim
    (tokens,) = {question.context_tokens for question in rows.questions}
    full = 2 * 2 * config.num_hidden_layers * heads * size * tokens
    for name, share in SHARES.items():
        assert held[name] == share * full
    assert held["streaming_llm"] == pytest.approx(full / 2, rel=0.01)
