"""What a run beside it has already, a run borrows: the same policies, levels, contexts and draws, and nothing else."""

import json

import pandas as pd
import pytest

import kvbench.run.unit
from kvbench.store.run_file import RUN_FILE
from kvbench.store.tables import RECORDS
from tests.support.models.runs import ToyRuns, outcome, policies_of, record_calls


def test_another_run_beside_it_lends_what_is_the_same(runs: ToyRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that is added to a finished run costs itself alone; another seed, ratio or size has nothing to lend."""
    alone = outcome(runs("elsewhere/run", ("full", "knorm", "snapkv")))
    runs("runs/first", ("full", "random", "knorm"))
    calls = record_calls(monkeypatch)
    store = runs("runs/second", ("full", "knorm", "snapkv"))
    assert policies_of(calls) == [["snapkv"], ["snapkv"]]
    pd.testing.assert_frame_equal(outcome(store), alone)
    calls.clear()
    runs("runs/third", ("full", "knorm"), seed=1)
    assert policies_of(calls) == [["full", "knorm"]] * 2
    calls.clear()
    runs("runs/fourth", ("full", "knorm"), contexts=6)
    assert policies_of(calls) == [["full", "knorm"]] * 4  # and not the two contexts that are there
    calls.clear()
    runs("runs/fifth", ("full", "knorm"), contexts=7)
    assert policies_of(calls) == [["full", "knorm"]]


def test_a_larger_run_beside_it_lends_a_part_and_a_complete_run_borrows_nothing(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = outcome(runs("elsewhere/run", contexts=3, ratios=(0.5,)))
    runs("runs/larger", contexts=4, ratios=(0.5, 0.75))
    with monkeypatch.context() as idle:
        idle.setattr(kvbench.run.unit, "collect", lambda *_: pytest.fail("all of it was there"))
        small = runs("runs/small", contexts=3, ratios=(0.5,))
        pd.testing.assert_frame_equal(outcome(small), alone)
        runs("runs/small", contexts=3, ratios=(0.5,))
    pd.testing.assert_frame_equal(outcome(small), alone)


def test_of_each_policy_only_the_levels_and_contexts_that_nobody_has_are_run(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = outcome(runs("elsewhere/run", contexts=3, ratios=(0.3, 0.5)))
    runs("runs/one", contexts=1, ratios=(0.5,))
    runs("runs/other", contexts=2, ratios=(0.3,))
    calls = record_calls(monkeypatch)
    both = runs("runs/both", contexts=3, ratios=(0.3, 0.5))
    assert [(call.index, call.policies, call.levels) for call in calls] == [
        (1, ("random", "knorm"), (0.5,)),
        (2, ("full", "random", "knorm"), (0.3, 0.5)),
    ]
    pd.testing.assert_frame_equal(outcome(both), alone)


def test_what_failed_in_another_run_is_not_lent(runs: ToyRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = outcome(runs("elsewhere/whole"))
    with monkeypatch.context() as broken:
        broken.setattr("kvpress.KnormPress.score", lambda *_: 1 / 0)
        runs("runs/first")
    calls = record_calls(monkeypatch)
    second = runs("runs/second")
    assert policies_of(calls) == [["knorm"], ["knorm"]]
    pd.testing.assert_frame_equal(outcome(second), whole)


def test_a_context_that_another_run_has_in_part_is_not_lent(runs: ToyRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    first = runs("runs/first")
    whole, path = outcome(first), first.record_file("base", 0, "knorm")
    first.write_rows(RECORDS, path, first.read_rows(RECORDS, path)[1:])
    calls = record_calls(monkeypatch)
    second = runs("runs/second")
    assert policies_of(calls) == [["knorm"]]
    pd.testing.assert_frame_equal(outcome(second), whole)


def test_each_draw_of_a_random_policy_is_resumed_and_lent(runs: ToyRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second draw costs itself alone, and a run that lost its file makes both draws again."""
    alone = outcome(runs("elsewhere/run", repeats=2))
    one = runs("runs/one")
    calls = record_calls(monkeypatch)
    store = runs("runs/two", repeats=2)
    assert [(call.policies, call.repeats) for call in calls] == [(("random",), (1,))] * 2
    pd.testing.assert_frame_equal(outcome(store), alone)
    calls.clear()
    store.record_file("base", 0, "random").unlink()
    (one.folder / "run.json").unlink()
    pd.testing.assert_frame_equal(outcome(runs("runs/two", repeats=2)), alone)
    assert [(call.policies, call.repeats) for call in calls] == [(("random",), (0, 1))] * 2


def test_a_run_that_other_code_made_is_named_and_not_used(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that has nothing to lend, since its policies or its seed are others, is not named."""
    for name, policies, seed in (("old", ("full", "knorm"), 0), ("others", ("snapkv",), 0), ("seed", ("full",), 1)):
        path = runs(f"runs/{name}", policies, seed=seed).folder / RUN_FILE
        content = json.loads(path.read_text())
        content["identity"]["source"] = "another"
        path.write_text(json.dumps(content))
    capsys.readouterr()
    calls = record_calls(monkeypatch)
    new = runs("runs/new", ("full", "knorm"))
    assert policies_of(calls) == [["full", "knorm"]] * 2
    said = capsys.readouterr().err.splitlines()
    assert f"not used, since other code made it: {new.folder.parent / 'old'}" in said
    runs("runs/new", ("full", "knorm"))
    assert "not used" not in capsys.readouterr().err, "all of it is there"
