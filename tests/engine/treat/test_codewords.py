"""Flips in the codewords of quantised rows: what is read of them, how many there are, and what is
refused."""

from typing import Any

import pytest
import torch
from scipy.stats import binomtest

from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt
from kvbench.system.errors import KVBenchError
from policies.quantisation.formats import in_groups
from tests.support.models.plain import OneAnswer, plain_rows
from tests.support.models.toy import treat


def rows_behind(
    llama: LoadedModel, prompt: Prompt, name: str, steps: int = 0
) -> list[dict[str, torch.Tensor]]:
    """What is read of the context, by layer, behind a treatment of a plain cache."""
    (branch,) = (trace := treat(llama, [find_policy(name)], (0.5,), prompt)).branches
    rows = plain_rows(trace, branch)
    build: Any = branch.treatment.policy.treatment.step_treatment
    treatment, cache = build([branch.treatment.situation], [""]), OneAnswer(rows)
    treatment.after_prefill(cache)
    for step in range(steps):
        treatment.after_step(cache, step)
    return [
        {"keys": rows.keys(layer), "values": rows.values(layer)} for layer in range(rows.layers)
    ]


def codes_by_hand(
    states: torch.Tensor, bits: int, group: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes, scales and zero points of groups along the last dimension."""
    grouped = in_groups(states, group)
    lowest, highest = grouped.amin(-1, keepdim=True), grouped.amax(-1, keepdim=True)
    scale = (highest - lowest) / (2**bits - 1)
    return ((grouped - lowest) / scale).round().int(), scale, lowest


@pytest.mark.parametrize("steps", [0, 3])
def test_a_flip_of_the_lowest_bit_is_one_step_of_the_group_and_stays(
    llama: LoadedModel, prompt: Prompt, steps: int
) -> None:
    """Computed from the exact rows, with xor and the arithmetic of a uniform quantiser alone."""
    name = "int4(residual=0,group=16)+bitflip(on=codeword,bits=[0],rate=1)"
    trace = treat(llama, [find_policy(name)], (), prompt)
    for layer, states in enumerate(rows_behind(llama, prompt, name, steps)):
        for tensor, exact in (("keys", trace.keys[layer]), ("values", trace.values[layer])):
            # Keys have groups of tokens.
            turned = exact.transpose(1, 2) if tensor == "keys" else exact
            codes, scale, lowest = codes_by_hand(turned, 4, 16)
            expected = (lowest + scale * (codes ^ 1)).flatten(-2)[..., : turned.shape[-1]]
            expected = expected.transpose(1, 2) if tensor == "keys" else expected
            torch.testing.assert_close(states[tensor], expected, rtol=1e-5, atol=1e-6)


def test_as_many_bits_flip_as_asked_within_binomial_error(
    llama: LoadedModel, prompt: Prompt
) -> None:
    for rate in (0.01, 0.2):
        name = f"int4(residual=0,group=16)+bitflip(on=codeword,rate={rate})"
        trace, flipped, bits = treat(llama, [find_policy(name)], (), prompt), 0, 0
        for layer, states in enumerate(rows_behind(llama, prompt, name)):
            before, scale, lowest = codes_by_hand(trace.values[layer], 4, 16)
            after = ((in_groups(states["values"], 16) - lowest) / scale).round().int()
            assert after.min() >= 0
            assert after.max() <= 15
            flipped += sum(int(((after ^ before) >> bit & 1).sum()) for bit in range(4))
            bits += 4 * before.numel()
        assert binomtest(flipped, bits, rate).pvalue > 1e-4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "bitflip(on=codeword)",
            r"stores no codewords: put a quantisation before it, as int4\+bitflip\(on=codeword\)",
        ),
        (
            "int4+bitflip(on=codeword,rate=0.1)+zeros(rate=0.1)",
            r"a fault of codewords comes last, and zeros",
        ),
        ("int4+bitflip(on=codeword,rate=0.1,phase=prefill_write)", "so not phase=prefill_write"),
        ("int4+bitflip(on=codeword,rate=0.1,phase=write)", "so not phase=write"),
        ("int4+bitflip(on=codeword,rate=0.1,bits=exponent)", "codewords have no exponent"),
        ("int4+bitflip(on=codeword,rate=0.1,bits=4)", "bits=4: a codeword has 4 bits, 0 to 3"),
        ("int4(tensor=K)+bitflip(on=codeword,rate=0.1)", "values are not quantised: say tensor=K"),
        ("zeros(on=codeword)", "zeros has no option on"),
        ("int4+bitflip(on=codewords,rate=0.1)", "on=codewords: "),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(KVBenchError, match=message) as refused:
        find_policy(name)
    assert "\n" not in str(refused.value)
