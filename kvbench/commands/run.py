"""``python -m kvbench run``: the main job."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from kvbench.cli.parameters import (
    NONE_GIVEN,
    Address,
    CellSeconds,
    ContextTokens,
    CPUs,
    Data,
    Defence,
    Depth,
    Device,
    DeviceMap,
    Dtype,
    ExecutorName,
    GPUs,
    LevelTexts,
    Limit,
    MaxKVGB,
    Mode,
    Model,
    MostWorkers,
    Phrasings,
    Profile,
    Repeats,
    Runs,
    Seed,
    Site,
    Tasks,
)
from kvbench.engine.treat.time_limit import CELL_SECONDS
from kvbench.experiments.options import check_name
from kvbench.publish.site import publish_site
from kvbench.run.report import report_failures, report_identities
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from kvbench.system.console import console
from kvbench.system.files import check_writable, make_folder
from leaderboards.terminal.table import telling, terminal_table
from policies import LazyModule, Policy

executors = LazyModule("kvbench.run.choice")
runs = LazyModule("kvbench.run.execute")


def command(
    context: typer.Context,
    model: Model = "reference",
    suite: Annotated[
        str | None, typer.Option(help="Its tasks and policies, and a page of its own: see ls suites.")
    ] = None,
    tasks: Tasks = None,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Names and file.py:Press, comma-separated, or all; the controls run beside them. Default: a few."
        ),
    ] = None,
    levels: LevelTexts = NONE_GIVEN,
    repeats: Repeats = 1,
    profile: Profile = "quick",
    limit: Limit = None,
    phrasings: Phrasings = "common",
    context_tokens: ContextTokens = None,
    depth: Depth = None,
    data: Data = None,
    defence: Defence = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Of an answer. Default: what each task has.")] = None,
    seed: Seed = 0,
    mode: Mode = "agnostic",
    compress: Annotated[
        Literal["context", "system"] | None,
        typer.Option(help="Any context (default), or only contexts that are system prompts."),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    device_map: DeviceMap = None,
    out: Runs = Path("runs"),
    name: Annotated[str | None, typer.Option(help="Name of the run. Default: made from its identity.")] = None,
    site: Site = Path("site"),
    cell_seconds: CellSeconds = CELL_SECONDS,
    max_kv_gb: MaxKVGB = None,
    executor: ExecutorName = "local",
    address: Address = None,
    workers: MostWorkers = None,
    cpus_per_worker: CPUs = None,
    gpus_per_worker: GPUs = None,
) -> None:
    """Runs tasks and policies over levels, stores every answer, and builds the page."""
    if name is not None:
        check_name(name)
    job = Job.of({**context.params, "levels": levels})
    make_folder("--site", site)  # found out now rather than after the run
    check_writable("--out", out)
    with executors.chosen_executor(executor, job, address, workers, cpus_per_worker, gpus_per_worker) as chosen:
        folder = out / (name or f"{Path(model).resolve().name}-{mode}-{chosen.identity.short_hash()}")
        store = runs.complete(chosen, folder, shlex.join(["python", "-m", "kvbench", *sys.argv[1:]]))
    publish(store, chosen.grid.setting.policies, site)


def publish(store: Store, policies: Sequence[Policy], site: Path) -> None:
    """The table, the pages, and what is to be complained of."""
    records = store.frame()
    pages, rows = publish_site(store, records, site)
    output = Console()
    for measure in telling(rows):
        output.print(terminal_table(rows, measure))
    console.print("\n".join([f"records: {store.folder}", *(f"page:    {page}" for page in pages)]), soft_wrap=True)
    report_identities(store, records, policies)
    report_failures(rows)
