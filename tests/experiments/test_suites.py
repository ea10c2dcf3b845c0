"""Suites bring tasks, policies, levels, draws and contexts, which the options of a run replace."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from datasets_gen import DatasetError
from kvbench.experiments.build_grid import build_grid
from kvbench.experiments.catalogue import find_policy
from kvbench.store.run_file import Job, TaskOptions
from kvbench.studies.registry import SUITES
from kvbench.system.errors import KVBenchError
from leaderboards.studies.published.content import OURS
from policies import CONTROLS, Level, Policy
from policies.declaration.names import split_outside_brackets
from policies.faults.fault import EFFECT_OF_ERROR
from tests.support.tasks.samples_of_ifeval import PLAIN, written


def policies_of(job: Job) -> dict[str, Policy]:
    return {policy.name: policy for policy in build_grid(job, len).setting.policies}


@pytest.mark.parametrize("name", SUITES)
def test_every_policy_is_written_with_the_name_that_records_have(name: str) -> None:
    """Else it would not run at its own levels."""
    suite = SUITES[name]
    names = split_outside_brackets(str(suite.policies))
    assert [find_policy(policy).name for policy in names] == names
    assert set(suite.own_levels) <= set(names)
    assert set(names) - set(CONTROLS) <= set(policies_of(Job(suite=name)))


def test_policies_run_at_their_own_levels_and_the_others_at_those_of_the_suite() -> None:
    grid = build_grid(Job(suite="faults"), len)
    rates = {
        policy.name: sorted({point.level.value for point in grid.points(policy)})
        for policy in grid.setting.policies
    }
    # As in text F: tables 1 and 2.
    fresh = "unit=value,phase=every_step,persistence=transient"
    for kind in ("gaussian", "zeros", "distractor"):
        assert rates[f"{kind}({fresh})"] == [0.02, 0.05, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5]
    for band in ("Q1", "Q2", "Q3", "Q4", "H1", "H2"):
        assert rates[f"gaussian(layers={band},{fresh})"] == [0.01, 0.02, 0.04]
    assert rates["zeros"] == [0.01, 0.05, 0.1, 0.3]
    assert rates["zeros(tensor=K)"] == [0.1, 0.3]
    assert rates["bitflip"] == [1e-5, 1e-4]
    assert {
        point.repeat
        for policy in grid.setting.policies
        if policy.random
        for point in grid.points(policy)
    } == {*range(5)}
    assert [contexts for _, contexts in grid.tasks] == [SUITES["faults"].limit]


def test_options_replace_what_a_suite_brings() -> None:
    grid = build_grid(Job(suite="faults", levels={"rate": "0.4"}, repeats=2, limit=3), len)
    for policy in grid.setting.policies:
        if policy.kinds and policy.name not in CONTROLS:
            assert {point.level for point in grid.points(policy)} == {Level("rate", 0.4)}
    assert max(point.repeat for point in grid.setting.points) == 1
    assert [contexts for _, contexts in grid.tasks] == [3]
    assert (
        build_grid(Job(suite="faults", policies="zeros"), len).tasks[0][1] == SUITES["faults"].limit
    )
    assert build_grid(Job(suite="faults", profile="paper"), len).tasks[0][1] > 100


def test_errors_of_text_e_are_written_and_two_stand_beside_them_once_behind_the_prefill() -> None:
    policies = policies_of(Job(suite="errors"))
    of_text = {
        name
        for name, one in policies.items()
        if one.paper == EFFECT_OF_ERROR and one.treatment.write_treatment
    }
    assert {name.partition("(")[0] for name in of_text} == {
        *("multiplicative_uniform", "multiplicative_normal", "sign_flip", "same_sign")
    }
    resident = {
        name
        for name, one in policies.items()
        if one.paper == EFFECT_OF_ERROR and name not in of_text
    }
    assert resident == {
        "multiplicative_uniform",
        "multiplicative_normal",
        "bias(shift=0.25)",
        "bias(shift=0.5)",
    }


def row_of(number: int, kind: str, arguments: Mapping[str, object]) -> dict[str, object]:
    return {
        "key": number,
        "prompt": f"Praise tea {number}.",
        "instruction_id_list": [kind],
        "kwargs": [arguments],
    }


@pytest.mark.parametrize(("rows", "contexts"), [(10, 6), (300, 128)])
def test_the_paper_profile_of_errors_asks_as_text_e_does(
    tmp_path: Path, rows: int, contexts: int
) -> None:
    """Two rows of five count words and are left out."""
    words, commas, title = (
        "length_constraints:number_words",
        "punctuation:no_comma",
        "detectable_format:title",
    )
    kinds = (words, words, commas, title, commas)
    arguments = {words: {"relation": "at least", "num_words": 300}, commas: {}, title: {}}
    of_rows = [kinds[number % 5] for number in range(rows)]
    rows_of_kinds = (row_of(number, kind, arguments[kind]) for number, kind in enumerate(of_rows))
    data = {"ifeval": TaskOptions(data=written(tmp_path, *rows_of_kinds))}
    job = Job(suite="errors", tasks="ifeval", task_options=data, profile="paper")
    grid = build_grid(job, len)
    ((task, count),) = grid.tasks
    assert (count, task.max_new_tokens) == (contexts, 100)
    assert max(point.repeat for point in grid.setting.points) == 4
    examples = list(task.generate(0, count))
    asked = [
        directive.kind
        for one in examples
        for question in one.questions
        for directive in question.directives
    ]
    assert set(asked) == {"punctuation:no_comma", "detectable_format:title"}
    assert "Praise tea 2." in examples[0].context
    quick = build_grid(job.model_copy(update={"profile": "quick"}), len)
    assert quick.tasks[0][0].max_new_tokens == 1280
    assert quick.tasks[0][1] == min(24, rows)
    changed = build_grid(
        job.model_copy(update={"limit": 3, "max_new_tokens": 7, "repeats": 1}), len
    )
    assert changed.tasks[0][1] == 3
    assert changed.tasks[0][0].max_new_tokens == 7
    assert {point.repeat for point in changed.setting.points} == {0}


def test_rows_that_all_count_words_leave_nothing_to_ask(tmp_path: Path) -> None:
    data = {"ifeval": TaskOptions(data=written(tmp_path, PLAIN))}
    with pytest.raises(
        DatasetError, match=r"every row .* left out \(length_constraints:number_words\)"
    ):
        build_grid(Job(suite="errors", tasks="ifeval", task_options=data, profile="paper"), len)


def test_published_orders_of_either_mode_have_their_own_presses() -> None:
    aware = [
        name for name in policies_of(Job(suite="published", mode="aware")) if name not in CONTROLS
    ]
    assert aware == list(OURS["aware"].values())
    assert [*policies_of(Job(suite="published", mode="aware", policies="snapkv"))][-1] == "snapkv"


def test_what_is_observed_is_named_by_the_suite_or_by_options() -> None:
    observed = ("attention", "states", "routes", "interventions")
    assert build_grid(Job(suite="routing"), len).setting.tables == observed
    assert build_grid(Job(observe="states,attention"), len).setting.tables == (
        "states",
        "attention",
    )
    assert build_grid(Job(suite="routing", observe="states"), len).setting.tables == observed
    assert build_grid(Job(), len).setting.tables == ()
    with pytest.raises(KVBenchError, match="unknown table 'route': did you mean 'routes'"):
        build_grid(Job(observe="route"), len)
