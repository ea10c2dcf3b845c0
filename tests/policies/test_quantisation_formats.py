"""Codes of a quantisation: how many there are, how far values move, which rows are quantised, and
what they take."""

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.experiments.catalogue import find_policy, unfit_for
from kvbench.system.errors import KVBenchError
from policies import HeadRows, Level, Situation
from policies.composition import built_in
from policies.declaration.shape import ModelShape
from policies.quantisation.formats import FloatFormat, IntegerFormat, in_groups
from policies.quantisation.registry import QUANTISATION_KINDS
from policies.treatments.options import options_in

ROUNDING = 1e-5  # of float32


@st.composite
def draw_rows(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.integers(1, 3)), draw(st.integers(1, 40)), draw(st.integers(1, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([1e-3, 1.0, 300.0]))
    return torch.randn(shape, generator=generator) * spread + draw(st.sampled_from([0.0, 5.0]))


@given(
    draw_rows(),
    st.integers(2, 8),
    st.sampled_from(["channel", "token"]),
    st.sampled_from([1, 5, 16, 64]),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_a_group_has_no_more_codes_than_its_bits_and_no_value_moves_by_more_than_half_a_step(
    states: torch.Tensor, bits: int, axis: Literal["channel", "token"], group: int, symmetric: bool
) -> None:
    codes = IntegerFormat(bits, axis, group, "symmetric" if symmetric else "asymmetric").encode(
        states
    )
    read = codes.read()
    assert read.shape == states.shape
    assert codes.numbers.min() >= 0
    assert codes.numbers.max() < 2**bits
    turn = (lambda one: one.transpose(1, 2)) if axis == "channel" else (lambda one: one)
    before, after = (in_groups(turn(one), group) for one in (states, read))
    lowest, highest = before.amin(-1, keepdim=True), before.amax(-1, keepdim=True)
    whole = 2 * torch.maximum(-lowest, highest) if symmetric else highest - lowest
    step = whole / (2**bits - 2 if symmetric else 2**bits - 1)
    assert (
        (after - before).abs() <= step / 2 + ROUNDING * before.abs().amax(-1, keepdim=True)
    ).all()
    for one in after.flatten(0, -2):
        assert len(one.unique()) <= 2**bits


def test_values_of_one_group_are_those_counted_by_hand() -> None:
    states = torch.tensor([[[0.0, 1.0, 2.2, 6.0]]])
    assert IntegerFormat(2, "token", 64).encode(states).read().tolist() == [[[0.0, 0.0, 2.0, 6.0]]]
    assert IntegerFormat(2, "token", 2).encode(states).read().flatten().tolist() == pytest.approx(
        [0, 1, 2.2, 6.0]
    )
    assert IntegerFormat(2, "token", 64, "symmetric").encode(-states).read().tolist() == [
        [[0.0, 0.0, 0.0, -6.0]]
    ]
    assert IntegerFormat(2, "channel", 64).encode(
        states.transpose(1, 2)
    ).read().flatten().tolist() == [0, 0, 2, 6]


def test_fp8_is_a_cast_that_saturates_and_a_scale_reaches_the_largest_number() -> None:
    states = torch.tensor([[[0.1, -3.0, 500.0, 1e6]]])
    read = FloatFormat("float8_e4m3fn", None).encode(states).read()
    assert read.flatten().tolist() == pytest.approx([0.1015625, -3.0, 448.0, 448.0])
    assert FloatFormat("float8_e5m2", None).encode(states).read().flatten().tolist()[3] == 57344
    scaled = FloatFormat("float8_e4m3fn", 2).encode(states).read()
    assert torch.allclose(scaled, states, rtol=2**-4, atol=0.01)


# --- bytes


def count_stored_bytes(
    name: str, head: HeadRows, ratio: float = 0.0, level: Level | None = None
) -> int:
    policy = find_policy(name)
    assert policy.treatment.stored_bytes
    situation = Situation(ratio, 80, 0, "", level=level or Level("ratio", ratio))
    return policy.treatment.stored_bytes(situation, head)


def test_bytes_are_those_counted_by_hand() -> None:
    head = HeadRows(rows=80, size=32, number_bytes=2)
    window_of_keys, window_of_values = 0, 10  # an eighth of 80; 80 keys are eight full windows
    # Codes; 32 channels by 2 groups of 64 tokens, each with scale and zero.
    keys = 80 * 32 // 2 + 32 * 2 * (2 + 2)
    values = 70 * 32 // 2 + 70 * (2 + 2)  # codes; a group of all 32 channels for each token
    exact = (window_of_keys + window_of_values) * 32 * 2
    assert count_stored_bytes("int4", head) == keys + values + exact
    assert (
        count_stored_bytes("int4(scheme=symmetric)", head)
        == keys - 32 * 2 * 2 + values - 70 * 2 + exact
    )
    assert count_stored_bytes("int4(tensor=V)", head) == 80 * 32 * 2 + values + 10 * 32 * 2
    assert count_stored_bytes("int4(v_bits=2)", head) == keys + values - 70 * 32 // 4 + exact
    assert (
        count_stored_bytes("snapkv+int4", head)
        == count_stored_bytes("snapkv+int4+zeros(rate=0.1)", head)
        == count_stored_bytes("int4", head)
    )
    assert count_stored_bytes("int4(residual=80)", head) == 80 * 32 // 2 + 32 * 2 * 4 + 80 * 32 * 2
    assert count_stored_bytes("int4(like=transformers,k_axis=token)", head) == 2 * (
        80 * 32 // 2
    ) + 2 * (40 * 4)
    assert count_stored_bytes("fp8_e4m3", head) == 2 * 80 * 32
    assert count_stored_bytes("fp8_e4m3(scale=group,group=16)", head) == 2 * 80 * (32 + 2 * 2)
    assert count_stored_bytes("mantissa", head, level=Level("bits", 4.0)) == 2 * 80 * 32 * 12 // 8


# --- names


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("int4(kbits=2)", "int4 has no option kbits: did you mean k_bits?"),
        ("int4(k_bits=1)", "k_bits=1: Input should be greater than or equal to 2"),
        ("int5", "unknown policy 'int5': did you mean 'int"),
        (
            "int4(like=transformers,scheme=symmetric)",
            "like=transformers goes with scheme=asymmetric",
        ),
        (
            "snapkv+zeroes(rate=1)",
            "unknown protection, deployment, quantisation or fault 'zeroes': did you mean 'zeros'",
        ),
        ("snapkv+zeros", r"say at which rate, as in snapkv\+zeros\(rate=0.05\)"),
        ("decoding_knorm+int4", "decoding_knorm decodes alone, and int4 acts more than once"),
        ("mantissa(bits=24)", "bits=24: Input should be less than or equal to 23"),
    ],
)
def test_a_name_that_means_nothing_is_answered_in_one_line(name: str, said: str) -> None:
    with pytest.raises(KVBenchError, match=said) as caught:
        find_policy(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "size", "advice"),
    [
        ("int4(group=48)", 64, "group=32 or group=64"),
        ("int4(group=3,tensor=V)", 4, "group=2 or group=4"),
        ("fp8_e4m3(scale=group,group=20)", 32, "group=16 or group=32"),
    ],
)
def test_groups_of_channels_that_do_not_divide_a_head_are_refused_in_one_line(
    name: str, size: int, advice: str
) -> None:
    policy = find_policy(name)
    (reason,) = unfit_for([policy], ModelShape(2, 2, size, "float32")).values()
    assert reason.startswith(f"{policy.name}: groups of ")
    assert reason.endswith(f" do not divide the {size} channels of a head: say {advice}")


