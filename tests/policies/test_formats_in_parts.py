"""Formats of which a part is otherwise: values in another type, layers left as they are, channels
that stand out, rows that are turned first."""

from collections.abc import Sequence

import pytest
import torch
from transformers import DynamicCache

from kvbench.engine.decode.cache import PlainRows
from kvbench.experiments.catalogue import find_policy, unfit_for
from kvbench.system.errors import KVBenchError
from policies import HeadRows, Situation
from policies.declaration.shape import ModelShape
from policies.quantisation.around import FormatWithOutliers, RotatedFormat, turn
from policies.quantisation.formats import IntegerFormat

SITUATION = Situation(0.0, 80, 0, "")
TWO_BITS = IntegerFormat(2, "token", 64)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("size", [64, 96, 80, 1])
def test_rows_turned_twice_are_what_they_were_and_products_stay(size: int) -> None:
    keys, queries = drawn(2, 9, size), drawn(2, 4, size) + 3
    assert torch.allclose(turn(turn(keys)), keys, atol=1e-5)
    products = queries @ keys.transpose(1, 2)
    assert torch.allclose(turn(queries) @ turn(keys).transpose(1, 2), products, atol=1e-3)


def test_two_channels_are_turned_as_by_hand() -> None:
    assert turn(torch.tensor([[[3.0, 1.0]]])).flatten().tolist() == pytest.approx(
        [4 / 2**0.5, 2 / 2**0.5]
    )


def test_a_number_that_stands_out_is_shared_by_all_channels_once_rows_are_turned() -> None:
    """Of 8, 0.9, 0, 0 two bits keep the 8 alone: their step is 8 / 3. Turned they are 4.45, 3.55,
    4.45, 3.55, whose step is 0.3."""
    states = torch.tensor([[[8.0, 0.9, 0.0, 0.0]]])
    assert TWO_BITS.encode(states).read().flatten().tolist() == pytest.approx([8, 0, 0, 0])
    read = RotatedFormat(TWO_BITS).encode(states).read()
    assert read.flatten().tolist() == pytest.approx([8, 0.9, 0, 0], abs=1e-5)


def test_channels_that_stand_out_stay_exact_and_the_step_is_that_of_the_others() -> None:
    states = torch.tensor([[[100.3, 1.0, 2.0, 3.0], [0.7, 2.0, 1.0, 3.0]]])
    assert TWO_BITS.encode(states).read()[0, 0].tolist() == pytest.approx([100.3, 1, 1, 1])
    read = FormatWithOutliers(TWO_BITS, 1).encode(states).read()
    assert torch.allclose(read, states)  # steps of 1, from the 0 in the channel's place


def quantised(name: str, layers: int = 3) -> tuple[PlainRows, Sequence[torch.Tensor]]:
    """Quantises a cache of 80 rows in two heads of 32 channels; returns it with its keys before."""
    cache = DynamicCache()
    before = []
    for layer in range(layers):
        states = drawn(1, 2, 80, 32) + layer
        cache.update(states.clone(), states.clone(), layer)
        before.append(states)
    build = find_policy(name).treatment.step_treatment
    assert build
    rows = PlainRows(cache)
    build([SITUATION], [""]).after_prefill(rows)
    return rows, before


def test_layers_that_are_not_named_are_left_as_they_are() -> None:
    rows, before = quantised("q4_0(layers=[0,2-])")
    is_exact = []
    for layer, states in enumerate(before):
        of_layer = (rows.keys(layer), rows.values(layer))
        is_exact.append(all(torch.equal(stored, states) for stored in of_layer))
    assert is_exact == [False, True, False]


def test_values_in_another_type_are_as_in_that_type_alone() -> None:
    both, _ = quantised("q8_0(values=int2)", 1)
    keys, _ = quantised("q8_0(tensor=K)", 1)
    values, _ = quantised("int2(tensor=V)", 1)
    assert torch.equal(both.keys(0), keys.keys(0))
    assert torch.equal(both.values(0), values.values(0))


def stored(name: str, layer: int = 0) -> int:
    count = find_policy(name).treatment.stored_bytes
    assert count
    return count(SITUATION, HeadRows(rows=80, size=32, number_bytes=2, layer=layer, layers=4))


def test_bytes_of_parts_are_those_counted_by_hand() -> None:
    exact, eight, four = 80 * 32 * 2, 80 * 34, 80 * 18
    assert stored("q8_0(values=q4_0)") == eight + four
    assert stored("q4_0(tensor=K)") == four + exact
    assert stored("q4_0(layers=2-)", layer=1) == 2 * exact
    assert stored("q4_0(layers=2-)", layer=3) == 2 * four
    assert stored("q4_0(rotate=hadamard)") == 2 * four
    assert stored("q4_0(outliers=3)") == 2 * (four + 3 * (80 * 2 + 2))


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("q8_0/q4_0", "q8_0(values=q4_0)"),
        ("q4_0/q4_0", "q4_0"),
        ("f16/q4_0", "q4_0(tensor=V)"),
        ("int4/bf16", "int4(tensor=K)"),
        ("hadamard+q4_0(layers=2-)", "q4_0(layers=2-,rotate=hadamard)"),
        ("snapkv+hadamard+q8_0/q4_0", "snapkv+q8_0(values=q4_0,rotate=hadamard)"),
    ],
)
def test_what_engines_write_has_one_name_in_a_run(written: str, name: str) -> None:
    assert find_policy(written).name == name
    assert find_policy(name).name == name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hadamard", "put a quantisation behind hadamard"),
        ("hadamard+snapkv", "hadamard comes right before a quantisation"),
        ("f16/f16", "nothing is quantised: that is the policy full"),
        ("q8_0(values=q9)", r"q8_0\(values=q9\): give one of int8, "),
        ("q8_0(values=mantissa)", "give one of int8, "),
        ("q4_0(layers=first)", "layers=first: give indices as 0"),
        ("int4(like=transformers,layers=2-)", "like=transformers goes with"),
    ],
)
def test_parts_that_mean_nothing_are_answered_in_one_line(name: str, said: str) -> None:
    with pytest.raises(KVBenchError, match=said) as caught:
        find_policy(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("q4_0(layers=5-)", "the model has 4 layers, 0 to 3"),
        ("q4_0(outliers=64)", "a head has 64 channels"),
    ],
)
def test_parts_that_a_model_has_not_are_refused(name: str, said: str) -> None:
    (reason,) = unfit_for([find_policy(name)], ModelShape(4, 2, 64, "float32")).values()
    assert said in reason
