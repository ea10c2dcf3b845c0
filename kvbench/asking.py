"""What a record says of its question before any model has seen it."""

from collections.abc import Iterable

from datasets_gen import Example, Question, Span, Task
from kvbench.metrics.directives import families


def described(task: Task, example: Example, question: Question) -> dict[str, object]:
    """By column, what follows from the example alone: whoever generates it again can compare."""
    directives = [str(directive) for directive in question.directives]
    return {
        "task": task.name,
        "task_version": task.full_version,
        "example_id": example.id,
        "example_index": example.index,
        "draw_id": example.draw or example.id,
        "arm": example.arm,
        "question_id": question.id,
        "context": example.context,
        "question": question.text,
        "golds": list(question.golds),
        "target": question.written,
        "answerable": question.answerable,
        "direction": question.direction,
        "answer_type": question.answer_type,
        "question_type": question.type,
        "hops": question.hops,
        "answer_spans": _characters(span for span in question.spans if span.kind == "answer"),
        "evidence_spans": _characters(span for span in question.spans if span.kind != "answer"),
        "stated_values": [*example.stated_values, *question.others],
        "abstentions": list(task.abstentions),
        "answer_marker": task.answer_marker,
        "directives": directives,
        "directive_families": families(directives),
        "protected": question.protected,
        "defence": example.text_of("defence") if question.protected else "",
    }


def _characters(spans: Iterable[Span]) -> list[int]:
    return [place for span in spans for place in (span.start, span.end)]
