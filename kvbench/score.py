"""Scoring from what is stored: it needs the output text and no model."""

from datasets_gen import Directive, obeyed
from kvbench.metrics.leakage import leakage
from kvbench.metrics.text import marked_answer, score_text, undressed
from kvbench.record import Record
from kvbench.store import Store


def text_scores(record: Record) -> dict[str, object]:
    """The scores that follow from the stored output alone, by column; empty for a record without an output."""
    if record.output_text is None:
        return {}
    answer, golds = marked_answer(record.output_text, record.answer_marker), list(record.golds)
    directives = [Directive.parse(text) for text in record.directives]
    if directives:
        answer = undressed(answer, record.target, golds[0])
        golds.append(undressed(record.target, record.target, golds[0]))  # without a word that must not be used
    scores = score_text(answer, golds, record.answerable, record.abstentions, record.stated_values)
    return {
        "f1": scores.f1,
        "em": scores.em,
        "abstained": scores.abstained,
        "hallucinated": scores.hallucinated,
        "hallucination_kind": scores.hallucination_kind,
        "directives_obeyed": obeyed(directives, record.output_text) if directives else None,
        "leakage": leakage(record.output_text, record.protected) if record.protected else None,
    }


def rescore(store: Store) -> tuple[int, int]:
    """Scores all stored outputs again; rewrites the files that change. Returns (records, records changed)."""
    total = changed = 0
    for path, records in store.read_files():
        scored = [record.model_copy(update=text_scores(record)) for record in records]
        differing = sum(old != new for old, new in zip(records, scored, strict=True))
        if differing:
            store.write_records(path, scored)
        total += len(records)
        changed += differing
    return total, changed
