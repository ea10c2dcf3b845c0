"""Collects what the method page tells of tasks, policies and the run, as plain data."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pandas import DataFrame, concat

from datasets_gen import KNOWN_TASKS, NATIVE
from kvbench.prompts.context_length import default_tokens
from kvbench.store.run_file import Job, PolicyIdentity, RunFile, TaskIdentity
from leaderboards.aggregate.arguments import argument_rows, arguments_of_records
from leaderboards.pages.method import Method, PolicyEntry, RunEntry, TaskEntry, TaskExample
from policies import KINDS, POLICIES, TITLES


@dataclass(frozen=True)
class Reproduction:
    """The command that makes a run again."""

    command: str  # one line for a shell
    unknown: tuple[str, ...] = ()  # what the reader has to bring along, a sentence each


def reproduction(run: RunFile) -> Reproduction:
    """Tells the command, with the device and the type of numbers that the run had."""
    if run.job is None:
        return Reproduction(run.command, ("it was started by Python code and not by a command of kvbench",))
    device = run.identity.device.partition(" ")[0]
    job = run.job.model_copy(update={"device": device, "dtype": run.identity.dtype})
    return Reproduction(shlex.join(["python", "-m", "kvbench", *words_of(job)]))


def words_of(job: Job) -> list[str]:
    """Lists the words of the command: of its options those that are not as they are without being given, and the
    model, the seed, the mode, the device and the type of numbers always. A run without controls is made again with
    them."""
    always = ("model", "seed", "mode", "device", "dtype")
    options = {
        "--against" if job.press and name == "policies" else f"--{name.replace('_', '-')}": value
        for name, value in job
        if name not in ("press", "levels", "controls", "context_tokens")
        and (name in always or value != Job.model_fields[name].default)
        and (name, value, job.suite) != ("repeats", 1, None)  # the default without a suite
    }
    if job.context_tokens != default_tokens(job.suite, job.tasks):
        options["--context-tokens"] = NATIVE if job.context_tokens is None else job.context_tokens
    levels = {KINDS[kind].option: text for kind, text in job.levels.items()}
    start = ["compare", job.press] if job.press else ["run"]
    words = ([option] if value is True else [option, str(value)] for option, value in (options | levels).items())
    return [*start, *(word for of_option in words for word in of_option)]


NONE = "–"
SHOWN = (  # columns of the records that the example of a task is made of
    *("example_id", "question_id", "context", "question", "golds", "target", "evidence_spans", "answer_spans"),
    *("answerable", "protected", "hops"),
)


def method_of(runs: Mapping[str, RunFile], records: Sequence[DataFrame]) -> Method:
    """Collects what the page tells. ``runs``: by name. ``records``: of the runs, however they are parted."""
    identities = [run.identity for run in runs.values()]
    tasks = {task.name: task for identity in reversed(identities) for task in identity.tasks}
    policies = {policy.name: policy for identity in reversed(identities) for policy in identity.policies}
    stored = {
        str(name): rows
        for frame in reversed(records)
        for name, rows in frame[["task", *SHOWN]].groupby("task", sort=False)
    }
    prompts: dict[str, dict[str, str]] = {}
    for identity in identities:
        for name, prompt in identity.prompts.items():
            prompts.setdefault(name, {}).setdefault(identity.model, prompt)
    used = _arguments_used(records)
    return Method(
        models=tuple(dict.fromkeys(identity.model for identity in identities)),
        tasks=tuple(
            replace(_task(task, stored.get(name)), prompts=prompts.get(name, {})) for name, task in tasks.items()
        ),
        policies=tuple(_policy(policy, used.get(name, "")) for name, policy in policies.items()),
        runs=tuple(run_entry(name, run) for name, run in runs.items()),
    )


def run_entry(name: str, run: RunFile) -> RunEntry:
    again = reproduction(run)
    return RunEntry(name, again.command, again.unknown, run.command, run.model_dump(mode="json", exclude={"job"}))


def _arguments_used(records: Sequence[DataFrame]) -> dict[str, str]:
    """Tells by policy the arguments that its press ran with, and on which tasks."""
    columns = [rows[["policy", "task", "press_arguments"]].drop_duplicates() for rows in records]
    by_policy: dict[str, list[str]] = {}
    for policy, arguments, tasks in argument_rows(list(arguments_of_records(concat(columns)).values())):
        by_policy.setdefault(policy, []).append(f"{arguments} (on {tasks})")
    return {policy: "; ".join(texts) for policy, texts in by_policy.items()}


def _policy(entry: PolicyIdentity, used: str) -> PolicyEntry:
    known = POLICIES.get(entry.name)
    return PolicyEntry(
        name=entry.name,
        description=known.description if known else "No policy of kvbench: a press of its own file or package",
        paper=entry.paper.strip("-"),
        title=TITLES.get(known.paper, "") if known else "",
        runs=known.ways if known else "plug-in",
        budget=known.budget if known else "",
        arguments=used,
    )


def _task(entry: TaskIdentity, records: DataFrame | None) -> TaskEntry:
    """Describes a task as the run has it, with words of the installed one."""
    known = KNOWN_TASKS.get(entry.name)
    return TaskEntry(
        name=entry.name,
        version=entry.version,
        description=known.description if known else "",
        source=known.paper if known else "",
        chance=f"{entry.chance:.1f}" if entry.chance else NONE,  # without golds there is none
        instruction=entry.instruction,
        contexts=entry.contexts,
        example=None if records is None else _stored_example(records),
    )


def _stored_example(records: DataFrame) -> TaskExample:
    """Chooses a question that can be answered, from as many facts as any other, about a short context."""
    first = records.drop_duplicates(["example_id", "question_id"])
    ranked = first.assign(length=first["context"].str.len(), other=~first["answerable"] | (first["protected"] != ""))
    order = ["other", "hops", "length", "example_id", "question_id"]
    row = ranked.sort_values(order, ascending=[name != "hops" for name in order], kind="stable").iloc[0]
    golds, target = list(row["golds"]), row["target"]
    return TaskExample(
        row["context"],
        row["question"],
        " / ".join(golds) or "none: leakage and directives are judged",
        target if target not in golds else "",
        _ranges(row["evidence_spans"]),
        _ranges(row["answer_spans"]),
    )


def _ranges(flat: Any) -> tuple[tuple[int, int], ...]:
    return tuple((int(start), int(end)) for start, end in list(pairwise(flat))[::2])
