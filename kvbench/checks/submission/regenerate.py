"""Generates the questions of a run again, and checks that each of them is there once and unchanged."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from kvbench.checks.findings import Finding, finding_of, note, unchecked
from kvbench.checks.submission.reading import Described, Submission, place_of
from policies import Point

Cell = tuple[str, str, Point]  # task, policy, level and draw


def check_tasks(submission: Submission) -> Iterator[Finding]:
    """Checks that each task is what its name and version say, where that version is installed."""
    faults = []
    for planned in submission.identity.tasks:
        task = submission.tasks.get(planned.name)
        if task is None:
            yield unchecked(
                "tasks", f"{planned.name} {planned.version} cannot be generated here: its questions go unchecked"
            )
            continue
        faults += [
            f"{planned.name} has {field} '{getattr(planned, field)}', not '{getattr(task, field)}'"
            for field in ("chance", "instruction", "begins_answers", "level")
            if getattr(task, field) != getattr(planned, field)
        ]
    yield finding_of("tasks", f"{len(submission.tasks)} as installed here", faults)


def check_completeness(submission: Submission) -> Iterator[Finding]:
    """Checks that every policy answers every question once at every level, and that nothing else is there."""
    stored: dict[Cell, Counter[str]] = defaultdict(Counter)
    for record in submission.records:
        stored[record.task, record.policy, record.point][record.question_id] += 1
    questions = {task.name: _questions(submission, task.name, task.contexts) for task in submission.identity.tasks}
    planned: set[Cell] = {
        (task, policy.name, point)
        for policy in submission.identity.policies
        for task in policy.tasks
        for point in policy.points
    }
    faults = []
    for cell in sorted(planned | set(stored)):
        task, policy, point = cell
        expected, counts = questions.get(task, set()) if cell in planned else set(), stored[cell]
        faults += [
            f"{policy} at {point.where} of {task}: {_count_text(sorted(ids))} {what}"
            for what, ids in (
                ("missing", expected - set(counts)),
                ("not asked for by run.json", set(counts) - expected),
                ("there twice", {name for name, count in counts.items() if count > 1}),
            )
            if ids
        ]
    yield finding_of("completeness", f"{len(submission.records):,} records, none missing, none twice", faults)
    failed = [record for record in submission.records if record.status == "failed"]
    if failed:
        yield note("completeness", f"{len(failed):,} answers failed, as {place_of(failed[0])}: {failed[0].reason}")


def _questions(submission: Submission, task: str, contexts: int) -> set[str]:
    """Lists the questions of a task as it is generated. Where it cannot be generated, lists the questions that any
    policy answered; a context without an answer then counts as a missing question."""
    if task in submission.examples:
        return {question.id for example in submission.examples[task] for question in example.questions}
    answered = [question for question, _ in submission.questions if question.task == task]
    missing = set(range(contexts)) - {question.example_index for question in answered}
    return {question.question_id for question in answered} | {f"context {index}" for index in missing}


def _count_text(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{len(ids):,} questions ({ids[0]}, …)"


def check_questions(submission: Submission) -> Iterator[Finding]:
    """Checks that context, question, golds and whatever else follows from the generator are as it makes them."""
    versions = {task.name: task.version for task in submission.identity.tasks}
    faults, checked = [], 0
    for context in {context.example_id: context for _, context in submission.questions}.values():
        if context.mode != submission.identity.mode:
            faults.append(f"{context.example_id} was run in mode {context.mode}")
        if context.task_version != versions.get(context.task):
            faults.append(f"{context.example_id} is of task version {context.task_version}")
        faults += _differences(context.example_id, context, submission.generated_contexts.get(context.example_id, {}))
    for question, _ in submission.questions:
        expected = submission.generated_questions.get(question.question_id)
        checked += expected is not None
        faults += _differences(question.question_id, question, expected or {})
    yield finding_of("questions", f"{checked:,} are what is generated", faults)
    if checked < len(submission.questions):
        yield unchecked("questions", f"{len(submission.questions) - checked:,} cannot be generated here")


def _differences(place: str, stored: BaseModel, generated: Described) -> Iterator[str]:
    """Names the first column that is not as it is generated."""
    for name, value in generated.items():
        if getattr(stored, name) != value:
            yield f"{place}: {name} is {getattr(stored, name)!r:.60}, generated is {value!r:.60}"
            return
