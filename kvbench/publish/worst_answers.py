"""Finds the worst answers of a policy in a run, with the spans that they needed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pandas import DataFrame

from datasets_gen import Span, SpanKind, Task, unknown_name
from kvbench.experiments.build_grid import tasks_as_run
from kvbench.models.names import local_source
from kvbench.store.run_file import Identity
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS, Record, StoredAnswer
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.answers import JUDGED, worst_first
from policies import FULL, Level
from policies.declaration.names import CONTROLS

SAME = 1e-9  # ratios that differ only by how they are written
RECORD_COLUMNS = (
    *("question_id", "policy", "output_text", "f1", "em", "ger"),
    *("slot_coverage", "realised_ratio"),
)
ANSWER_COLUMNS = (*RECORD_COLUMNS, "question", "golds", "full_cache_output", "verdict")


@dataclass(frozen=True)
class WorstAnswer(StoredAnswer):
    """A stored answer with the spans of its example, whose kinds a store does not tell."""

    full: Record | None  # the same question under the full cache, if it was run
    spans: tuple[Span, ...]
    is_generated: bool  # whether the spans are those of the example, generated anew


def first_method(identity: Identity) -> str:
    """Names the first policy of a run that is no control; the last one where all are."""
    names = [entry.name for entry in identity.policies]
    return next((name for name in names if name not in CONTROLS), names[-1])


def choose_level(identity: Identity, policy: str, chosen: Sequence[Level]) -> Level:
    """Chooses the level that the options name, or the one that boards show first, among those of
    the policy; raises :class:`KVBenchError` for a policy or a level that the run does not have."""
    policies = {entry.name: entry for entry in identity.policies}
    if policy not in policies:
        raise KVBenchError(unknown_name("policy", policy, policies))
    levels = list(dict.fromkeys(point.level for point in policies[policy].points))
    if not chosen:
        return min(levels, key=lambda level: abs(level.value - level.declared.typical))
    if len(chosen) == 1:
        for level in levels:
            if level.kind == chosen[0].kind and abs(level.value - chosen[0].value) < SAME:
                return level
    names = ", ".join(f"--{level.kind} {level}" for level in levels)
    where = " and ".join(level.where for level in chosen)
    raise KVBenchError(f"{policy} was not run at {where}: give one of {names}")


def worst_answers(
    store: Store, policy: str, level: Level, count: int
) -> tuple[list[WorstAnswer], int]:
    """Returns the answers in the order of :func:`worst_first`, and counts those that failed; raises
    :class:`KVBenchError` where there are none."""
    answers: list[StoredAnswer] = []
    for answer in _answers(store, policy):
        if answer.record.point.level == level:
            answers.append(answer)
    if not answers:
        where = f"{policy} at {level.where}"
        raise KVBenchError(f"{store.folder} holds no answers of {where} yet: start the run again")
    full: dict[str, Record] = {}
    for answer in _answers(store, FULL):
        full[answer.record.question_id] = answer.record
    answered = [answer for answer in answers if answer.record.output_text is not None]
    tasks = tasks_as_run(store.run, local_source(store.identity.model) is not None)
    worst = []
    for answer in _worst_first(answered, list(full.values()))[:count]:
        task = tasks.get(answer.context.task)
        full_record = full.get(answer.record.question_id)
        worst.append(_with_spans(answer, full_record, task, store.identity))
    return worst, len(answers) - len(answered)


def _worst_first(answers: Sequence[StoredAnswer], full: Sequence[Record]) -> list[StoredAnswer]:
    """Returns answers with the worst first, judged beside those of the full cache."""
    if not answers:
        return []
    # Those of the full cache come last, so that a place below their number is one of the answers.
    records = [*(answer.record for answer in answers), *full]
    columns = ["policy", "question_id", *JUDGED]
    table = DataFrame([vars(record) for record in records], columns=columns)
    # worst_first pairs by mode and example as well; here the name of a question tells it all.
    places = worst_first(table.assign(mode="", example_id="")).index
    return [answers[place] for place in places if place < len(answers)]


def _answers(store: Store, policy: str) -> Iterator[StoredAnswer]:
    """Yields all answers of one policy, in the order of the tasks."""
    for task in store.identity.tasks:
        # The file of a policy has the same name in every chunk.
        name = store.path(RECORDS, task.name, 0, policy).name
        for path in store.record_files():
            if (path.parent.parent.name, path.name) == (task.name, name):
                yield from store.read_answers(path)


def _with_spans(
    answer: StoredAnswer, full: Record | None, task: Task | None, identity: Identity
) -> WorstAnswer:
    """Adds the spans of the example, generated anew; those of the store where that is not
    possible, which knows two kinds of them."""
    stored = (answer.record, answer.question, answer.context, full)
    generated = _generated_spans(answer, task, identity)
    if generated is not None:
        return WorstAnswer(*stored, generated, True)
    question = answer.question
    spans = [
        *_stored_spans("answer", question.answer_spans),
        *_stored_spans("fact", question.evidence_spans),
    ]
    return WorstAnswer(*stored, tuple(spans), False)


def _generated_spans(
    answer: StoredAnswer, task: Task | None, identity: Identity
) -> tuple[Span, ...] | None:
    """Generates the example of an answer anew and returns its spans; None where the task here is
    another one than in the run."""
    context = answer.context
    if task is None or task.full_version != context.task_version:
        return None
    example = task.example(identity.seed, context.example_index, held_out=identity.held_out)
    # Spans are offsets of characters: in another text they would mark other words.
    if example.context != context.context:
        return None
    for question in example.questions:
        if question.id == answer.question.question_id:
            return (*example.spans, *question.spans)
    return None


def _stored_spans(kind: SpanKind, flat: Sequence[int]) -> list[Span]:
    """Reads the spans of a store, which stand one after the other."""
    return [Span(kind, start, end) for start, end in zip(flat[::2], flat[1::2], strict=True)]


def answer_rows(answers: Sequence[WorstAnswer]) -> list[tuple[object, ...]]:
    """Returns the values of ``ANSWER_COLUMNS`` of each answer."""
    rows: list[tuple[object, ...]] = []
    for answer in answers:
        from_record = [getattr(answer.record, name) for name in RECORD_COLUMNS]
        full_output = answer.full.output_text if answer.full else None
        question = answer.question
        judged = verdict(answer.record)
        rows.append((*from_record, question.question, question.golds, full_output, judged))
    return rows


def verdict(record: Record) -> str:
    """Says in words what the scores mean."""
    parts = []
    if record.right:
        parts.append("right")
    elif record.hallucinated:
        parts.append(f"hallucinated, {record.hallucination_kind}")
    elif record.abstained:
        parts.append("abstained")
    # Neither right nor hallucinated nor an abstention: by the definitions the output is empty.
    elif record.f1 is not None and record.leakage is None:
        parts.append("empty")
    if record.directives_obeyed is not None:
        parts.append(f"{100 * record.directives_obeyed:.0f} % of its directives obeyed")
    if record.leakage is not None:
        if record.leaked_verbatim:
            how = "leaked word by word"
        else:
            how = "not leaked word by word"
        parts.append(f"{how}, recall {100 * record.leakage:.0f} %")
    return "; ".join(parts) or "not judged"
