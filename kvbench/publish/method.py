"""Collects what the method page tells of tasks, policies and the run, as plain data."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from pandas import DataFrame, concat

import kvbench
from datasets_gen import KNOWN_TASKS, NATIVE
from kvbench.experiments.arguments import (
    write_arguments,
    write_executor,
    write_suite,
    write_tasks,
)
from kvbench.experiments.catalogue import is_built_in
from kvbench.prompts.context_length import default_tokens
from kvbench.store.run_file import Job, PolicyIdentity, RunFile, TaskIdentity
from leaderboards.aggregate.arguments import argument_rows, arguments_of_records
from leaderboards.pages.method import Method, PolicyEntry, RunEntry, TaskEntry, TaskExample
from policies import LEVEL_KINDS, POLICIES, TITLES, Policy
from policies.composition import TREATMENTS
from policies.treatments.deployed import WAYS, Way
from policies.treatments.options import kind_in

# Options of a command that are written whether or not they are the defaults.
ALWAYS_WRITTEN = ("model", "seed", "mode", "device", "dtype")
# Fields of a job that are no options of one word each.
NO_OPTIONS = (
    *("press", "levels", "controls", "context_tokens"),
    *("dtypes", "sampling", "deterministic", "directions"),  # they stand behind the suite
    "task_options",  # behind the tasks
    *("compress", "device_map", "cell_seconds"),  # behind mode, device and executor
    "phrasings",
)
TITLE = "kvbench: what a KV-cache treatment breaks, at which budget, and why"
HELD_OUT = "it asked in held-out phrasings, for which run has no option any more"
NONE = "–"
SHOWN = (  # columns of the records that the example of a task is made of
    *("example_id", "question_id", "context", "question", "golds", "target"),
    *("evidence_spans", "answer_spans", "answerable", "protected", "hops"),
)


def run_entry(name: str, run: RunFile) -> RunEntry:
    """Describes a run, with the command that makes it again on the kind of device and the type of
    numbers that it had."""
    content = run.model_dump(mode="json", exclude={"job"})
    if run.job is None:
        by_code = ("it was started by Python code and not by a command of kvbench",)
        return RunEntry(name, run.command, by_code, run.command, content)
    identity = run.identity
    settled = {
        "device": identity.device.partition(" ")[0],
        "dtype": identity.dtype,
        "date": identity.date or None,
    }
    words = _command_words(run.job.model_copy(update=settled))
    command = shlex.join(["python", "-m", "kvbench", *words])
    left_out = []
    if run.job.phrasings == "held-out":
        left_out.append(HELD_OUT)
    return RunEntry(name, command, tuple(left_out), run.command, content)


def _command_words(job: Job) -> list[str]:
    """Lists the words of the command: the options that differ from their defaults, and some always.
    A run without controls is made again with them."""
    words = ["compare", job.press] if job.press else ["run"]
    for option, value in _options(job).items():
        words.append(option)
        if value is not True:
            words.append(str(value))
    return words


def _options(job: Job) -> dict[str, Any]:
    """Returns the options of the command with their values, in the order of the job's fields."""
    options: dict[str, Any] = {}
    for name, value in job:
        if name in NO_OPTIONS:
            continue
        is_default = value == Job.model_fields[name].default
        # Without a suite one draw is the default of a run, which its job has no need to say.
        is_usual_count = name == "repeats" and value == 1 and job.suite is None
        if (is_default and name not in ALWAYS_WRITTEN) or is_usual_count:
            continue
        is_opponents = name == "policies" and job.press
        option = "--against" if is_opponents else f"--{name.replace('_', '-')}"
        options[option] = value
    if job.suite is not None:
        options["--suite"] = write_suite(job)
    if job.task_options:
        options["--tasks"] = write_tasks(job)
    options["--mode"] = write_arguments(job.mode, {"compress": job.compress})
    options["--device"] = write_arguments(job.device, {"map": job.device_map})
    if (executor := write_executor(job)) is not None:
        options["--executor"] = executor
    if job.context_tokens != default_tokens(job.suite, job.tasks):
        tokens = NATIVE if job.context_tokens is None else job.context_tokens
        options["--context-tokens"] = tokens
    for kind, text in job.levels.items():
        options[LEVEL_KINDS[kind].option] = text
    return options


def describe_method(runs: Mapping[str, RunFile], records: Sequence[DataFrame]) -> Method:
    """Collects what the page tells. ``runs``: by name. ``records``: of the runs, however they are
    parted."""
    identities = [run.identity for run in runs.values()]
    tasks: dict[str, TaskIdentity] = {}
    policies: dict[str, PolicyIdentity] = {}
    for identity in reversed(identities):  # where runs share a name, the first run describes it
        for task in identity.tasks:
            tasks[task.name] = task
        for policy in identity.policies:
            policies[policy.name] = policy
    records_by_task: dict[str, DataFrame] = {}
    for frame in reversed(records):
        for name, rows in frame[["task", *SHOWN]].groupby("task", sort=False):
            records_by_task[str(name)] = rows
    prompts: dict[str, dict[str, str]] = {}
    for identity in identities:
        for name, prompt in identity.prompts.items():
            prompts.setdefault(name, {}).setdefault(identity.model, prompt)
    task_entries = []
    for name, task in tasks.items():
        task_entries.append(_task(task, records_by_task.get(name), prompts.get(name, {})))
    used = arguments_used(records)
    policy_entries = []
    for name, policy in policies.items():
        policy_entries.append(_policy(policy, used.get(name, "")))
    return Method(
        models=tuple(dict.fromkeys(identity.model for identity in identities)),
        tasks=tuple(task_entries),
        policies=tuple(policy_entries),
        runs=tuple(run_entry(name, run) for name, run in runs.items()),
        citation=write_citation(runs),
    )


