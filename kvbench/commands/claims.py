"""``python -m kvbench claims`` puts to the test on a model what five texts say of KV caches."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from datasets_gen import KNOWN_TASKS
from datasets_gen.tasks.ifeval import IFEVAL
from datasets_gen.tasks.instructions import INSTRUCTIONS
from datasets_gen.tasks.prose import PROSE
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.experiments.options import AUTO, at_levels, check_count
from kvbench.store.dates import with_date
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError
from kvbench.system.files import check_writable
from leaderboards.errors import LeaderboardError
from policies import LazyModule

if TYPE_CHECKING:
    from kvbench.store.store import Store
    from leaderboards.claims.declaration import Experiment

declaration = LazyModule("leaderboards.claims.declaration")
determinism = LazyModule("kvbench.models.determinism")
grids = LazyModule("kvbench.experiments.build_grid")
local = LazyModule("kvbench.run.local")
precision = LazyModule("kvbench.models.precision")
published = LazyModule("kvbench.publish.claims")
registry = LazyModule("leaderboards.claims.registry")
runs = LazyModule("kvbench.run.execute")
site_list = LazyModule("kvbench.publish.site_list")

NUMERICS = "numerics"  # a suite
DATA_HELP = "A text for next tokens: a file, wikitext or python. For the claims P alone: rows of IFEval, split into messages."


def command(
    model: options.Model = "reference",
    beside: Annotated[
        str | None, Option(help="A model of another architecture, to compare.", metavar="MODEL")
    ] = None,
    larger: Annotated[
        str | None, Option(help="A larger model of the family, to compare.", metavar="MODEL")
    ] = None,
    only: Annotated[
        str | None, Option(help="Texts by letters and claims, such as F,E2. Default: all.")
    ] = None,
    limit: options.Limit = None,
    difficulty: options.Difficulty = None,
    data: Annotated[Path | None, Option(help=DATA_HELP)] = None,
    max_new_tokens: options.MaxNewTokens = None,
    dtypes: options.Dtypes = None,
    sampling: options.Sampling = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    out: options.Runs = Path("runs"),
    site: options.Site = None,
) -> Result:
    """Runs what is missing for each claim, and tells which claims hold on a model."""
    try:
        claims = registry.chosen_claims(only)
    except LeaderboardError as error:
        raise KVBenchError(f"--only {only}: {error}") from error
    if limit is not None:
        check_count("--limit", limit)
    if difficulty == AUTO:
        raise KVBenchError(
            f"--difficulty {AUTO}: give the levels that doctor finds, such as base=2,instructions=0"
        )
    for option, other in (("--beside", beside), ("--larger", larger)):
        if other == model:
            raise KVBenchError(
                f"{option} {other}: it is the model itself: give another one, or leave {option} out"
            )
    asked = {
        name
        for claim in claims
        for experiment in claim.experiments
        for name in experiment.tasks.split(",")
    }
    at_levels(
        [KNOWN_TASKS[name] for name in sorted(asked)], difficulty
    )  # no run has all of them: checked once for all
    jobs: dict[str, Job] = {}  # by experiment, each once
    text, rows = (data, None) if PROSE.name in asked else (None, data)
    job = partial(
        job_of,
        difficulty=difficulty,
        limit=limit,
        data=text,
        ifeval=rows,
        max_new_tokens=max_new_tokens,
        dtypes=dtypes,
        sampling=sampling,
        seed=seed,
        device=device,
        dtype=dtype,
    )
    others = {declaration.BESIDE: beside, declaration.LARGER: larger}
    for claim in claims:
        for experiment in claim.experiments:
            jobs[experiment.name] = job(experiment, model=model)
            if claim.other and (other := others[claim.other]):
                jobs[experiment.name + claim.other] = job(experiment, model=other)
    if (dtypes or sampling) and not any(one.suite == NUMERICS for one in jobs.values()):
        raise KVBenchError(
            "--dtypes and --sampling are of the claims N alone: choose one of them by --only"
        )
    for one in jobs.values():
        grids.check_job(one)
    site_list.make_site_folder("--site", site)
    check_writable("--out", out)
    stores: dict[str, Store] = {}
    for size in dict.fromkeys(
        (model, beside, larger)
    ):  # one after the other: all may not fit into memory
        stores |= _run({name: one for name, one in jobs.items() if one.model == size}, out)
    result: Result = published.publish_register(
        claims, model, stores, seed, site, beside, difficulty, data, larger
    )
    return result


def job_of(
    experiment: "Experiment",
    difficulty: str | None = None,
    limit: int | None = None,
    data: Path | None = None,
    ifeval: Path | None = None,
    **options: Any,
) -> Job:
    """Returns the options of the run that an experiment asks for; it has no controls but the full cache, of the levels
    of ``difficulty`` those of its own tasks, and the ``data`` where it measures next tokens. ``ifeval``: rows in place
    of generated system prompts. ``dtypes`` and ``sampling`` are for numerics alone."""
    levels, tasks = difficulty, experiment.tasks.split(",")
    if levels and "=" in levels:
        levels = ",".join(
            part for part in levels.split(",") if part.partition("=")[0].strip() in tasks
        )
    elif levels != AUTO and not any(
        KNOWN_TASKS[task].top_level for task in tasks if task in KNOWN_TASKS
    ):
        levels = None
    options |= {
        "difficulty": levels or None,
        "controls": False,
        "limit": limit or experiment.contexts,
    }
    options["data"] = data if PROSE.name in tasks else None
    if ifeval is not None and tasks == [INSTRUCTIONS.name]:
        options |= {"tasks": IFEVAL.name, "data": ifeval}
    if experiment.suite != NUMERICS:
        options |= {"dtypes": None, "sampling": None}
    return Job.of({**vars(experiment), **options, "levels": dict(experiment.levels)})


def _run(jobs: Mapping[str, Job], out: Path) -> "dict[str, Store]":
    """Runs what neither an earlier start nor a run beside it has, on one model, which is loaded once."""
    stores: dict[str, Store] = {}
    model = None
    for job in jobs.values():
        if job.suite == NUMERICS:  # before other runs use the GPU
            determinism.prepare_determinism(precision.choose_device(job.device))
    for name, undated in jobs.items():
        job = with_date(undated, out)
        executor = local.on_this_machine(job, model)
        model = executor.model
        folder = (
            out
            / f"claims-{name.split()[0]}-{Path(job.model).resolve().name}-{executor.identity.short_hash()}"
        )
        stores[name] = runs.complete(executor, folder)
    return stores
