"""Lists the tasks that a model cannot do with the full cache, and what to look at: a few of its answers beside the
right ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from pandas import DataFrame

from leaderboards.aggregate.row import SummaryRow
from leaderboards.aggregate.summary import visible
from policies.declaration.names import FULL

ANSWERS = 3
LONGEST = 200  # characters of an output that are shown
ADVICE = "look at the chat template, at the prompt, and at what it writes"


@dataclass(frozen=True)
class WrittenAnswer:
    """An answer that the model wrote with the full cache."""

    question: str
    golds: tuple[str, ...]
    output: str  # its beginning, in one line


@dataclass(frozen=True)
class Unmastered:
    """A task that the model cannot do."""

    task: str
    mode: str
    reason: str
    answers: tuple[WrittenAnswer, ...]  # wrong ones, of different contexts as far as there are

    def __str__(self) -> str:
        """Writes the answer in one line."""
        outputs = ", ".join(repr(answer.output) for answer in self.answers)
        return f"{self.task}: {self.reason}: {ADVICE}: {outputs}"


def reasons_by_task(rows: Sequence[SummaryRow]) -> dict[str, str]:
    """Returns why the model cannot do a task, of those that it cannot do."""
    return {row.task: row.not_mastered for row in rows if row.not_mastered}


def find_unmastered(records: DataFrame, rows: Sequence[SummaryRow]) -> list[Unmastered]:
    """Finds the tasks that the model cannot do, as the rows say, which these records add up to."""
    reasons = {(row.task, row.mode): row.not_mastered for row in rows if row.not_mastered}
    return [Unmastered(task, mode, reason, _answers(records, task, mode)) for (task, mode), reason in reasons.items()]


def _answers(records: DataFrame, task: str, mode: str) -> tuple[WrittenAnswer, ...]:
    here = (records["task"] == task) & (records["mode"] == mode) & (records["policy"] == FULL)
    wrong = records[here & (records["status"] == "ok") & records["leakage"].isna() & ~records["right"].eq(True)]
    chosen = wrong.drop_duplicates("example_id").head(ANSWERS)
    chosen = chosen if len(chosen) == ANSWERS else wrong.head(ANSWERS)
    return tuple(
        WrittenAnswer(str(question), tuple(map(str, golds)), visible(" ".join(str(output).split()))[:LONGEST])
        for question, golds, output in zip(chosen["question"], chosen["golds"], chosen["output_text"], strict=True)
    )
