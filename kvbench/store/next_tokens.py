"""The table of next tokens: how they come out by their place in the continuation of a running text."""

from collections.abc import Iterator
from typing import Any

from kvbench.store.record import AnswerRow
from kvbench.store.tables import QUESTIONS, RECORDS, StoredTable, register


class NextTokens(AnswerRow):
    """Holds some tokens of a continuation that follow one another."""

    first_token: int  # counted from 0; behind it are as many more as are before it, or one
    tokens: int
    accuracy: float  # the share of them that are the most likely one
    nats: float | None  # the mean of their negative log-likelihoods; none where it is no number


def bounds(length: int) -> Iterator[tuple[int, int]]:
    """Divides places into parts that double: the first token, the second, the next two, the next four.

    >>> list(bounds(6))
    [(0, 1), (1, 2), (2, 4), (4, 6)]
    """
    start = 0
    while start < length:
        end = min(max(1, 2 * start), length)
        yield start, end
        start = end


def _rows(answer: Any) -> Iterator[NextTokens]:
    """Makes the rows of a kvbench.experiments.collect.FinishedAnswer; there are none of a question."""
    gold = answer.generation.gold if answer.generation else None
    if gold is None or answer.record.next_token_accuracy is None:
        return
    cell = RECORDS.key_of(answer.record)
    for start, end in bounds(len(gold.nats)):
        part = gold.part(start, end)
        yield NextTokens(**cell, first_token=start, tokens=end - start, accuracy=part.accuracy, nats=part.mean_nats)


NEXT_TOKENS = register(
    StoredTable(
        "next_tokens",
        NextTokens,
        (*RECORDS.key, "first_token"),
        1,
        QUESTIONS.name,
        {"accuracy": (0.0, 1.0), "nats": (0.0, float("inf"))},
        of_records_with="next_token_accuracy",
        fill=_rows,
    )
)
