"""What makes another run is named with both values, and what changes no answer makes none."""

from collections.abc import Callable
from typing import Any

import pytest

from kvbench.experiments.grid import Grid, device_name
from kvbench.models.load import LoadedModel
from kvbench.store.run_file import Identity
from tests.support.models.runs import grid


@pytest.fixture(scope="module")
def identity(llama: LoadedModel) -> Identity:
    return grid(("full", "knorm", "snapkv"), tasks=("base", "hops")).identity(llama)


def with_task(identity: Identity, **changes: Any) -> Identity:
    first, *others = identity.tasks
    return identity.model_copy(update={"tasks": (first.model_copy(update=changes), *others)})


def with_policy(identity: Identity, **changes: Any) -> Identity:
    *others, last = identity.policies
    return identity.model_copy(update={"policies": (*others, last.model_copy(update=changes))})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one.model_copy(update={"seed": 7}), "its seed is 0, this one's 7"),
        (
            lambda one: with_task(one, contexts=5),
            "the contexts (--limit) of the task base are 2, this one's 5",
        ),
        (
            lambda one: with_task(one, chance=20.0),
            "the chance of the task base is 16.2, this one's 20.0",
        ),
        (
            lambda one: one.model_copy(update={"tasks": one.tasks[:1]}),
            "its tasks differ: it has hops, this one has not",
        ),
        (
            lambda one: one.model_copy(update={"policies": one.policies[1:]}),
            "its policies differ: it has full, this one has not",
        ),
        (
            lambda one: with_policy(one, levels={"ratio": (0.9,)}),
            'of the policy snapkv are {"ratio": [0.5]}, this one\'s {"ratio": [0.9]}',
        ),
        (
            lambda one: one.model_copy(update={"contents": {**one.contents, "kvpress": "edited"}}),
            'the code of kvpress was another one ("',
        ),
        (
            lambda one: one.model_copy(
                update={"contents": {**one.contents, "torch.nn.functional.silu": "x"}}
            ),
            "torch.nn.functional.silu was replaced by other code in this one alone",
        ),
        (
            lambda one: one.model_copy(update={"switches": {**one.switches, "MKL_CBWR": "AVX2"}}),
            'its MKL_CBWR is none, this one\'s "AVX2"',
        ),
        (
            lambda one: one.model_copy(update={"date": "2026-11-28"}),
            'its date (--date) is "", this one\'s "2026-11-28"',
        ),
    ],
)
def test_a_difference_is_named_with_both_values(
    identity: Identity, change: Callable[[Identity], Identity], said: str
) -> None:
    other = change(identity)
    assert other.differences(identity)
    assert said in other.described_against(identity)


def test_of_long_texts_the_part_that_differs_is_shown(identity: Identity) -> None:
    prompt = identity.tasks[0].prompt
    other = with_task(identity, prompt=f"{prompt[:200]}ANOTHER{prompt[200:]}")
    said = other.described_against(identity)
    assert "the prompt of the task base is" in said
    assert "ANOTHER" in said
    assert len(said) < 300


def test_a_run_of_before_says_why_it_is_not_gone_on_with(identity: Identity) -> None:
    before = identity.model_copy(update={"contents": {}})
    assert "before runs stored" in identity.described_against(before)


@pytest.mark.parametrize(
    "change",
    [
        {"kvbench_version": "9.9"},
        {"git_revision": "0000", "git_dirty": None},
        {"model": "./another/name/of/it"},
    ],
)
def test_what_changes_no_answer_makes_no_other_run(
    identity: Identity, change: dict[str, Any]
) -> None:
    other = identity.model_copy(update=change)
    assert other.differences(identity) == []
    assert other.short_hash() == identity.short_hash()


def test_nor_does_an_order(llama: LoadedModel, identity: Identity) -> None:
    turned: Grid = grid(("snapkv", "knorm", "full"), tasks=("hops", "base"))
    assert turned.identity(llama).differences(identity) == []
    assert turned.identity(llama).short_hash() == identity.short_hash()
    tables = [identity.model_copy(update={"tables": names}) for names in (("a", "b"), ("b", "a"))]
    assert tables[0].differences(tables[1]) == []


def test_the_memory_of_a_card_makes_no_other_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = iter(["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"])
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: next(cards))
    device: Any = type("Device", (), {"type": "cuda"})()
    names = [device_name(device) for _ in range(3)]
    assert names == [
        "cuda (NVIDIA A100-SXM4)",
        "cuda (NVIDIA A100-SXM4)",
        "cuda (NVIDIA H100 HBM3)",
    ]
