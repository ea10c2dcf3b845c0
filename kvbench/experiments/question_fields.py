"""Describes contexts and questions as a store does, before any model has seen them."""

from collections.abc import Iterable

from datasets_gen import Example, Question, Span, Task
from leaderboards.metrics.judges.obedience import families


def described_context(task: Task, example: Example) -> dict[str, object]:
    """Returns by column what follows from the example alone: whoever generates it again can compare."""
    return {
        "task": task.name,
        "task_version": task.full_version,
        "example_index": example.index,
        "example_id": example.id,
        "draw_id": example.draw or example.id,
        "arm": example.arm,
        "context": example.context,
        "stated_values": list(example.stated_values),
        "abstentions": list(task.abstentions),
        "answer_marker": task.answer_marker,
        "defence": example.text_of("defence"),
    }


def described_question(task: Task, example: Example, question: Question) -> dict[str, object]:
    """Describes a question by column: what is said of it once."""
    directives = [str(directive) for directive in question.directives]
    return {
        "task": task.name,
        "question_id": question.id,
        "example_index": example.index,
        "question": question.text,
        "golds": list(question.golds),
        "every_gold": question.every_gold,
        "answer_prefix": question.answer_prefix if task.begins_answers else "",
        "target": question.perfect_output,
        "answerable": question.answerable,
        "direction": question.direction,
        "answer_type": question.answer_type,
        "question_type": question.type,
        "hops": question.hops,
        "answer_spans": _characters(span for span in question.spans if span.kind == "answer"),
        "evidence_spans": _characters(span for span in question.spans if span.kind != "answer"),
        "other_values": list(question.others),
        "directives": directives,
        "directive_families": families(directives),
        "protected": question.protected,
    }


def _characters(spans: Iterable[Span]) -> list[int]:
    return [place for span in spans for place in (span.start, span.end)]
