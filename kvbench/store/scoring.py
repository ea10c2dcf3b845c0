"""Scores what is stored: it needs the output text and no model."""

from dataclasses import fields

from kvbench.store.store import Store
from kvbench.store.tables import RECORDS, Record, StoredAnswer, StoredContext, StoredQuestion
from kvbench.system.errors import KVBenchError
from leaderboards.metrics import METRICS, Answer, MetricError, Outcome
from policies import FULL

SCORES = {
    metric.name: metric.of_answer for metric in METRICS.values() if metric.of_answer is not None
}
OUTCOMES = {
    metric.name: metric.of_outcome for metric in METRICS.values() if metric.of_outcome is not None
}


def text_scores(
    output: str | None, question: StoredQuestion, context: StoredContext
) -> dict[str, object]:
    """Returns the scores that follow from a stored output alone, by column; empty where there is no output."""
    if output is None:
        return {}
    stored = {**vars(context), **vars(question), "output_text": output}
    stored["defence"] = context.defence if question.protected else ""
    answer = Answer(**{one.name: stored[one.name] for one in fields(Answer)})
    try:
        return {name: score(answer) for name, score in SCORES.items()}
    except MetricError as error:
        raise KVBenchError(str(error)) from error


def outcome_scores(outcome: Outcome) -> dict[str, object]:
    """Returns the scores that follow from how an answer ended beside the full cache's, by column."""
    return {name: score(outcome) for name, score in OUTCOMES.items()}


def scores_of(answer: StoredAnswer) -> dict[str, object]:
    return text_scores(answer.record.output_text, answer.question, answer.context)


def rescore(store: Store) -> tuple[int, int]:
    """Scores all outputs again, by new metrics too, and rewrites what changes. Returns (records, records changed)."""
    total = changed = 0
    incomplete = store.record_files_without_metrics()
    of_full: dict[
        tuple[str, str], list[int] | None
    ] = {}  # the full cache's tokens, by task and question
    if incomplete:
        records = (
            answer.record for _, answers in store.read_files(add_metrics=True) for answer in answers
        )
        of_full = {
            (one.task, one.question_id): one.output_token_ids
            for one in records
            if one.policy == FULL
        }
    for path, answers in store.read_files(add_metrics=True):
        scored = [answer.record.model_copy(update=scores_of(answer)) for answer in answers]
        if path in incomplete:
            scored = [
                _with_outcome(record, of_full.get((record.task, record.question_id)))
                for record in scored
            ]
        differing = sum(answer.record != new for answer, new in zip(answers, scored, strict=True))
        if differing or path in incomplete:
            store.write_rows(RECORDS, path, scored)
        total += len(answers)
        changed += differing
    return total, changed


def _with_outcome(record: Record, full: list[int] | None) -> Record:
    """Adds the outcome to a record of a version that did not have it; nothing made its logits infinite or NaN."""
    if record.masked is not None or full is None or record.output_token_ids is None:
        return record
    outcome = Outcome(record.output_token_ids == full, bool(record.ended))
    return record.model_copy(update=outcome_scores(outcome))
