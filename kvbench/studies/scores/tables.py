"""The table of scores: what the scorers of a task, or of installed packages, say of each answer."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from datasets_gen import DatasetError
from kvbench.handed.scorers import installed_scorers
from kvbench.store.tables import RECORDS, AnswerRow, register_study
from kvbench.system.errors import KVBenchError

if TYPE_CHECKING:
    from kvbench.experiments.collect import FinishedAnswer as Answer


class ScoreRow(AnswerRow):
    """Holds one score of one answer, with what its numbers mean: who reads it has no scorer."""

    scorer: str
    score: float
    low: float  # the lowest score that there is
    high: float
    better: Literal["higher", "lower"]
    description: str


def _scores(answers: "Sequence[Answer]") -> Iterator[ScoreRow]:
    """Scores the outputs to questions with golds. Raises :class:`KVBenchError` for a scorer that
    fails, or gives what is no score of its range."""
    for answer in answers:
        output, golds = answer.record.output_text, answer.question.golds
        if output is None or not golds:
            continue
        for scorer in (*answer.task.scorers, *installed_scorers()):
            try:
                score = scorer.score(output, golds, answer.question.question)
            except DatasetError as error:  # in a worker anything else would be a bug
                raise KVBenchError(str(error)) from error
            yield ScoreRow(
                **RECORDS.row_key(answer.record),
                scorer=scorer.name,
                score=score,
                low=scorer.low,
                high=scorer.high,
                better=scorer.better,
                description=scorer.description,
            )


SCORES = register_study("scores", ScoreRow, ("scorer",), 1, _scores)
