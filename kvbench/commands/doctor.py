"""``python -m kvbench doctor`` answers: is this press sound, or is this model fit for the benchmark?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from datasets_gen import RULER, TASKS, Task
from kvbench.checks.findings import faults_among, findings_of, findings_table
from kvbench.cli.parameters import AnswerPrefix, Data, Device, Dtype, Limit, Model, Seed, Tasks
from kvbench.cli.result import Result
from kvbench.experiments.catalogue import check_is_press_alone, check_ratios, single_policy
from kvbench.experiments.data import with_data
from kvbench.experiments.options import check_count
from kvbench.experiments.suites import coverage_of
from kvbench.models.names import REFERENCE_MODELS, model_source
from kvbench.prompts.context_length import count_by, lengthen
from kvbench.prompts.mode import asked_of
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from policies import LazyModule, Policy

examination = LazyModule("kvbench.checks.doctor")
fitness = LazyModule("kvbench.checks.fitness")
mastery = LazyModule("kvbench.checks.mastery")
models = LazyModule("kvbench.models.load")
patients = LazyModule("kvbench.checks.patient")

CONTEXTS = 8  # of each task, which show what a model is like
RULER_TOKENS = 1024  # of a context of RULER's tasks


def command(
    press: Annotated[
        str | None,
        typer.Argument(help="file.py:Press, package.module:factory, or a name of ls policies. None: the model."),
    ] = None,
    model: Model = "reference",
    tasks: Tasks = None,
    limit: Limit = None,
    data: Data = None,
    answer_prefix: AnswerPrefix = "auto",
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> Result:
    """Checks one press against the contract of every policy; fails if the press breaks it. Without a press, it checks
    whether the model is fit for the benchmark, and fails if it masters no task."""
    if press is None:
        contexts = check_count("--limit", CONTEXTS if limit is None else limit)
        model_source(model)  # a mistyped name is refused before anything heavy is imported
        chosen = tasks_of(tasks, model, data)
        return _of_model(model, asked_of(chosen, model, answer_prefix), contexts, seed, device, dtype)
    given = {
        "--tasks": tasks is not None,
        "--limit": limit is not None,
        "--data": data is not None,
        "--answer-prefix": answer_prefix != "auto",
    }
    for option, is_given in {**given, "--seed": seed != 0, "--dtype": dtype != "auto"}.items():
        if is_given:
            raise KVBenchError(f"{option} is for a model alone, and {press} is a press: leave one of them out")
    policy = single_policy(press)
    check_is_press_alone(policy)
    check_ratios("doctor", [policy])
    return _of_press(policy, press, model, device)


def tasks_of(names: str | None, model: str, data: Path | None = None) -> list[Task]:
    """Returns the tasks that are named, or all that are generated; and RULER's of a length that takes minutes, unless
    the model ships with kvbench: those were taught other tasks."""
    if names is None and model not in REFERENCE_MODELS:
        names = ",".join((*TASKS, *RULER))
    chosen = with_data(coverage_of(None, names, None, None).tasks, data, None)
    counted = count_by(model)
    return [lengthen([task], RULER_TOKENS, None, counted, model)[0] if task.name in RULER else task for task in chosen]


def _of_press(policy: Policy, press: str, model: str, device: str) -> Result:
    console.print(f"loading {model}", soft_wrap=True)
    loaded = models.load_model(model, device, "float32")
    if missing := models.missing_weights([policy], loaded):
        raise KVBenchError(missing[policy.name])
    patient = patients.admit(policy, loaded)
    findings = findings_of(1 + len(examination.CHECKS), lambda begin: examination.examine(patient, begin))
    table = findings_table(policy.name, findings)
    if not (wrong := faults_among(findings)):
        following = f"next: python -m kvbench compare {press} --against snapkv,knorm"
        return Result([table], verdict="sound", notes=[following])
    checks = " ".join(finding.check for finding in wrong)  # what each found stands in the table
    return Result([table], verdict=f"broken: {checks}", fault=f"{policy.name} is not sound: {checks}")


def _of_model(model: str, tasks: Sequence[Task], contexts: int, seed: int, device: str, dtype: str) -> Result:
    console.print(f"loading {model}", soft_wrap=True)
    exam = fitness.Examination(models.load_model(model, device, dtype), contexts, tasks, seed)
    findings = findings_of(exam.steps, exam.findings)
    tables = [findings_table(model, findings), mastery.mastery_table(exam.masteries)]
    tables += [fitness.reads_table(exam.reads)] if exam.reads else []
    if not exam.is_fit:
        wrote = next((f": {', '.join(map(repr, one.answers))}" for one in exam.masteries if one.answers), "")
        return Result(tables, verdict=exam.verdict, fault=f"{model} is {exam.verdict}{wrote}")
    notes = [f"what it masters, at its levels: {mastery.command_of(model, exam.masteries)}"]
    return Result(tables, verdict=exam.verdict, is_doubt=exam.is_doubtful, notes=notes)
