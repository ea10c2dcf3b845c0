"""From records to rows: values worked out by hand, honest blanks, and intervals that hold what they
promise."""

import random
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas import DataFrame

from leaderboards.aggregate.by_context import ByContext, interval_columns
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.aggregate.summary import NO_TWIN, PlannedCells, summarise
from leaderboards.errors import LeaderboardError
from leaderboards.statistics.bootstrap import percentile_interval, resampled_means
from policies import at_ratios
from tests.support.records.synthetic_records import failed, frame, realistic_records, record
from tests.support.wording import assert_says


def cluster_interval(
    values: Any, clusters: Any, seed: int, resamples: int = 2000
) -> tuple[float, float] | None:
    means = resampled_means(values, clusters, seed, resamples)
    return None if means is None else percentile_interval(means)


def question(context: int, number: int, **changes: object) -> dict[str, object]:
    """A record of question ``number`` about context ``context`` of task ``base``, under snapkv at
    ratio 0.5."""
    task = changes.get("task", "base")
    identity = {
        "example_id": f"{task}-{context}",
        "question_id": str(number),
        "policy": "snapkv",
        "ratio": 0.5,
    }
    return record(**(identity | changes))


def two_contexts(**changes: object) -> list[dict[str, object]]:
    return [question(context, number, **changes) for context in range(2) for number in range(2)]


def find(
    rows: list[SummaryRow], task: str, policy: str = "snapkv", ratio: float = 0.5
) -> SummaryRow:
    (row,) = [row for row in rows if (row.task, row.policy, row.ratio) == (task, policy, ratio)]
    return row


def test_a_cell_holds_what_one_works_out_by_hand() -> None:
    unanswerable = {"answerable": False, "ger": None, "ger_by_layer": None, "slot_coverage": None}
    confused = {"hallucinated": True, "hallucination_kind": "confused"}
    fabricated = {"hallucinated": True, "hallucination_kind": "fabricated"}
    first = {"kv_bytes": 100, "compression_seconds": 1.0, "prefill_seconds": 2.0}
    second = {"kv_bytes": 300, "compression_seconds": 4.0, "prefill_seconds": 16.0}
    records = [
        question(0, 0, ger=0.5, ger_by_layer=[0.5, 1.0], slot_coverage=0.25, **first),
        question(0, 1, f1=50.0, em=0.0, ger=0.0, ger_by_layer=[0.0, 0.5], **first),
        question(0, 2, f1=0.0, em=0.0, **first, **confused, **unanswerable),
        question(1, 0, f1=0.0, em=0.0, **second, **fabricated, **unanswerable),
        question(1, 1, f1=100.0, abstained=True, **second, **unanswerable),
    ]
    row = find(summarise(frame(records)), "base")
    assert (row.n, row.contexts, row.reason) == (5, 2, NO_TWIN)
    assert (row.f1, row.em) == (50.0, 40.0)
    assert (row.abstention_rate, row.hallucination_rate, row.unanswered_rate) == (0.2, 0.4, 0.2)
    assert (row.confused_rate, row.fabricated_rate) == (0.2, 0.2)
    assert (row.ger, row.ger_by_layer, row.slot_coverage) == (0.25, (0.25, 0.75), 0.625)
    assert row.kv_bytes == 200
    assert row.compression_seconds == 2.5, (
        "contexts weigh the same, however many questions each has"
    )
    assert row.compression_of_prefill == 0.375, "the mean of a half and a quarter"


def test_directives_and_leakage_are_means_over_the_questions_that_have_them() -> None:
    rules = [
        question(0, 0, task="instructions", directives_obeyed=1.0),
        question(0, 1, task="instructions", directives_obeyed=0.5),
        question(1, 0, task="instructions", leakage=0.25),
        question(1, 1, task="instructions", leakage=0.75),
        question(1, 2, task="instructions", leakage=0.5),
    ]
    rows = summarise(frame([*rules, *two_contexts()]))
    row, plain, overall = find(rows, "instructions"), find(rows, "base"), find(rows, ALL_TASKS)
    assert (row.directives_obeyed, row.leakage, row.reason) == (0.75, 0.5, NO_TWIN)
    assert (plain.directives_obeyed, plain.leakage, plain.reason) == (None, None, NO_TWIN)
    assert (overall.directives_obeyed, overall.leakage) == (0.75, 0.5), (
        "of the tasks that have them"
    )


