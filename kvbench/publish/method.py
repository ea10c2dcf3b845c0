"""Collects what the method page tells of tasks, policies and the run, as plain data."""

import shlex
from collections.abc import Mapping, Sequence

from pandas import DataFrame, concat

from datasets_gen import KNOWN_TASKS, NATIVE
from kvbench.experiments.catalogue import is_built_in
from kvbench.prompts.context_length import default_tokens
from kvbench.store.run_file import Job, PolicyIdentity, RunFile, TaskIdentity
from leaderboards.aggregate.arguments import argument_rows, arguments_of_records
from leaderboards.pages.method import Method, PolicyEntry, RunEntry, TaskEntry, TaskExample
from policies import KINDS, POLICIES, TITLES, Policy
from policies.composition import TREATMENTS
from policies.treatments.deployed import WAYS, Way
from policies.treatments.options import kind_in


def run_entry(name: str, run: RunFile) -> RunEntry:
    """Describes a run, with the command that makes it again on the kind of device and the type of numbers it had."""
    content = run.model_dump(mode="json", exclude={"job"})
    if run.job is None:
        without = ("it was started by Python code and not by a command of kvbench",)
        return RunEntry(name, run.command, without, run.command, content)
    device = run.identity.device.partition(" ")[0]
    job = run.job.model_copy(
        update={"device": device, "dtype": run.identity.dtype, "date": run.identity.date or None}
    )
    return RunEntry(
        name, shlex.join(["python", "-m", "kvbench", *_words_of(job)]), (), run.command, content
    )


def _words_of(job: Job) -> list[str]:
    """Lists the words of the command: the options that are not as they are without being given, and the model, the
    seed, the mode, the device and the type of numbers always. A run without controls is made again with them."""
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
    words = (
        [option] if value is True else [option, str(value)]
        for option, value in (options | levels).items()
    )
    return [*start, *(word for of_option in words for word in of_option)]


NONE = "–"
SHOWN = (  # columns of the records that the example of a task is made of
    *(
        "example_id",
        "question_id",
        "context",
        "question",
        "golds",
        "target",
        "evidence_spans",
        "answer_spans",
    ),
    *("answerable", "protected", "hops"),
)


def method_of(runs: Mapping[str, RunFile], records: Sequence[DataFrame]) -> Method:
    """Collects what the page tells. ``runs``: by name. ``records``: of the runs, however they are parted."""
    identities = [run.identity for run in runs.values()]
    tasks = {task.name: task for identity in reversed(identities) for task in identity.tasks}
    policies = {
        policy.name: policy for identity in reversed(identities) for policy in identity.policies
    }
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
            _task(task, stored.get(name), prompts.get(name, {})) for name, task in tasks.items()
        ),
        policies=tuple(_policy(policy, used.get(name, "")) for name, policy in policies.items()),
        runs=tuple(run_entry(name, run) for name, run in runs.items()),
    )


def _arguments_used(records: Sequence[DataFrame]) -> dict[str, str]:
    """Tells by policy the arguments that its press ran with, and on which tasks."""
    columns = [rows[["policy", "task", "press_arguments"]].drop_duplicates() for rows in records]
    by_policy: dict[str, list[str]] = {}
    for policy, arguments, tasks in argument_rows(
        list(arguments_of_records(concat(columns)).values())
    ):
        by_policy.setdefault(policy, []).append(f"{arguments} (on {tasks})")
    return {policy: "; ".join(texts) for policy, texts in by_policy.items()}


def _policy(entry: PolicyIdentity, used: str) -> PolicyEntry:
    title, runs, budget = "", "plug-in", ""
    if known := POLICIES.get(entry.name):
        title, runs, budget = TITLES.get(known.paper, ""), known.ways, known.budget
    return PolicyEntry(
        entry.name, _description(entry.name), entry.paper.strip("-"), title, runs, budget, used
    )


def _description(name: str) -> str:
    """Describes a policy by its parts, such as ``snapkv+int8(group=32)``; one of none of kvbench's is told as such."""
    kinds_of: tuple[Mapping[str, Policy | Way], ...] = (POLICIES, TREATMENTS, WAYS)
    known = {kind: one.description for kinds in kinds_of for kind, one in kinds.items()}
    if not is_built_in(name):
        return "No policy of kvbench: a press of its own file or package"
    kinds = [name] if name in POLICIES else [kind_in(part) for part in name.split("+")]
    return "; ".join(known[kind] for kind in kinds)


def _task(entry: TaskIdentity, records: DataFrame | None, prompts: Mapping[str, str]) -> TaskEntry:
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
        prompts=prompts,
    )


def _stored_example(records: DataFrame) -> TaskExample:
    """Chooses a question that can be answered, from as many facts as any other, about a short context."""
    first = records.drop_duplicates(["example_id", "question_id"])
    ranked = first.assign(
        length=first["context"].str.len(), other=~first["answerable"] | (first["protected"] != "")
    )
    order = ["other", "hops", "length", "example_id", "question_id"]
    row = ranked.sort_values(
        order, ascending=[name != "hops" for name in order], kind="stable"
    ).iloc[0]
    golds, target = list(row["golds"]), row["target"]
    evidence, answers = (
        tuple((int(start), int(end)) for start, end in zip(flat[::2], flat[1::2], strict=True))
        for flat in (row["evidence_spans"], row["answer_spans"])
    )
    gold = " / ".join(golds) or "none: leakage and directives are judged"
    return TaskExample(
        row["context"], row["question"], gold, "" if target in golds else target, evidence, answers
    )
