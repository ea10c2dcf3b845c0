"""``python -m kvbench doctor`` answers: is this press sound, or is this model fit for the
benchmark?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer
from typer import Option

from datasets_gen import RULER, TASKS, Task
from kvbench.checks.findings import collect_findings, faulty_checks, findings_table
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.experiments.arguments import task_options
from kvbench.experiments.catalogue import check_ratios, press_alone
from kvbench.experiments.data import with_data
from kvbench.experiments.options import check_count
from kvbench.experiments.suites import find_tasks
from kvbench.experiments.task_options import options_by_task
from kvbench.models.names import REFERENCE_MODELS, model_source
from kvbench.prompts.context_length import count_by, lengthen
from kvbench.prompts.mode import phrase_tasks
from kvbench.store.run_file import TaskOptions
from kvbench.system.console import console, progress_bar
from kvbench.system.errors import KVBenchError
from policies import LazyModule, Policy

models = LazyModule("kvbench.models.load")
passports = LazyModule("kvbench.passport.passport")
passport_pages = LazyModule("kvbench.passport.pages")
passport_tables = LazyModule("kvbench.passport.tables")
mastery = LazyModule("kvbench.checks.mastery")
of_model = LazyModule("kvbench.checks.model")
of_press = LazyModule("kvbench.checks.press")
patients = LazyModule("kvbench.checks.patient")
site_list = LazyModule("kvbench.publish.site_list")

CONTEXTS = 8  # of each task, which show what a model is like
RULER_TOKENS = 1024  # of a context of RULER's tasks
KV_HELP = (
    "The passport of a model's cache: its rows by layer, and which formats of fewer bits they "
    "stand, foretold from one text in less than a minute."
)
TEST_HELP = "With --kv: asks questions with each format too, and says which forecasts came true."


def command(
    context: typer.Context,
    press: options.PressOrModel = None,
    model: options.Model = "reference",
    tasks: options.Tasks = None,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    kv: Annotated[bool, Option("--kv", help=KV_HELP)] = False,
    test: Annotated[bool, Option("--test", help=TEST_HELP)] = False,
    site: options.Site = None,
) -> Result:
    """Checks one press against the contract of every policy; fails if the press breaks it. Without
    a press, it checks whether the model is fit for the benchmark, and fails if it masters no
    task. Raises :class:`KVBenchError` beside a press for an option that is for a model alone."""
    if kv and press is None:
        if tasks is not None:
            raise KVBenchError("--tasks: --kv chooses its questions: leave one of them out")
        contexts = check_count("--limit", CONTEXTS if limit is None else limit)
        site_list.make_site_folder("--site", site)
        return _examine_cache(model, contexts if test else 0, device, dtype, site)
    if test or site is not None:
        raise KVBenchError(f"{'--test' if test else '--site'} goes with --kv, for a model")
    if press is None:
        contexts = check_count("--limit", CONTEXTS if limit is None else limit)
        model_source(model)  # a mistyped name is refused before anything heavy is imported
        values = task_options(tasks)
        chosen = chosen_tasks(values["tasks"], model, values["task_options"])
        return _examine_model(model, chosen, contexts, seed, device, dtype)
    if others := options.given_options(context, except_for=("press", "model", "device")):
        option = "--" + others[0].replace("_", "-")
        reason = f"{option} is for a model alone, and {press} is a press"
        raise KVBenchError(f"{reason}: leave one of them out")
    policy = press_alone(press)
    check_ratios("doctor", [policy])
    return _examine_press(policy, press, model, device)


def chosen_tasks(
    names: str | None, model: str, task_options: Mapping[str, TaskOptions] = MappingProxyType({})
) -> list[Task]:
    """Returns the tasks that are named, or all that are generated, as they are asked of a model;
    RULER's too, unless the model ships with kvbench. ``task_options``: by word of ``--tasks``.
    Raises :class:`KVBenchError` for options that a task does not take here, such as a depth in the
    short contexts of other tasks than RULER's."""
    if names is None and model not in REFERENCE_MODELS:
        names = ",".join((*TASKS, *RULER))
    covered = find_tasks(None, names)
    options_of_tasks = options_by_task(covered, task_options)
    counted = count_by(model)
    tasks: list[Task] = []
    for task in with_data(covered, options_of_tasks):
        of_task = options_of_tasks.get(task.name, TaskOptions())
        if of_task.limit is not None:
            reason = "doctor asks as many contexts of each task"
            raise KVBenchError(f"{task.name}(limit=...): {reason}: give --limit instead")
        tokens = None
        if task.name in RULER:
            tokens = RULER_TOKENS
        elif of_task.depth is not None:
            reason = "doctor asks it in short contexts, which have no depth"
            advice = "leave depth out, or measure it by run --context-tokens"
            raise KVBenchError(f"{task.name}(depth={of_task.depth:g}): {reason}: {advice}")
        longer = lengthen([task], tokens, of_task.depth, counted, model)
        tasks += phrase_tasks(longer, model, of_task.prefix)
    return tasks


