"""Lists the worst answers of a policy in a run, each with the full cache's answer and with its example."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame

from datasets_gen import Example, Question, Task, unknown_name
from kvbench.experiments.build_grid import tasks_as_run
from kvbench.models.names import local_source
from kvbench.store.identity import Identity
from kvbench.store.record import Record, StoredAnswer
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.comparison.paired import JUDGED, worst_first
from policies import FULL, Level
from policies.declaration.names import CONTROLS

SAME = 1e-9  # ratios that differ only by how they are written


@dataclass(frozen=True)
class WorstAnswer(StoredAnswer):
    """A stored answer with its example, which holds spans that a store does not."""

    full: Record | None  # the same question under the full cache, if it was run
    example: Example | None  # generated anew, where it can be here
    generated: Question | None  # the question of that example


def first_policy(identity: Identity) -> str:
    """Returns the policy that is shown where none is named: the first that is no control, if there is one."""
    names = [entry.name for entry in identity.policies]
    return next((name for name in names if name not in CONTROLS), names[-1])


def levels_of(identity: Identity, policy: str) -> list[Level]:
    """Lists the levels at which a policy was run."""
    (points,) = (entry.points for entry in identity.policies if entry.name == policy)
    return list(dict.fromkeys(point.level for point in points))


def chosen_level(identity: Identity, policy: str, given: Sequence[Level]) -> Level:
    """Finds the level of the policy that the options name, or else the one that boards show first; raises
    :class:`KVBenchError` with the levels of the run if it is not among them."""
    policies = {entry.name: entry for entry in identity.policies}
    if policy not in policies:
        raise KVBenchError(unknown_name("policy", policy, policies))
    levels = levels_of(identity, policy)
    names = ", ".join(f"--{level.kind} {level}" for level in levels)
    if len(given) > 1:
        raise KVBenchError(f"choose a level of {policy}: one of {names}")
    if not given:
        return min(levels, key=lambda level: abs(level.value - level.declared.typical))
    matches = [level for level in levels if level.kind == given[0].kind and abs(level.value - given[0].value) < SAME]
    if not matches:
        raise KVBenchError(f"{policy} was not run at {given[0].where}: give one of {names}")
    return matches[0]


def worst_answers(store: Store, policy: str, level: Level, count: int) -> tuple[list[WorstAnswer], int]:
    """Returns the answers that lose most against the full cache, in the order of
    :func:`~leaderboards.aggregate.comparison.paired.worst_first`, and counts those that failed."""
    answers = [one for one in _answers(store, policy) if one.record.point.level == level]
    if not answers:
        raise KVBenchError(f"{store.folder} holds no answers of {policy} at {level.where} yet: start the run again")
    full = {one.record.question_id: one.record for one in _answers(store, FULL)}
    answered = [one for one in answers if one.record.output_text is not None]
    places = range(len(answered))
    table = DataFrame(
        [_ranking_of(one.record, place) for one, place in zip(answered, places, strict=True)]
        + [_ranking_of(record, None) for record in full.values()]
    )
    ordered = worst_first(table)["place"].dropna() if answered else []
    chosen = [answered[int(place)] for place in ordered][:count]
    tasks, identity = tasks_as_run(store.run, local_source(store.identity.model) is not None), store.identity
    with_examples = [
        _with_example(one, full.get(one.record.question_id), tasks.get(one.context.task), identity) for one in chosen
    ]
    return with_examples, len(answers) - len(answered)


def _ranking_of(record: Record, place: int | None) -> dict[str, Any]:
    """Returns what answers are ordered by, and the place of an answer that may be chosen."""
    names = {"policy": record.policy, "mode": "", "example_id": "", "question_id": record.question_id}
    return {**names, "place": place, **{name: getattr(record, name) for name in JUDGED}}


def decoded_in_halves(store: Store) -> int:
    """Counts the answers of a run that come from batches that were halved for lack of memory."""
    halvings = store.table(RECORDS, ["wave_halvings"])["wave_halvings"]
    return sum(count > 0 for count in halvings.drop_null().to_pylist())


def _answers(store: Store, policy: str) -> Iterator[StoredAnswer]:
    """Yields all answers of one policy, in the order of the tasks."""
    for task in store.identity.tasks:
        name = store.record_file(task.name, 0, policy).name
        for path in store.record_files():
            if (path.parent.parent.name, path.name) == (task.name, name):
                yield from store.read_answers(path)


def _with_example(answer: StoredAnswer, full: Record | None, task: Task | None, identity: Identity) -> WorstAnswer:
    parts = (answer.record, answer.question, answer.context, full)
    if task is None or task.full_version != answer.context.task_version:
        return WorstAnswer(*parts, None, None)
    example = task.example(identity.seed, answer.context.example_index, held_out=identity.held_out)
    generated = next((one for one in example.questions if one.id == answer.question.question_id), None)
    same = example.context == answer.context.context and generated is not None
    return WorstAnswer(*parts, example, generated) if same else WorstAnswer(*parts, None, None)