def write_citation(runs: Mapping[str, RunFile]) -> str:
    """Writes BibTeX of kvbench, of the year of its latest run, with when each run began."""
    days: list[str] = []
    for name, run in runs.items():
        days.append(f"{name}: {run.created[:10]}")
    fields = {
        "title": TITLE,
        "author": "{kvbench maintainers}",
        "version": kvbench.__version__,
        "year": max(run.created for run in runs.values())[:4],
        "note": f"Runs {', '.join(days)}",
    }
    lines = ["@software{kvbench,"]
    for name, value in fields.items():
        lines.append(f"  {name} = {{{_for_bibtex(value)}}},")
    return "\n".join([*lines, "}"])


def _for_bibtex(text: str) -> str:
    """Writes signs that mean something in LaTeX as it takes them, but for the brackets of a name."""
    return re.sub(r"([_&%#$])", r"\\\1", text)


def arguments_used(records: Sequence[DataFrame]) -> dict[str, str]:
    """Tells by policy the arguments that its press ran with, and on which tasks."""
    columns = [rows[["policy", "task", "press_arguments"]].drop_duplicates() for rows in records]
    arguments_by_key = arguments_of_records(concat(columns))
    by_policy: dict[str, str] = {}
    for policy, arguments, tasks in argument_rows(list(arguments_by_key.values())):
        text = f"{arguments} (on {tasks})"
        if policy in by_policy:
            text = f"{by_policy[policy]}; {text}"
        by_policy[policy] = text
    return by_policy


def _policy(entry: PolicyIdentity, used: str) -> PolicyEntry:
    title, runs, budget = "", "plug-in", ""
    declared = POLICIES.get(entry.name)
    if declared is not None:
        title, runs, budget = TITLES.get(declared.paper, ""), declared.ways, declared.budget
    description = _description(entry.name)
    paper = entry.paper.strip("-")
    return PolicyEntry(entry.name, description, paper, title, runs, budget, used)


def _description(name: str) -> str:
    """Describes a policy by its parts, such as ``snapkv+int8(group=32)``; a policy that kvbench
    does not have is told as such."""
    if not is_built_in(name):
        return "No policy of kvbench: a press of its own file or package"
    if name in POLICIES:
        return POLICIES[name].description
    registries: tuple[Mapping[str, Policy | Way], ...] = (POLICIES, TREATMENTS, WAYS)
    descriptions = []
    for part in name.split("+"):
        kind = kind_in(part)
        for registry in registries:
            if kind in registry:
                descriptions.append(registry[kind].description)
    return "; ".join(descriptions)


def _task(entry: TaskIdentity, records: DataFrame | None, prompts: Mapping[str, str]) -> TaskEntry:
    """Describes a task as the run has it, with words of the installed one."""
    description, source = "", ""
    if entry.name in KNOWN_TASKS:
        installed = KNOWN_TASKS[entry.name]
        description, source = installed.description, installed.paper
    return TaskEntry(
        name=entry.name,
        version=entry.version,
        description=description,
        source=source,
        chance=f"{entry.chance:.1f}" if entry.chance else NONE,  # without golds there is none
        instruction=entry.instruction,
        contexts=entry.contexts,
        example=None if records is None else _stored_example(records),
        prompts=prompts,
    )


def _stored_example(records: DataFrame) -> TaskExample:
    """Chooses a question that can be answered, from as many facts as any other, about a short
    context."""
    questions = records.drop_duplicates(["example_id", "question_id"])
    length = questions["context"].str.len()
    has_no_gold = ~questions["answerable"] | (questions["protected"] != "")
    ranked = questions.assign(length=length, other=has_no_gold)
    order = ["other", "hops", "length", "example_id", "question_id"]
    ascending = [name != "hops" for name in order]
    row = ranked.sort_values(order, ascending=ascending, kind="stable").iloc[0]
    golds, target = list(row["golds"]), row["target"]
    return TaskExample(
        context=row["context"],
        question=row["question"],
        gold=" / ".join(golds) or "none: leakage and directives are judged",
        perfect_output="" if target in golds else target,
        evidence=_ranges(row["evidence_spans"]),
        answers=_ranges(row["answer_spans"]),
    )


def _ranges(flat: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Returns the spans of a record, which stand one after the other, as pairs of characters."""
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return tuple((int(start), int(end)) for start, end in pairs)