def test_a_budget_is_one_cell_though_it_is_another_ratio_for_each_context() -> None:
    records = [
        question(
            context,
            number,
            ratio=0.4 + context / 10,
            budget=budget,
            kept_tokens=float(budget + context),
        )
        for budget in (64, 128)
        for context in range(2)
        for number in range(2)
    ]
    records += two_contexts(policy="full", ratio=0.0, budget=None)
    rows = summarise(frame(records))
    assert [(row.task, row.policy, row.at.where, row.n) for row in rows if row.task == "base"] == [
        ("base", "snapkv", "budget 64", 4),
        ("base", "snapkv", "budget 128", 4),
        ("base", "full", "ratio 0", 4),
    ]
    assert [row.ratio for row in rows if row.policy == "snapkv"] == pytest.approx([0.45] * 4)
    assert [row.kept_tokens for row in rows if row.policy == "snapkv"] == pytest.approx(
        [64.5, 128.5] * 2
    )
    assert str(rows[0].at) == "64"


def test_a_failed_record_blanks_its_cell_and_the_mean_over_tasks() -> None:
    failing = {"example_id": "base-0", "question_id": "1", "policy": "snapkv", "ratio": 0.5}
    records = [
        *two_contexts(task="hops"),
        *[
            one
            for one in two_contexts()
            if (one["example_id"], one["question_id"]) != ("base-0", "1")
        ],
        failed("the scores hold NaN", **failing),
        *two_contexts(policy="tova"),
        *two_contexts(policy="tova", task="hops"),
    ]
    rows = summarise(frame(records))
    cell, overall = find(rows, "base"), find(rows, ALL_TASKS)
    assert cell.n == 3
    assert_says(cell.reason, "1 of 4 answers failed", "NaN")
    identity = {
        "task",
        "mode",
        "policy",
        "level_kind",
        "level",
        "ratio",
        "repeats",
        "n",
        "contexts",
        "fewest_contexts",
        "mean_of",
    }
    measures = (
        SummaryRow.model_fields.keys() - identity - {"complete", "reason", "best_in", "tied_in"}
    )
    assert not cell.best_in + cell.tied_in + overall.best_in + overall.tied_in
    assert not cell.complete
    assert not overall.complete
    assert find(rows, "hops").complete
    assert all(getattr(cell, name) is None for name in measures)
    assert all(getattr(overall, name) is None for name in measures)
    assert_says(overall.reason, f"hops: {NO_TWIN}", "base: 1 of 4 answers failed")
    assert find(rows, "hops").f1 == 100
    assert find(rows, ALL_TASKS, "tova").f1 == 100


def test_tasks_weigh_the_same_however_many_questions_they_have() -> None:
    hops = [
        question(context, number, task="hops", f1=40.0)
        for context in range(5)
        for number in range(4)
    ]
    overall = find(summarise(frame([*two_contexts(), *hops])), ALL_TASKS)
    assert (overall.f1, overall.n, overall.contexts) == (70.0, 24, 7)


def test_the_interval_over_tasks_resamples_each_task_on_its_own() -> None:
    records = realistic_records(policies=["snapkv"], ratios=[0.5], contexts=40)
    base = records[records["task"] == "base"]
    base = base.assign(delta_nll=base["f1"] / 100)
    rows = summarise(pd.concat([base, base.assign(task="hops")], ignore_index=True))
    # One has an interval of a share, and the other, which nothing bounds, a bootstrap.
    for low, high in (("f1_low", "f1_high"), ("delta_nll_low", "delta_nll_high")):
        widths = {row.task: getattr(row, high) - getattr(row, low) for row in rows}
        assert widths["base"] > 0
        _check_widths(widths)


def _check_widths(widths: dict[str, float]) -> None:
    # Two independent means: the variance of their average is a quarter of the sum of theirs.
    # Resampled together, two equal tasks would have as wide a mean as each.
    expected = (widths["base"] ** 2 + widths["hops"] ** 2) ** 0.5 / 2
    assert widths[ALL_TASKS] == pytest.approx(expected, rel=0.1)


def test_the_order_of_records_within_a_cell_changes_nothing() -> None:
    records = realistic_records(tasks=["base"], policies=["full", "snapkv"], ratios=[0.5])
    full, snapkv = (records[records["policy"] == policy] for policy in ("full", "snapkv"))
    shuffled = pd.concat(
        [full.sample(frac=1, random_state=1), snapkv.sample(frac=1, random_state=2)]
    )
    assert summarise(shuffled) == summarise(records)


def test_modes_are_never_mixed() -> None:
    rows = summarise(frame([*two_contexts(), *two_contexts(mode="aware", f1=0.0)]))
    assert {(row.task, row.mode): row.f1 for row in rows} == {
        ("base", "agnostic"): 100,
        ("base", "aware"): 0,
        (ALL_TASKS, "agnostic"): 100,
        (ALL_TASKS, "aware"): 0,
    }


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (
            frame([question(0, 0), question(0, 0)]),
            "question 0 of base-0 was answered twice by snapkv at ratio 0.5",
        ),
        (frame([question(0, 0, task="all")]), "a task is named 'all'"),
        (frame([question(0, 0)]).drop(columns="ger"), "the records lack the columns ger"),
    ],
)
def test_records_that_make_no_board_are_refused(records: DataFrame, message: str) -> None:
    with pytest.raises(LeaderboardError, match=message):
        summarise(records)


