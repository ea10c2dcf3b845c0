"""An argument of another kind is one line that names it, as a wrong option of a command is."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kvpress import KnormPress, ScorerPress

import kvbench
from datasets_gen import DatasetError
from kvbench.api.arguments import hand_in
from kvbench.api.checked import checked
from policies import POLICIES

run: Any = kvbench.run
plan: Any = kvbench.plan
load: Any = kvbench.load
task: Any = kvbench.task
scorer: Any = kvbench.scorer


def knorm(compression_ratio: float) -> ScorerPress:
    return KnormPress(compression_ratio)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: run(limit=2.5), "limit is a whole number, not 2.5"),
        (lambda: run(limit=True), "limit is a whole number, not True"),
        (lambda: run(seed="abc"), "seed is a whole number, not 'abc'"),
        (lambda: run(tolerance="5%"), "tolerance is a number, not '5%'"),
        (lambda: run(name=3), "name is a text, not 3"),
        (lambda: run(context_tokens=2.5), "context_tokens is a whole number or a text, not 2.5"),
        (lambda: run(tasks=7), "tasks are names, files, .* not a int"),
        (lambda: run(tasks={"context": "a"}), "tasks are names, files, .* not a dict"),
        (lambda: run(policies=[knorm]), "kvbench has a policy knorm itself: rename yours"),
        (lambda: plan(machine=5), "machine is a text, not 5"),
        (load, "load takes the folders of one or more runs"),
        (lambda: load(["a", "b"]), r"runs is a text or a path, not \['a', 'b'\]"),
        (lambda: task(chance=200), "chance is a percentage from 0 to 100, not 200"),
        (lambda: task(contexts=0), "contexts, questions and max_new_tokens are 1 or more, not 0"),
        (lambda: task(scorers=[len]), r"scorers are what kvbench.scorer\(\) makes"),
        (lambda: task(len), r"write @kvbench.task\(\), with brackets"),
        (lambda: scorer(len), r"write @kvbench.scorer\(\), with brackets"),
        (lambda: scorer(low="0"), "low is a number, not '0'"),
    ],
)
def test_an_argument_of_another_kind_is_one_line(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(kvbench.KVBenchError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_numbers_of_numpy_and_whole_numbers_where_others_may_stand_are_taken() -> None:
    def take(count: int = 0, share: float = 0.0, **level: float) -> tuple[Any, ...]:
        return count, share, level

    taken: Any = checked(take)
    assert taken(np.int64(3), 1, ratio=np.float32(0.5)) == (3, 1, {"ratio": 0.5})
    with pytest.raises(kvbench.KVBenchError, match="budget is a number, not 'x'"):
        taken(budget="x")


def test_a_registered_policy_may_be_handed_in_as_it_is() -> None:
    texts, _ = hand_in({"policies": [POLICIES["knorm"]]}, frozenset())
    assert texts["policies"] == "knorm"


def test_a_function_of_a_task_that_raises_is_named() -> None:
    @kvbench.task()
    def broken(rng: random.Random) -> dict[str, Any]:
        nothing: dict[str, Any] = {}
        return {"context": nothing["name"]}

    with pytest.raises(DatasetError, match="function of the task broken raised KeyError: 'name'"):
        broken.example(0, 0)