def _examine_cache(model: str, contexts: int, device: str, dtype: str, site: Path | None) -> Result:
    """Writes the passport of a model's cache. ``contexts``: of each task whose questions are asked,
    0 for none."""
    console.print(f"loading {model}", soft_wrap=True)
    loaded = models.load_model(model, device, dtype)
    with progress_bar() as progress:
        task = progress.add_task("", total=None)
        passport = passports.make_passport(
            loaded,
            contexts=contexts,
            begin=lambda step: progress.update(task, description=step, advance=1),
        )
    tables = [
        passport_tables.layers_table(passport.facts),
        passport_tables.formats_table(passport.forecasts, passport.bytes),
    ]
    if passport.outcomes:
        tables.append(passport_tables.outcomes_table(passport.forecasts, passport.outcomes))
    files = passport_pages.publish_passport(passport, site)
    verdict = ". ".join(filter(None, (passport.verdict, passport.score)))
    return Result(tables, verdict=verdict, files=files)


def _examine_press(policy: Policy, press: str, model: str, device: str) -> Result:
    console.print(f"loading {model}", soft_wrap=True)
    loaded = models.load_model(model, device, "float32")
    if missing := models.missing_weights([policy], loaded):
        raise KVBenchError(missing[policy.name])
    patient = patients.admit(policy, loaded)
    steps = 1 + len(of_press.CHECKS)
    findings = collect_findings(steps, lambda begin: of_press.examine(patient, begin))
    table = findings_table(policy.name, findings)
    if wrong := faulty_checks(findings):  # the reason of each stands in the table
        fault = f"{policy.name} is not sound: {wrong}"
        return Result([table], verdict=f"broken: {wrong}", fault=fault)
    opponents = dict.fromkeys(("snapkv", patient.nearest[0] or "knorm"))
    command = f"python -m kvbench compare {press} --against {','.join(opponents)} --model {model}"
    return Result([table], verdict="sound", notes=[f"next: {command}"])


def _examine_model(
    model: str, tasks: Sequence[Task], contexts: int, seed: int, device: str, dtype: str
) -> Result:
    console.print(f"loading {model}", soft_wrap=True)
    loaded = models.load_model(model, device, dtype)
    exam = of_model.Examination(loaded, contexts, tasks, seed)
    findings = collect_findings(exam.steps, exam.findings)
    tables = [findings_table(model, findings), mastery.mastery_table(exam.masteries)]
    if exam.profiles:
        tables.append(of_model.reads_table(exam.profiles))
    if not exam.is_fit:
        return Result(tables, verdict=exam.verdict, fault=f"{model} is {exam.verdict}")
    command = mastery.write_command(model, exam.masteries)
    notes = [f"what it masters, at its levels: {command}"]
    return Result(tables, verdict=exam.verdict, is_doubt=exam.is_doubtful, notes=notes)