def clustered(seed: int, contexts: int, questions: int) -> tuple[list[float], list[str]]:
    """Values with mean 0 whose contexts differ as much as their questions."""
    generator = np.random.default_rng(seed)
    values = generator.normal(0, 1, (contexts, 1)) + generator.normal(0, 1, (contexts, questions))
    return values.ravel().tolist(), [
        f"context-{context}" for context in range(contexts) for _ in range(questions)
    ]


def slow_interval(values: list[float], clusters: list[str], resamples: int) -> tuple[float, float]:
    """The same interval with lists and loops, from another generator: of 24 contexts each resample
    draws 21."""
    generator = random.Random(5)
    members: dict[str, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(cluster, []).append(value)
    names = list(members)
    means = []
    for _ in range(resamples):
        drawn = [value for name in generator.choices(names, k=21) for value in members[name]]
        means.append(statistics.fmean(drawn))
    cuts = statistics.quantiles(means, n=40, method="inclusive")
    return cuts[0], cuts[-1]


def test_the_interval_agrees_with_a_slow_bootstrap() -> None:
    values, clusters = clustered(seed=3, contexts=25, questions=4)
    # Contexts of unequal size: the mean is over questions, not over contexts.
    values, clusters = values[:-7], clusters[:-7]
    interval = cluster_interval(values, clusters, seed=0, resamples=20_000)
    assert interval is not None
    assert interval == pytest.approx(slow_interval(values, clusters, resamples=20_000), abs=0.02)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    def covered(by_context: bool) -> float:
        hits = 0
        for seed in range(300):
            values, contexts = clustered(seed, contexts=40, questions=5)
            clusters = contexts if by_context else [str(number) for number in range(len(values))]
            interval = cluster_interval(values, clusters, seed=seed, resamples=400)
            hits += interval is not None and interval[0] <= 0 <= interval[1]
        return hits / 300

    assert 0.90 <= covered(by_context=True) <= 0.98
    assert covered(by_context=False) < 0.8, "resampling questions would promise too much"


def test_what_a_run_has_not_reached_is_blank() -> None:
    """All policies lack the same chunk and a whole task: nothing in the records tells."""
    there = frame([*two_contexts(policy="full", ratio=0.0), *two_contexts()])
    planned = PlannedCells(
        "agnostic",
        {"base": 3, "hops": 3},
        {"full": at_ratios([0.0]), "snapkv": at_ratios([0.5, 0.9])},
    )
    rows = summarise(there, planned)
    reasons = {(row.task, row.policy, row.ratio): row.reason for row in rows}
    assert "1 of 3 contexts" in str(reasons["base", "snapkv", 0.5])
    assert reasons["base", "snapkv", 0.9] == reasons["hops", "full", 0.0] == "not run yet"
    cells = [("full", 0.0), ("snapkv", 0.5), ("snapkv", 0.9)]
    assert set(reasons) == {(task, *cell) for task in ("base", "hops", ALL_TASKS) for cell in cells}
    assert all(row.f1 is None for row in rows)
    planned = PlannedCells(
        "agnostic", {"base": 3, "hops": 3}, {"full": at_ratios([0.0])}, {"base": 10.0, "hops": 5.0}
    )
    assert {row.task: row.chance for row in summarise(there, planned)} == {
        "base": 10.0,
        "hops": 5.0,
        ALL_TASKS: 7.5,
    }
    needles = replace(planned, chances={"base": 10.0})  # of which nobody guesses any
    assert {row.task: row.chance for row in summarise(there, needles)} == {
        "base": 10.0,
        "hops": None,
        ALL_TASKS: 5.0,
    }
    whole = PlannedCells(
        "agnostic", {"base": 2}, {"full": at_ratios([0.0]), "snapkv": at_ratios([0.5])}
    )
    assert summarise(there, whole) == summarise(there)


def test_a_ratio_has_no_interval_where_resamples_often_have_nothing_to_divide_by() -> None:
    values = np.array([1.0, *[0.0] * 7])
    seldom = resampled_means(
        values, list("abcdefgh"), seed=0, weights=np.array([1.0] * 4 + [0.0] * 4)
    )
    often = resampled_means(values, list("abcdefgh"), seed=0, weights=np.array([1.0] + [0.0] * 7))
    assert seldom is not None
    assert often is not None
    assert 0 < np.isnan(seldom).mean() < 0.05 < np.isnan(often).mean()
    held = {
        name: interval_columns({"perplexity": [ByContext(values, resampled=array)]})
        for name, array in (("seldom", seldom), ("often", often))
    }
    assert held["often"] == {}
    assert held["seldom"] == {"perplexity_low": 1.0, "perplexity_high": pytest.approx(np.e)}