def test_one_chain_has_one_name_and_is_found_again_by_it() -> None:
    for name in (
        "snapkv+int4(v_bits=2)+zeros(rate=0.01)",
        "h2o+fair+int8",
        "int2+gaussian(rate=0.5)",
        "fp8_e5m2",
    ):
        policy = find_policy(name)
        again = built_in(policy.name)
        assert again
        assert (again.name, again.kinds, again.treatment.arguments) == (
            policy.name,
            policy.kinds,
            policy.treatment.arguments,
        )
    assert find_policy("snapkv+int4( v_bits = 2, group=64)").name == "snapkv+int4(v_bits=2)"
    composed = find_policy("zeros(rate=0.1)+int2")
    assert composed.treatment.arguments["int2.tensor"] == "both"
    assert built_in("file.py:Press") is None


# The names of llama.cpp, whose reference code (ggml-quants.c, quantize_row_*_ref) is written here
# again for one block.


def _block(name: str, block: list[float]) -> list[float]:
    """What is read of a block of 32 numbers after llama.cpp stored it in a type."""
    bits = int(name[1])
    steps = 2**bits - 1
    if name == "q8_0":
        scale = max(map(abs, block)) / 127
        return [round(one / scale) * scale for one in block]
    if name.endswith("_1"):
        scale = (max(block) - min(block)) / steps
        return [
            min(steps, int((one - min(block)) / scale + 0.5)) * scale + min(block) for one in block
        ]
    half = 2 ** (bits - 1)
    scale = max(block, key=abs) / -half
    return [(min(steps, int(one / scale + half + 0.5)) - half) * scale for one in block]


# Bytes of 32 numbers with a scale in float16.
BLOCKS = {"q8_0": 34, "q4_0": 18, "q4_1": 20, "q5_0": 22, "q5_1": 24}


@pytest.mark.parametrize("name", BLOCKS)
def test_the_types_of_llama_cpp_are_read_as_its_own_code_reads_them(name: str) -> None:
    kind = QUANTISATION_KINDS[name]
    options = options_in(name, kind)
    assert kind.residual(options, Situation(0.0, 300, 0, "a")) == 0
    stored = kind.formats(options, Situation(0.0, 300, 0, "a"))
    states = torch.randn((2, 5, 64), generator=torch.Generator().manual_seed(3))
    for tensor in ("keys", "values"):
        read = stored[tensor].encode(states).read()
        for block, found in zip(
            states.view(-1, 32).tolist(), read.view(-1, 32).tolist(), strict=True
        ):
            assert found == pytest.approx(_block(name, block), abs=1e-5)
        assert (
            stored[tensor].bytes(HeadRows(rows=5, size=64, number_bytes=2)) == 5 * 2 * BLOCKS[name]
        )


@pytest.mark.parametrize(
    "name", ["q8_0(tensor=K)+q4_0(tensor=V)", "int4+zeros(rate=0.1)+int8", "snapkv+int8+int4"]
)
def test_a_row_is_stored_in_one_format(name: str) -> None:
    """The bytes of the last would stand for all, and two types have a name of their own."""
    with pytest.raises(KVBenchError, match="q8_0/q4_0"):
        find_policy(name)
