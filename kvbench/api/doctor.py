"""Answers whether a press is sound, or a model fit for the benchmark: ``kvbench.doctor``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from datasets_gen import RULER, TASKS, Task
from kvbench.api.calls import Call, library_call
from kvbench.api.examined import DoctorResult
from kvbench.api.kinds import Folder, Model, Press, Tasks, Tokenizer
from kvbench.checks.findings import collect_findings, faulty_checks, findings_table
from kvbench.cli.result import Result
from kvbench.experiments.arguments import task_options
from kvbench.experiments.catalogue import check_ratios, press_alone
from kvbench.experiments.data import with_data
from kvbench.experiments.options import check_count
from kvbench.experiments.suites import find_tasks
from kvbench.experiments.task_options import options_by_task
from kvbench.handed.scope import find_handed_model, find_handed_policy, known_name
from kvbench.models.names import REFERENCE_MODELS, model_source
from kvbench.prompts.context_length import count_by, lengthen
from kvbench.prompts.mode import phrase_tasks
from kvbench.store.run_file import TaskOptions
from kvbench.system.console import progress_bar
from kvbench.system.errors import KVBenchError
from policies import LazyModule, Policy

models = LazyModule("kvbench.models.load")
opening = LazyModule("kvbench.models.opening")
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
OF_PRESSES = ("press", "model", "tokenizer", "device")  # options that go with a press


@library_call
def doctor(
    call: Call,
    press: Press = None,
    *,
    model: Model = "reference",
    tokenizer: Tokenizer = None,
    tasks: Tasks = None,
    limit: int | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    kv: bool = False,
    test: bool = False,
    site: Folder | None = None,
) -> DoctorResult:
    """Checks one press against the contract of every policy. Without a press, it checks whether the
    model is fit for the benchmark.

    Args:
        press: A name, a kvpress press, its class, a function, or a ``Policy``; None for the model.
        model: A name, a folder, or a model in memory, as a pair with its tokenizer.
        tokenizer: Of a model in memory.
        tasks: Of a model: what it is asked; all generated tasks where none are given.
        limit: Of a model: contexts of each task.
        seed: Of the contexts.
        device: ``auto``, ``cpu`` or ``cuda``, for a model that is loaded.
        dtype: ``float32``, ``bfloat16``, ``float16`` or ``auto``, for a model that is loaded.
        kv: Whether the passport of the model's cache is made.
        test: With ``kv``: whether questions are asked with each format too.
        site: With ``kv``: the folder of its page.

    Returns:
        The verdict, and a line for each check. What is not sound is no error, but a verdict.

    Raises:
        KVBenchError: There is no such press or model, or an option is for a model alone.

    Example:
        >>> import kvbench
        >>> kvbench.doctor("snapkv").verdict
        'sound'
    """
    names, model_name, folder = call["press"], str(call["model"]), call.path("site")
    numbers = (call["device"], call["dtype"])
    if kv and names is None:
        if tasks is not None:
            raise KVBenchError("--tasks: --kv chooses its questions: leave one of them out")
        contexts = check_count("--limit", CONTEXTS if limit is None else limit)
        site_list.make_site_folder("--site", folder)
        shown = _examine_cache(model_name, contexts if test else 0, *numbers, folder)
        return DoctorResult(shown)
    if test or site is not None:
        raise KVBenchError(f"{'--test' if test else '--site'} goes with --kv, for a model")
    if names is None:
        contexts = check_count("--limit", CONTEXTS if limit is None else limit)
        model_source(model_name)  # a mistyped name is refused before anything heavy is imported
        values = task_options(call["tasks"])
        chosen = chosen_tasks(values["tasks"], model_name, values["task_options"])
        return DoctorResult(_examine_model(model_name, chosen, contexts, seed, *numbers))
    for option in call.values:
        if option in call.explicit and option not in OF_PRESSES:
            reason = f"--{option.replace('_', '-')} is for a model alone, and {names} is a press"
            raise KVBenchError(f"{reason}: leave one of them out")
    policy = press_alone(names)
    check_ratios("doctor", [policy])
    return DoctorResult(_examine_press(policy, names, model_name, call["device"]))


def chosen_tasks(
    names: str | None, model: str, task_options: Mapping[str, TaskOptions] = MappingProxyType({})
) -> list[Task]:
    """Returns the tasks that are named, or all that are generated, as they are asked of a model;
    RULER's too, unless the model ships with kvbench. ``task_options``: by word of ``--tasks``.
    Raises :class:`KVBenchError` for options that a task does not take here, such as a depth in the
    short contexts of other tasks than RULER's."""
    if names is None and known_name(model) not in REFERENCE_MODELS:
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
    loaded = opening.open_model(model, device, dtype)
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
    loaded = opening.open_model(model, device, "float32")
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
    if find_handed_policy(policy.name) is not None or find_handed_model(model) is not None:
        command = f"kvbench.compare({press}, against={[*opponents]}, model=...)"
    return Result([table], verdict="sound", notes=[f"next: {command}"])


def _examine_model(
    model: str, tasks: Sequence[Task], contexts: int, seed: int, device: str, dtype: str
) -> Result:
    loaded = opening.open_model(model, device, dtype)
    exam = of_model.Examination(loaded, contexts, tasks, seed)
    findings = collect_findings(exam.steps, exam.findings)
    tables = [findings_table(model, findings), mastery.mastery_table(exam.masteries)]
    if exam.profiles:
        tables.append(of_model.reads_table(exam.profiles))
    if not exam.is_fit:
        return Result(tables, verdict=exam.verdict, fault=f"{model} is {exam.verdict}")
    command = mastery.write_command(model, exam.masteries)
    if find_handed_model(model) is not None:
        command = mastery.write_call(exam.masteries)
    notes = [f"what it masters, at its levels: {command}"]
    return Result(tables, verdict=exam.verdict, is_doubt=exam.is_doubtful, notes=notes)
