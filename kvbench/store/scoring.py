"""Scores what is stored: it needs the output text and no model."""

from dataclasses import fields

from kvbench.store.store import Store
from kvbench.store.tables import RECORDS, Record, StoredAnswer, StoredContext, StoredQuestion
from kvbench.system.errors import KVBenchError
from leaderboards.metrics import METRICS, Answer, MetricError, Outcome
from policies import FULL

SCORES = {metric.name: metric.of_answer for metric in METRICS.values() if metric.of_answer}
OUTCOMES = {metric.name: metric.of_outcome for metric in METRICS.values() if metric.of_outcome}


def text_scores(
    output: str | None, question: StoredQuestion, context: StoredContext
) -> dict[str, object]:
    """Returns the scores that follow from a stored output alone, by column; empty where there is no
    output. Raises :class:`KVBenchError` for an output that cannot be scored."""
    if output is None:
        return {}
    stored = {**vars(context), **vars(question), "output_text": output}
    stored["defence"] = context.defence if question.protected else ""
    answer = Answer(**{field.name: stored[field.name] for field in fields(Answer)})
    try:
        return {name: score(answer) for name, score in SCORES.items()}
    except MetricError as error:
        raise KVBenchError(str(error)) from error


def outcome_scores(outcome: Outcome) -> dict[str, object]:
    """Returns the scores that follow from how an answer ended beside the full cache's, by
    column."""
    return {name: score(outcome) for name, score in OUTCOMES.items()}


def scores_of(answer: StoredAnswer) -> dict[str, object]:
    return text_scores(answer.record.output_text, answer.question, answer.context)


def rescore(store: Store) -> tuple[int, int]:
    """Scores all outputs again, by new metrics too, and rewrites what changes. Returns (records,
    records changed)."""
    total = changed = 0
    incomplete = store.record_files_without_metrics()
    full_outputs = _full_outputs(store) if incomplete else {}
    for path, answers in store.read_files(add_metrics=True):
        scored = []
        for answer in answers:
            record = answer.record.model_copy(update=scores_of(answer))
            if path in incomplete:
                output = full_outputs.get((record.task, record.question_id))
                record = _with_outcome(record, output)
            scored.append(record)
        pairs = zip(answers, scored, strict=True)
        differing = sum(answer.record != record for answer, record in pairs)
        if differing or path in incomplete:
            store.write_rows(RECORDS, path, scored)
        total += len(answers)
        changed += differing
    return total, changed


def _full_outputs(store: Store) -> dict[tuple[str, str], list[int] | None]:
    """Reads the tokens that the full cache wrote, by task and question."""
    outputs: dict[tuple[str, str], list[int] | None] = {}
    for _, answers in store.read_files(add_metrics=True):
        for answer in answers:
            record = answer.record
            if record.policy == FULL:
                outputs[record.task, record.question_id] = record.output_token_ids
    return outputs


def _with_outcome(record: Record, full: list[int] | None) -> Record:
    """Adds the outcome to a record of a version that did not have it; nothing made its logits
    infinite or NaN."""
    if record.masked is not None or full is None or record.output_token_ids is None:
        return record
    outcome = Outcome(record.output_token_ids == full, bool(record.ended))
    return record.model_copy(update=outcome_scores(outcome))
