"""A run borrows what a run beside it has whole: a chunk of contexts under the same policy at the
same levels."""

import pandas as pd
import pytest

from kvbench.store.tables import RECORDS
from tests.support.models.runs import ToyRuns, outcome, policies_of, record_calls
from tests.support.wording import assert_says


def test_another_run_beside_it_lends_what_is_the_same(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that is added to a finished run costs itself alone; another seed, ratio or size has
    nothing to lend."""
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
    assert policies_of(calls) == [["full", "knorm"]] * 6  # a chunk of five, and one of one
    calls.clear()
    runs("runs/fifth", ("full", "knorm"), contexts=7)
    # The chunk that is there is lent, the longer one is not.
    assert policies_of(calls) == [["full", "knorm"]] * 2


def test_a_run_at_other_levels_lends_nothing(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = outcome(runs("elsewhere/run", ("full", "knorm"), ratios=(0.5,)))
    runs("runs/one", ("full", "knorm"), ratios=(0.3,))
    calls = record_calls(monkeypatch)
    runs("runs/more", ("full", "knorm"), ratios=(0.5, 0.75))
    assert policies_of(calls) == [["knorm"], ["knorm"]]
    calls.clear()
    pd.testing.assert_frame_equal(
        outcome(runs("runs/fewer", ("full", "knorm"), ratios=(0.5,))), alone
    )
    assert calls == [], "a run at more levels lends those that are asked for"


def test_what_failed_in_another_run_is_not_lent(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = outcome(runs("elsewhere/whole"))
    with monkeypatch.context() as broken:
        broken.setattr("kvpress.KnormPress.score", lambda *_: 1 / 0)
        runs("runs/first")
    calls = record_calls(monkeypatch)
    second = runs("runs/second")
    assert policies_of(calls) == [["knorm"], ["knorm"]]
    pd.testing.assert_frame_equal(outcome(second), whole)


def test_what_another_run_has_in_part_is_not_lent(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = runs("runs/first")
    whole, path = outcome(first), first.path(RECORDS, "base", 0, "knorm")
    first.write_rows(RECORDS, path, first.read_rows(RECORDS, path)[1:])
    calls = record_calls(monkeypatch)
    second = runs("runs/second")
    assert policies_of(calls) == [["knorm"], ["knorm"]]
    pd.testing.assert_frame_equal(outcome(second), whole)


def test_an_edited_library_lends_nothing_and_says_so(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The version stays the same when a library is edited in place."""
    runs("runs/first")
    monkeypatch.setattr("kvbench.models.libraries.hash_contents", lambda name: f"edited {name}")
    calls = record_calls(monkeypatch)
    capsys.readouterr()
    runs("runs/second")
    assert policies_of(calls) == [["full", "random", "knorm"]] * 2
    said = " ".join(capsys.readouterr().err.split())
    assert_says(said, "runs/first lends no answers", "the code of torch")


def test_a_press_whose_method_was_replaced_lends_nothing_and_all_others_do(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs("runs/first", ("full", "knorm"))
    monkeypatch.setattr(
        "kvpress.KnormPress.score", lambda press, module, states, keys, *_: keys.norm(dim=-1)
    )
    calls = record_calls(monkeypatch)
    runs("runs/second", ("full", "knorm"))
    assert policies_of(calls) == [["knorm"], ["knorm"]]


def test_a_press_that_failed_everywhere_may_be_mended_under_its_name(
    runs: ToyRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("kvpress.KnormPress.score", lambda *_: 1 / 0)
        before = runs("runs/first", ("full", "knorm")).identity
    calls = record_calls(monkeypatch)
    store = runs("runs/first", ("full", "knorm"))
    assert policies_of(calls) == [["knorm"], ["knorm"]]
    assert store.identity.differences(before) == ["policies"]
    assert set(store.frame()["status"]) == {"ok"}
