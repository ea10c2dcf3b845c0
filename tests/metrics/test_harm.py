"""Wrong of answered, new wrong and lost: against hand-computed cases, and on records where the
truth is known."""

from typing import Any

import numpy as np
import pytest

from leaderboards.aggregate.row import SummaryRow
from leaderboards.aggregate.summary import summarise
from leaderboards.statistics.intervals import mean_interval
from tests.support.records.synthetic_records import frame, record

HARM = ("wrong_of_answered", "new_wrong", "lost")
SCORES: dict[str, dict[str, Any]] = {
    "right": {
        "f1": 100.0,
        "right": True,
        "answered": True,
        "abstained": False,
        "hallucinated": False,
    },
    "contained": {
        "f1": 40.0,
        "right": True,
        "answered": True,
        "abstained": False,
        "hallucinated": False,
    },
    "wrong": {
        "f1": 0.0,
        "right": False,
        "answered": True,
        "abstained": False,
        "hallucinated": True,
    },
    "silent": {
        "f1": 0.0,
        "right": False,
        "answered": False,
        "abstained": True,
        "hallucinated": False,
    },
    "empty": {
        "f1": 0.0,
        "right": False,
        "answered": False,
        "abstained": False,
        "hallucinated": False,
    },
    # From an unanswerable question.
    "rightly silent": {
        "f1": 100.0,
        "right": True,
        "answered": False,
        "abstained": True,
        "hallucinated": False,
    },
}


def harm_records(
    policy: str, kinds: list[str], a_context: int = 2, **more: Any
) -> list[dict[str, Any]]:
    return [
        record(
            policy=policy,
            ratio=0.0 if policy == "full" else 0.5,
            example_id=f"base-{number // a_context}",
            question_id=str(number),
            answerable=kind != "rightly silent",
            **SCORES[kind],
            **more,
        )
        for number, kind in enumerate(kinds)
    ]


def row_of(policy: str, *records: list[dict[str, Any]]) -> SummaryRow:
    rows = summarise(frame([one for own in records for one in own]))
    return next(row for row in rows if row.policy == policy and row.task == "base")


FULL = ["right", "right", "contained", "rightly silent", "wrong", "silent", "right", "right"]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        # 6 answers, 1 wrong; of the 6 that the full cache has right none is wrong and none lost.
        (FULL, (1 / 6, 0, 0)),
        # Answers at places 0, 1, 3, 4, 6: wrong at 1, 3, 4. Right before: 0, 1, 2, 3, 6, 7; wrong
        # of them 1 and 3, and 2 and 7 say nothing.
        (
            ["right", "wrong", "silent", "wrong", "wrong", "silent", "right", "empty"],
            (3 / 5, 2 / 6, 2 / 6),
        ),
        # What the full cache has wrong may come right: no harm.
        (
            ["right", "right", "right", "rightly silent", "right", "right", "right", "right"],
            (0, 0, 0),
        ),
        (["wrong"] * 8, (1, 1, 0)),
        (["empty"] * 8, (None, 0, 1)),
        # An unanswerable question that is answered by nothing at all is lost too.
        (
            ["right", "right", "right", "empty", "wrong", "silent", "right", "right"],
            (1 / 6, 0, 1 / 6),
        ),
    ],
)
def test_every_share_is_that_of_a_hand(
    kinds: list[str], expected: tuple[float | None, ...]
) -> None:
    row = row_of("snapkv", harm_records("full", FULL), harm_records("snapkv", kinds))
    assert [getattr(row, name) for name in HARM] == pytest.approx(list(expected))


def test_where_nothing_is_answered_or_nothing_was_right_there_is_no_share_and_a_reason() -> None:
    silent = row_of("snapkv", harm_records("full", FULL), harm_records("snapkv", ["silent"] * 8))
    assert (silent.wrong_of_answered, silent.hallucination_rate) == (None, 0.0)
    assert silent.reason == "no question was answered"
    failing = row_of(
        "snapkv", harm_records("full", ["wrong"] * 8), harm_records("snapkv", ["right"] * 8)
    )
    assert (failing.new_wrong, failing.lost, failing.wrong_of_answered) == (None, None, 0.0)
    assert failing.reason == "the full cache has no question right"


def ends(values: np.ndarray) -> Any:
    low, high = mean_interval(values)
    return pytest.approx((float(low), float(high)))


def test_intervals_are_over_contexts_however_many_answers_each_gives() -> None:
    """The ratio of two sums: to first order a context moves it by what it has beyond the ratio of
    its answers."""
    kinds = (
        ["right", "wrong", "silent", "right"] * 3
        + ["wrong", "wrong", "wrong", "right"] * 3
        + ["right"] * 24
    )
    row = row_of(
        "snapkv", harm_records("full", ["right"] * 48, 4), harm_records("snapkv", kinds, 4)
    )
    wrong, silent = np.array([1, 1, 1, 3, 3, 3, *[0] * 6]), np.array([1, 1, 1, *[0] * 9])
    ratio = 12 / 45
    moved = ratio + (wrong - ratio * (4 - silent)) / (45 / 12)
    assert (row.wrong_of_answered_low, row.wrong_of_answered_high) == ends(moved)
    for name, counts in (("new_wrong", wrong), ("lost", silent)):
        assert (getattr(row, f"{name}_low"), getattr(row, f"{name}_high")) == ends(counts / 4)


def test_perplexity_is_that_of_the_mean_nats_and_no_mean_of_perplexities() -> None:
    unjudged = dict.fromkeys(
        ("f1", "em", "abstained", "hallucinated", "masked", "corrupted", "due", "unended")
    )
    texts = [
        record(
            task="prose",
            question_id=text,
            example_id=text,
            next_token_accuracy=0.5,
            gold_nll=nats,
            **unjudged,
        )
        for text, nats in (("a", 1.0), ("b", 3.0))
    ]
    (row,) = (row for row in summarise(frame(texts), resamples=200) if row.task == "prose")
    assert (row.perplexity, row.next_token_accuracy) == (pytest.approx(np.exp(2.0)), 0.5)
    assert (row.perplexity_low, row.perplexity_high) == pytest.approx((np.exp(1.0), np.exp(3.0)))
