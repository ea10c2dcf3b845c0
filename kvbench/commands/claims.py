"""``python -m kvbench claims`` puts to the test on a model what five texts say of KV caches."""

import json
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.experiments.build_grid import check_job
from kvbench.experiments.options import check_count
from kvbench.publish.downloads import write_sheets
from kvbench.publish.site_list import CLAIMS, ROOT, enlist, link_sites, make_site_folder, site_of_run
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from kvbench.system.files import check_writable, write_text_atomically
from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.declaration import BESIDE, LARGER, Claim, Experiment
from leaderboards.claims.registry import chosen_claims
from leaderboards.claims.verdict import VERDICTS, Judgement, judge
from leaderboards.downloads.tables import register_rows, register_sheet
from leaderboards.errors import LeaderboardError
from leaderboards.pages.claims import CLAIMS_PAGE, Run, build_claims, register_folder
from leaderboards.terminal.verdicts import claims_table
from policies import LazyModule

local = LazyModule("kvbench.run.local")
runs = LazyModule("kvbench.run.execute")


def command(
    model: options.Model = "reference",
    larger: Annotated[
        str | None, typer.Option(help="A larger model of the same family, for claims about size.", metavar="MODEL")
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(help="A model of another architecture, for claims about architecture.", metavar="MODEL"),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Texts by their letters and claims, such as F,E2. Default: all.")
    ] = None,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    out: options.Runs = Path("runs"),
    site: options.Site = None,
) -> Result:
    """Runs what is missing for each claim, and tells which claims hold on a model."""
    try:
        claims = chosen_claims(only)
    except LeaderboardError as error:
        raise KVBenchError(f"--only {only}: {error}") from error
    if limit is not None:
        check_count("--limit", limit)
    jobs = {
        name: job_of(experiment, size, limit, seed, device, dtype)
        for name, experiment, size in experiments_of(claims, model, larger, beside)
    }
    for job in jobs.values():
        check_job(job)
    make_site_folder("--site", site)
    check_writable("--out", out)
    stores: dict[str, Store] = {}
    for size in dict.fromkeys((model, larger, beside)):  # one after the other: both may not fit into memory
        stores |= _run({name: job for name, job in jobs.items() if job.model == size}, out)
    register = publish_register(claims, model, larger, stores, seed, site, beside)
    return Result([claims_table(register.judgements)], register.verdict, files=register.files)


def experiments_of(
    claims: Sequence[Claim], model: str, larger: str | None, beside: str | None = None
) -> list[tuple[str, Experiment, str]]:
    """Lists what the claims need, each experiment once: its name, itself, and the model that it takes."""
    others = {LARGER: larger, BESIDE: beside}
    experiments: dict[str, tuple[str, Experiment, str]] = {}
    for claim in claims:
        for experiment in claim.experiments:
            experiments[experiment.name] = (experiment.name, experiment, model)
            for which in claim.of_others:
                if other := others[which]:
                    experiments[experiment.name + which] = (experiment.name + which, experiment, other)
    return list(experiments.values())


def job_of(experiment: Experiment, model: str, limit: int | None, seed: int, device: str, dtype: str) -> Job:
    """Returns the options of the run that an experiment asks for; it has no controls but the full cache."""
    return Job(
        model=model,
        device=device,
        dtype=dtype,
        suite=experiment.suite,
        tasks=experiment.tasks,
        policies=experiment.policies,
        controls=False,
        levels=dict(experiment.levels),
        repeats=experiment.repeats,
        limit=limit or experiment.contexts,
        seed=seed,
        mode=experiment.mode,
        observe=experiment.observe,
        context_tokens=experiment.context_tokens,
    )


def _run(jobs: Mapping[str, Job], out: Path) -> dict[str, Store]:
    """Runs what neither an earlier start nor a run beside it has, on one model, which is loaded once."""
    stores: dict[str, Store] = {}
    model = None
    for name, job in jobs.items():
        executor = local.on_this_machine(job, model)
        model = executor.model
        folder = out / f"claims-{name.split()[0]}-{Path(job.model).resolve().name}-{executor.identity.short_hash()}"
        stores[name] = runs.complete(executor, folder, shlex.join(["python", "-m", "kvbench", *sys.argv[1:]]))
    return stores


CLAIMS_FILE = "claims.json"


@dataclass(frozen=True)
class Register:
    """The register of claims of one model, as it was published."""

    judgements: Sequence[Judgement]
    verdict: str
    files: Mapping[str, Path]


def publish_register(
    claims: Sequence[Claim],
    model: str,
    larger: str | None,
    stores: Mapping[str, Store],
    seed: int,
    site: Path | None,
    beside: str | None = None,
) -> Register:
    """Judges claims by the stores of their experiments, and writes the register into a folder of the site."""
    evidence = {
        name: Evidence(
            store.frame(), seed, {table.name: store.study_table(table).to_pandas() for table in store.study_tables}
        )
        for name, store in stores.items()
    }
    judgements = judge(claims, evidence)
    folder = site or ROOT / register_folder(str(Path(model).resolve()))
    content = {
        "model": model,
        "larger": larger,
        "beside": beside,
        "runs": {name: str(store.folder) for name, store in stores.items()},
        "claims": register_rows(judgements),
    }
    register, page = folder / CLAIMS_FILE, folder / CLAIMS_PAGE
    write_text_atomically(register, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    sheet = register_sheet(judgements)
    write_sheets(folder, [sheet])
    runs = {
        name: Run(store.folder.name, site_of_run(folder, store), str(store.folder)) for name, store in stores.items()
    }
    write_text_atomically(page, build_claims(model, larger, judgements, runs, [sheet], beside))
    enlist(folder, CLAIMS, [page], list(stores.values()))
    link_sites(folder)
    counts = Counter(one.verdict for one in judgements)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    verdict = f"{len(claims)} claims in {len(judgements)} statistics on {model}: {summary}"
    return Register(judgements, verdict, {"page": page, "register": register})
