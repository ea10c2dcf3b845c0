"""Checks that every question is there once, as it is generated, with the scores that its output has."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from datasets_gen import DatasetError
from kvbench.checks.findings import Finding, judged, note
from kvbench.checks.submission.reading import Described, Submission, place_of
from kvbench.prompts.prompt import answer_text
from kvbench.store.scoring import SCORES, scores_of
from kvbench.system.errors import KVBenchError, first_line
from policies import Point

Cell = tuple[str, str, Point]  # task, policy, level and draw
LONGEST = 60  # characters of a text that is shown


def check_completeness(submission: Submission) -> Iterator[Finding]:
    """Checks that every policy answers every question once at every level, and that nothing else is there."""
    found: dict[Cell, Counter[str]] = defaultdict(Counter)
    for record in submission.records:
        found[record.task, record.policy, record.point][record.question_id] += 1
    wanted = {task.name: _questions(submission, task.name, task.contexts) for task in submission.identity.tasks}
    planned: set[Cell] = {
        (task, policy.name, point)
        for policy in submission.identity.policies
        for task in policy.tasks
        for point in policy.points
    }
    faults = []
    for cell in sorted(planned | set(found)):
        task, policy, point = cell
        expected, counted = wanted.get(task, set()) if cell in planned else set(), found[cell]
        for what, ids in (
            ("missing", sorted(expected - set(counted))),
            ("not asked for by run.json", sorted(set(counted) - expected)),
            ("there twice", sorted(name for name, count in counted.items() if count > 1)),
        ):
            if ids:
                faults.append(f"{policy} at {point.where} of {task}: {_counted(ids)} {what}")
    yield judged("completeness", f"{len(submission.records):,} records, none missing, none twice", faults)
    failed = [record for record in submission.records if record.status == "failed"]
    if failed:
        yield note("completeness", f"{len(failed):,} answers failed, as {place_of(failed[0])}: {failed[0].reason}")


def _questions(submission: Submission, task: str, contexts: int) -> set[str]:
    """Lists the questions of a task as it is generated. Where it cannot be generated, lists the questions that any
    policy answered; a context without an answer then counts as a missing question."""
    if task in submission.examples:
        return {question.id for example in submission.examples[task] for question in example.questions}
    own = [question for question, _ in submission.asked if question.task == task]
    unseen = set(range(contexts)) - {question.example_index for question in own}
    return {question.question_id for question in own} | {f"context {index}" for index in unseen}


def _counted(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{len(ids):,} questions ({ids[0]}, …)"


def check_questions(submission: Submission) -> Iterator[Finding]:
    """Context, question, golds and whatever else follows from the generator are as it makes them."""
    versions = {task.name: task.version for task in submission.identity.tasks}
    faults, checked = [], 0
    for context in {context.example_id: context for _, context in submission.asked}.values():
        if context.mode != submission.identity.mode:
            faults.append(f"{context.example_id} was run in mode {context.mode}")
        if context.task_version != versions.get(context.task):
            faults.append(f"{context.example_id} is of task version {context.task_version}")
        faults += _differences(context.example_id, context, submission.contexts.get(context.example_id, {}))
    for question, _ in submission.asked:
        expected = submission.questions.get(question.question_id)
        checked += expected is not None
        faults += _differences(question.question_id, question, expected or {})
    yield judged("questions", f"{checked:,} are what is generated", faults)
    if checked < len(submission.asked):
        yield note("questions", f"{len(submission.asked) - checked:,} cannot be generated here")


def _differences(place: str, stored: BaseModel, generated: Described) -> Iterator[str]:
    """The first column that is not as it is generated."""
    for name, value in generated.items():
        if getattr(stored, name) != value:
            yield f"{place}: {name} is {_shown(getattr(stored, name))}, generated is {_shown(value)}"
            return


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def check_scores(submission: Submission) -> Iterator[Finding]:
    """Stored scores are those that the stored outputs have."""
    faults = []
    unknown: dict[str, str] = {}
    for answer in submission.answers:
        record = answer.record
        try:
            scores = scores_of(answer)
        except KVBenchError as error:  # a judge that is not installed
            unknown.setdefault(record.task, str(error))
            continue
        except (DatasetError, ValueError, KeyError, IndexError) as error:  # of a record that was tampered with
            faults.append(f"{place_of(record)} cannot be scored ({first_line(error)})")
            continue
        for name in SCORES:
            if getattr(record, name) != scores.get(name):
                faults.append(
                    f"{place_of(record)}: {name} is {getattr(record, name)}, its output has {scores.get(name)}"
                )
                break
    for task, reason in unknown.items():
        yield note("scores", f"{task} cannot be scored here: {reason}")
    yield judged("scores", "as the stored outputs have them", faults)


def check_outputs(submission: Submission) -> Iterator[Finding]:
    """Texts are what their tokens say, no longer than allowed; and just answers that failed have none."""
    longest = {task.name: task.max_new_tokens for task in submission.identity.tasks}
    tokenizer, said = submission.tokenizer, dict[tuple[int, ...], str]()
    faults = []
    for record in submission.records:
        text, ids = record.output_text, record.output_token_ids
        if (record.status == "ok") != (text is not None) or (text is None) != (ids is None):
            faults.append(f"{place_of(record)} is {record.status} and has {'no ' * (text is None)}output")
        elif ids is not None and len(ids) > longest.get(record.task, len(ids)):
            faults.append(f"{place_of(record)} has {len(ids)} tokens, where {longest[record.task]} are allowed")
        elif ids is not None and tokenizer is not None:
            if tuple(ids) not in said:
                known = all(0 <= token < len(tokenizer) for token in ids)
                said[tuple(ids)] = answer_text(tokenizer, ids) if known else "tokens that the model does not have"
            if text != said[tuple(ids)]:
                faults.append(
                    f"{place_of(record)}: output is {_shown(text)}, its tokens say {_shown(said[tuple(ids)])}"
                )
    yield judged("outputs", "as their tokens say" if tokenizer else "none is too long", faults)
    if tokenizer is None:
        yield note("outputs", f"not decoded: the tokenizer of {submission.identity.model} is not at hand")
