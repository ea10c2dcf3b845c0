"""The worst answers of a policy in a run, each beside that of the full cache and with the example it is about."""

from collections.abc import Iterator
from dataclasses import dataclass

from datasets_gen import Example, Question, unknown_name
from kvbench.errors import KVBenchError
from kvbench.record import Record
from kvbench.store import Outline, Store
from kvbench.suites import installed
from leaderboards import FULL, Asked

SAME = 1e-9  # ratios that are equal but for how they are written


@dataclass(frozen=True)
class Answer:
    """``full``: the same question under the full cache, if it was run. ``example`` and ``question`` are there where the
    task is installed in the version of the run: records do not hold the spans."""

    record: Record
    full: Record | None
    example: Example | None
    question: Question | None


def chosen_level(outline: Outline, policy: str, ratio: float | None, budget: int | None) -> Asked:
    """What was asked of the policy; :class:`KVBenchError` with what there is, where that was not asked."""
    policies = {entry.name: entry for entry in outline.policies}
    if not policy:
        raise KVBenchError(f"say whose answers: --policy, one of {', '.join(policies)}")
    if policy not in policies:
        raise KVBenchError(unknown_name("policy", policy, policies))
    entry = policies[policy]
    levels = [*(Asked("ratio", one) for one in entry.ratios), *(Asked("budget", one) for one in entry.budgets)]
    given = [Asked("ratio", ratio)] if ratio is not None else []
    given += [Asked("budget", budget)] if budget is not None else []
    there = ", ".join(f"--{level.kind} {level}" for level in levels)
    if len(given) > 1 or (not given and len(levels) > 1):
        raise KVBenchError(f"say at which level of {policy}, one of {there}")
    found = [
        level
        for level in levels
        if not given or (level.kind == given[0].kind and abs(level.value - given[0].value) < SAME)
    ]
    if not found:
        raise KVBenchError(f"{policy} was not run at {given[0].where}: give one of {there}")
    return found[0]


def worst_answers(store: Store, policy: str, asked: Asked, count: int) -> tuple[list[Answer], int]:
    """The lowest F1 first (of questions without golds, the fewest directives obeyed); among equals hallucinations, and
    among these what the full cache answers best. Also how many answers failed, which are not among them."""
    records = [one for one in _records(store, policy) if Asked.of(one.ratio, one.budget) == asked]
    if not records:
        raise KVBenchError(f"{store.folder} holds no answers of {policy} at {asked.where} yet: start the run again")
    full = {one.question_id: one for one in _records(store, FULL)}
    answered = [one for one in records if one.output_text is not None]

    def badness(record: Record) -> tuple[float, bool, float]:
        whole = full.get(record.question_id)
        return (_score(record), not record.hallucinated, -_score(whole) if whole else 0.0)

    chosen = sorted(answered, key=badness)[:count]
    seed, held_out = store.run.identity.get("seed", 0), store.run.identity.get("held_out", False)
    return [_answer(one, full.get(one.question_id), seed, held_out) for one in chosen], len(records) - len(answered)


def decoded_in_halves(store: Store) -> int:
    """How many answers of a run come from batches that had been halved, as memory ended."""
    halvings = (store.read_table(path)["wave_halvings"] for path in store.record_files())
    return sum(count > 0 for column in halvings for count in column.drop_null().to_pylist())


def _score(record: Record) -> float:
    if record.f1 is not None:
        return record.f1
    return 100.0 if record.directives_obeyed is None else 100 * record.directives_obeyed


def _records(store: Store, policy: str) -> Iterator[Record]:
    """All of one policy, in the order of the tasks."""
    for task in store.run.outline.tasks:
        name = store.record_file(task.name, 0, policy).name
        for path in store.record_files():
            if (path.parent.parent.name, path.name) == (task.name, name):
                yield from store.read_records(path)


def _answer(record: Record, full: Record | None, seed: int, held_out: bool) -> Answer:
    task = installed(record.task, record.task_version)
    if task is None:
        return Answer(record, full, None, None)
    example = task.example(seed, record.example_index, held_out=held_out)
    question = next((one for one in example.questions if one.id == record.question_id), None)
    same = example.context == record.context and question is not None
    return Answer(record, full, example, question) if same else Answer(record, full, None, None)
