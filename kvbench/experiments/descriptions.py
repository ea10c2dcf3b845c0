"""Describes contexts and questions by column, by what follows from an example alone: whoever
generates the example again can compare."""

from datasets_gen import Example, Question, Task
from leaderboards.metrics.judges.obedience import families


def described_context(task: Task, example: Example) -> dict[str, object]:
    """Describes the context of an example by column."""
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
        "defence": example.joined_text("defence"),
    }


def described_question(task: Task, example: Example, question: Question) -> dict[str, object]:
    """Describes a question by column: what is said of it once."""
    directives = [str(directive) for directive in question.directives]
    answer: list[int] = []  # begin and end of each span
    evidence: list[int] = []
    for span in question.spans:
        places = answer if span.kind == "answer" else evidence
        places += (span.start, span.end)
    return {
        "every_gold": question.every_gold,
        "answerable": question.answerable,
        "direction": question.direction,
        "answer_type": question.answer_type,
        "hops": question.hops,
        "protected": question.protected,
        "task": task.name,
        "question_id": question.id,
        "example_index": example.index,
        "question": question.text,
        "golds": list(question.golds),
        "answer_prefix": question.answer_prefix if task.begins_answers else "",
        "target": question.perfect_output,
        "question_type": question.type,
        "answer_spans": answer,
        "evidence_spans": evidence,
        "other_values": list(question.others),
        "directives": directives,
        "directive_families": families(directives),
    }
