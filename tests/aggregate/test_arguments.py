"""The arguments that presses ran with, and what is called adapted."""

import inspect
import json
from typing import Any

import kvpress
import pandas as pd
import pytest

from leaderboards.aggregate.arguments import Arguments, argument_rows, arguments_of_records
from policies import POLICIES, Policy, list_arguments
from tests.support.records.synthetic_records import record

SHORT, LONG = 150, 2**20


def ran(policy: str, *arguments: dict[str, Any], task: str = "base") -> pd.DataFrame:
    return pd.DataFrame(
        [record(policy=policy, task=task, press_arguments=json.dumps(own)) for own in arguments]
    )


def adapted_arguments(records: pd.DataFrame, policy: str, task: str) -> Arguments | None:
    """Returns what a policy ran with on a task, where that is not what its paper has; else None."""
    used = arguments_of_records(records).get((policy, task))
    return used if used is not None and used.is_adapted else None


def test_a_smaller_window_is_adapted_and_under_half_of_it_is_not_ranked() -> None:
    arguments = [{"window_size": window, "kernel_size": 5} for window in (2, 11)]
    found = adapted_arguments(ran("snapkv", *arguments), "snapkv", "base")
    assert found is not None
    assert found.narrow
    assert found.text == "window_size 2 to 11 (paper: 64), kernel_size 5"
    half = adapted_arguments(
        ran("snapkv", {"window_size": 9}, {"window_size": 32}), "snapkv", "base"
    )
    assert half is not None
    assert not half.narrow
    assert (
        adapted_arguments(ran("snapkv", {"window_size": 64, "kernel_size": 5}), "snapkv", "base")
        is None
    )


def test_every_task_has_its_own_and_tasks_with_the_same_are_told_together() -> None:
    frame = pd.concat(
        [
            ran("snapkv", {"window_size": 9}),
            ran("snapkv", {"window_size": 9}, task="hops"),
            ran("snapkv", {"window_size": 64}, task="long_context"),
            ran("knorm", {}),
        ]
    )
    found = arguments_of_records(frame)
    assert found["knorm", "base"].used == {}
    assert argument_rows([one for one in found.values() if one.used]) == [
        (
            "snapkv",
            "window_size 9 (paper: 64); adapted; window under half of the paper's",
            "base, hops",
        ),
        ("snapkv", "window_size 64", "long_context"),
    ]


# Those that follow what is asked for, and not what a context is too short for.
ASKED = {"target_size", "decoding_press.target_size", "head_compression_ratio"}
VARYING = [
    policy for policy in POLICIES.values() if not (policy.needs.weights or policy.needs.question)
]


@pytest.mark.parametrize("policy", VARYING, ids=lambda policy: policy.name)
def test_every_argument_that_a_short_context_changes_has_a_value_of_the_paper(
    policy: Policy,
) -> None:
    short, long = (
        list_arguments(policy.build(policy.typical_situation(length))) for length in (SHORT, LONG)
    )
    changed = {name for name in short if short[name] != long.get(name)} - ASKED
    ends = {name.rpartition(".")[2] for name in changed}
    named = {name for name in changed | ends if name in policy.paper_arguments}
    assert {
        name for name in changed if name not in named and name.rpartition(".")[2] not in named
    } == set()


@pytest.mark.parametrize(
    ("policy", "press"),
    [
        ("snapkv", kvpress.SnapKVPress),
        ("pyramidkv", kvpress.PyramidKVPress),
        ("lagkv", kvpress.LagKVPress),
        ("think", kvpress.ThinKPress),
        ("simlayerkv", kvpress.SimLayerKVPress),
        ("chunk_knorm", kvpress.ChunkPress),
        ("block_keydiff", kvpress.BlockPress),
        ("dms_knorm", kvpress.DMSPress),
        ("kvzap", kvpress.DMSPress),
    ],
)
def test_the_values_of_papers_are_kvpresss_defaults(policy: str, press: type) -> None:
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(press).parameters.items()
    }
    declared = POLICIES[policy].paper_arguments
    assert declared
    assert {name: defaults[name] for name in declared} == declared
