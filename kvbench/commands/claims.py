"""``python -m kvbench claims`` puts to the test on a model what six texts say of KV caches."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from datasets_gen import KNOWN_TASKS, unknown_name
from datasets_gen.tasks.ifeval import IFEVAL
from datasets_gen.tasks.instructions import INSTRUCTIONS
from datasets_gen.tasks.prose import PROSE
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.experiments.arguments import suite_options, task_options
from kvbench.experiments.options import AUTO, at_levels, check_count
from kvbench.store.dates import with_date
from kvbench.store.run_file import Job, TaskOptions
from kvbench.system.errors import KVBenchError
from kvbench.system.files import check_writable
from leaderboards.errors import LeaderboardError
from policies import LazyModule
from policies.declaration.names import split_outside_brackets

if TYPE_CHECKING:
    from kvbench.experiments.grid import Grid
    from kvbench.store.store import Store
    from leaderboards.claims.declaration import Claim, Experiment

build = LazyModule("kvbench.experiments.build_grid")
declaration = LazyModule("leaderboards.claims.declaration")
determinism = LazyModule("kvbench.models.determinism")
local = LazyModule("kvbench.execution.local")
precision = LazyModule("kvbench.models.precision")
published = LazyModule("kvbench.publish.claims")
registry = LazyModule("leaderboards.claims.registry")
runs = LazyModule("kvbench.execution.execute")
site_list = LazyModule("kvbench.publish.site_list")

NUMERICS = "numerics"  # a suite
SUITE_HELP = "Arguments of the suite of the claims N, such as numerics(dtypes=fp16)."
TASKS_HELP = (
    "Options of tasks, which the claims choose: prose(data=FILE), a text for next tokens, "
    "or wikitext or python; ifeval(data=FILE), rows of IFEval, split into messages, "
    "in place of generated system prompts."
)

Beside = Annotated[
    str | None, Option(help="A model of another architecture, to compare.", metavar="MODEL")
]
Larger = Annotated[
    str | None, Option(help="A larger model of the family, to compare.", metavar="MODEL")
]
Only = Annotated[
    str | None, Option(help="Texts by letters and claims, such as F,E2. Default: all.")
]


def command(
    model: options.Model = "reference",
    beside: Beside = None,
    larger: Larger = None,
    only: Only = None,
    limit: options.Limit = None,
    difficulty: options.Difficulty = None,
    tasks: Annotated[str | None, Option(help=TASKS_HELP)] = None,
    max_new_tokens: options.MaxNewTokens = None,
    suite: Annotated[str | None, Option(help=SUITE_HELP)] = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    out: options.Runs = Path("runs"),
    site: options.Site = None,
) -> Result:
    """Runs what is missing for each claim, and tells which claims hold on a model. Raises
    :class:`KVBenchError` for options that make no sense, before anything is run."""
    claims = find_claims(only)
    if limit is not None:
        check_count("--limit", limit)
    if difficulty == AUTO:
        advice = "give the levels that doctor finds, such as base=2,instructions=0"
        raise KVBenchError(f"--difficulty {AUTO}: {advice}")
    check_are_others(model, beside, larger)
    claimed = tasks_of_claims(claims)
    # No run has all of these tasks: their levels are checked once for all.
    at_levels([KNOWN_TASKS[name] for name in sorted(claimed)], difficulty)
    options_by_name = options_of_tasks(tasks, claimed)
    make = partial(
        make_job,
        difficulty=difficulty,
        limit=limit,
        options_by_name=options_by_name,
        max_new_tokens=max_new_tokens,
        of_suite=numerics_options(suite),
        seed=seed,
        device=device,
        dtype=dtype,
    )
    others = {declaration.BESIDE: beside, declaration.LARGER: larger}
    jobs = make_jobs(claims, model, others, make)
    check_has_numerics(suite, jobs.values())
    plans: dict[str, tuple[Job, Grid]] = {}
    for name, job in jobs.items():
        plans[name] = (job, build.check_job(job))
    check_suite_is_enough(claims, {name: grid for name, (_, grid) in plans.items()})
    # Before hours of work: a folder that cannot be written is a fault of the command.
    site_list.make_site_folder("--site", site)
    check_writable("--out", out)
    stores: dict[str, Store] = {}
    # One model after the other: all may not fit into memory.
    for size in dict.fromkeys((model, beside, larger)):
        stores |= _run(plans, size, out)
    result: Result = published.publish_register(
        claims, model, stores, seed, site, beside, difficulty, _data(options_by_name), larger
    )
    return result


def find_claims(only: str | None) -> "Sequence[Claim]":
    """Finds the claims that ``--only`` names, or all. Raises :class:`KVBenchError` for a claim that
    there is not."""
    try:
        claims: Sequence[Claim] = registry.chosen_claims(only)
    except LeaderboardError as error:
        raise KVBenchError(f"--only {only}: {error}") from error
    return claims


def check_are_others(model: str, beside: str | None, larger: str | None) -> None:
    """Raises :class:`KVBenchError` where a model would be compared with itself."""
    for option, other in (("--beside", beside), ("--larger", larger)):
        if other == model:
            advice = f"give another one, or leave {option} out"
            raise KVBenchError(f"{option} {other}: it is the model itself: {advice}")


def tasks_of_claims(claims: "Sequence[Claim]") -> set[str]:
    """Collects the names of the tasks that the experiments of some claims ask."""
    names: set[str] = set()
    for claim in claims:
        for experiment in claim.experiments:
            names.update(experiment.tasks.split(","))
    return names


def make_jobs(
    claims: "Sequence[Claim]",
    model: str,
    others: Mapping[str, str | None],
    make: "Callable[..., Job]",
) -> dict[str, Job]:
    """Makes the job of each experiment of some claims, and its job on the model beside or the
    larger one where the claim compares both. ``others``: these models, by what they are to the
    model. The keys name experiment and model, so that an experiment of several claims runs once."""
    jobs: dict[str, Job] = {}
    for claim in claims:
        for experiment in claim.experiments:
            jobs[experiment.name] = make(experiment, model=model)
            if claim.other and (other := others[claim.other]):
                jobs[experiment.name + claim.other] = make(experiment, model=other)
    return jobs


def check_has_numerics(suite: str | None, jobs: Iterable[Job]) -> None:
    """Raises :class:`KVBenchError` for arguments of the suite of numerics where no job is of it."""
    has_numerics = any(job.suite == NUMERICS for job in jobs)
    if suite is not None and not has_numerics:
        reason = f"--suite {suite} is of the claims N alone"
        raise KVBenchError(f"{reason}: choose one of them by --only")


def check_suite_is_enough(claims: "Sequence[Claim]", grids: "Mapping[str, Grid]") -> None:
    """Raises :class:`KVBenchError` for a claim that is measured in nothing that ``--suite`` leaves,
    which its run would tell at its end."""
    for claim in claims:
        for experiment in claim.experiments:
            for argument, values in claim.takes.items():
                left = getattr(grids[experiment.name].numerics, argument)
                if not {*left} & {*values}:
                    measured = f"{claim.identifier} is measured in {' or '.join(values)}"
                    reason = f"{measured}, and {argument} has {' and '.join(left)} alone"
                    advice = "add it, or name the other claims by --only"
                    raise KVBenchError(f"--suite {NUMERICS}: {reason}: {advice}")


def numerics_options(suite: str | None) -> dict[str, Any]:
    """Returns the arguments of ``--suite``, which no claim chooses; raises :class:`KVBenchError`
    for another suite than that of numerics."""
    options = suite_options(suite)
    if options.pop("suite") not in (None, NUMERICS):
        advice = f"give {NUMERICS} with arguments, or leave --suite out"
        raise KVBenchError(f"--suite {suite}: claims have suites of their own: {advice}")
    return options


def options_of_tasks(text: str | None, claimed: Collection[str]) -> dict[str, TaskOptions]:
    """Returns the options that ``--tasks`` gives to some tasks. ``claimed``: the tasks of the
    claims. Raises :class:`KVBenchError` for a task without options, as claims choose their tasks,
    and for one that they do not ask."""
    values = task_options(text)
    options_by_name: dict[str, TaskOptions] = values["task_options"]
    allowed = {*claimed}
    # Rows of IFEval stand in place of that task (make_job), and no claim names them.
    if INSTRUCTIONS.name in allowed:
        allowed.add(IFEVAL.name)
    words = split_outside_brackets(values["tasks"] or "")
    for word in dict.fromkeys((*words, *options_by_name)):
        if word not in allowed:
            raise KVBenchError(unknown_name("task of these claims", word, sorted(allowed)))
        if word not in options_by_name:
            advice = f"give options behind it, as {PROSE.name}(data=FILE), or leave it out"
            raise KVBenchError(f"--tasks {word}: claims choose their tasks: {advice}")
    return options_by_name


def _data(options_by_name: Mapping[str, TaskOptions]) -> Path | None:
    """Returns the file that the register names: the text for next tokens before rows of IFEval."""
    files = []
    for name in (PROSE.name, IFEVAL.name):
        if name in options_by_name:
            files.append(options_by_name[name].data)
    return next((file for file in files if file is not None), None)


def make_job(
    experiment: "Experiment",
    difficulty: str | None = None,
    limit: int | None = None,
    options_by_name: Mapping[str, TaskOptions] = MappingProxyType({}),
    of_suite: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Job:
    """Returns the options of the run that an experiment asks for. It has no controls but the full
    cache, and of the levels of ``difficulty`` and the options ``options_by_name`` by task those of
    its own tasks; rows of IFEval stand in place of generated system prompts. ``of_suite``: the
    arguments of the suite of numerics."""
    tasks = experiment.tasks.split(",")
    options |= {
        "difficulty": _chosen_levels(difficulty, tasks),
        "controls": False,
        "limit": limit or experiment.contexts,
    }
    if IFEVAL.name in options_by_name and tasks == [INSTRUCTIONS.name]:
        tasks = [IFEVAL.name]
    task_options: dict[str, TaskOptions] = {}
    for task in tasks:
        if task in options_by_name:
            task_options[task] = options_by_name[task]
    options |= {"tasks": ",".join(tasks), "task_options": task_options}
    if experiment.suite == NUMERICS:
        options |= of_suite
    return Job.of({**vars(experiment), **options, "levels": dict(experiment.levels)})


def _chosen_levels(difficulty: str | None, tasks: Sequence[str]) -> str | None:
    """Returns what ``--difficulty`` says of some tasks; None where it says nothing of them."""
    if difficulty and "=" in difficulty:
        levels = difficulty.split(",")
        chosen = [level for level in levels if level.partition("=")[0].strip() in tasks]
        return ",".join(chosen) or None
    generated = [KNOWN_TASKS[task] for task in tasks if task in KNOWN_TASKS]
    if difficulty == AUTO or any(task.top_level for task in generated):
        return difficulty or None
    return None


def _run(
    plans: "Mapping[str, tuple[Job, Grid]]", model_name: str | None, out: Path
) -> "dict[str, Store]":
    """Runs of the jobs of one model, which is loaded once, what neither an earlier start nor a run
    beside it has. ``plans``: jobs with their grids, by experiment and model."""
    plans_of_model = {name: plan for name, plan in plans.items() if plan[0].model == model_name}
    stores: dict[str, Store] = {}
    model = None
    for job, _ in plans_of_model.values():
        if job.suite == NUMERICS:  # before other runs use the GPU
            determinism.prepare_determinism(precision.choose_device(job.device))
    for name, (undated, grid) in plans_of_model.items():
        job = with_date(undated, out)
        executor = local.on_this_machine(job, grid, model)
        model = executor.model
        # Behind the experiment's name stands which other model it is of (make_jobs).
        experiment, short_name = name.split()[0], Path(job.model).resolve().name
        folder = out / f"claims-{experiment}-{short_name}-{executor.identity.short_hash()}"
        stores[name] = runs.complete(executor, folder)
    return stores
