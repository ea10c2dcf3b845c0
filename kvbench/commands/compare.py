"""``python -m kvbench compare``: is this press better than the others, and where?"""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from datasets_gen import TASKS
from kvbench.cli.parameters import (
    NONE_GIVEN,
    CellSeconds,
    Device,
    Dtype,
    LevelTexts,
    Limit,
    MaxKVGB,
    Mode,
    Model,
    Press,
    Profile,
    Repeats,
    Runs,
    Seed,
    Site,
    Tasks,
)
from kvbench.engine.treat.time_limit import CELL_SECONDS, TimeLimit
from kvbench.experiments.catalogue import check_names, choose_policies
from kvbench.experiments.options import cell_bound, choose, contexts_of, kv_bytes, parse_points
from kvbench.publish.site import publish_comparison, publish_summary
from kvbench.run.report import report_failures, report_identities
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from kvbench.system.files import make_folder
from leaderboards.terminal.verdicts import failure_table, verdict_table
from policies import FULL, POLICIES, LazyModule, Policy

grids = LazyModule("kvbench.experiments.grid")
models = LazyModule("kvbench.models.load")
process = LazyModule("kvbench.system.process")
runs = LazyModule("kvbench.run.execute")
settings = LazyModule("kvbench.experiments.setting")

OTHERS = "snapkv,expected_attention"


def command(
    press: Press,
    against: Annotated[str, typer.Option(help="Names of policies and plug-ins, comma-separated.")] = OTHERS,
    tasks: Tasks = None,
    few: LevelTexts = NONE_GIVEN,
    repeats: Repeats = 1,
    profile: Profile = "quick",
    limit: Limit = None,
    model: Model = "reference",
    seed: Seed = 0,
    mode: Mode = "agnostic",
    device: Device = "auto",
    dtype: Dtype = "auto",
    out: Runs = Path("runs"),
    site: Site = Path("site"),
    cell_seconds: CellSeconds = CELL_SECONDS,
    max_kv_gb: MaxKVGB = None,
) -> None:
    """Runs what is missing of a press and of those it is compared with, and tells where it is better, worse or tied."""
    named = choose("task", tasks, TASKS)
    mine = _one(press, choose_policies(press, named, mode))
    others = [
        policy
        for policy in choose_policies(against, named, mode)
        if (policy.name, policy.origin) != (mine.name, mine.origin)
    ]
    if not others:
        raise KVBenchError(f"--against {against}: name a policy other than {mine.name}")
    chosen = [POLICIES[FULL], *(policy for policy in (*others, mine) if policy.name != FULL)]
    check_names(chosen)
    points = parse_points(few, chosen, repeats, comparing=True)
    setting = settings.Setting(chosen, points, seed, mode, kv_bytes(max_kv_gb), TimeLimit(cell_bound(cell_seconds)))
    grid = grids.Grid([(task, contexts_of(task, profile, limit)) for task in named], setting)
    make_folder("--site", site)  # found out now rather than after the run
    console.print(f"loading {model}", soft_wrap=True)
    loaded = models.load_model(model, device, dtype)
    process.settle()
    if missing := models.missing_weights(chosen, loaded):
        raise KVBenchError(next(iter(missing.values())))
    folder = out / f"compare-{Path(model).resolve().name}-{mode}-{grid.identity(loaded).short_hash()}"
    store = runs.execute(loaded, grid, folder, shlex.join(["python", "-m", "kvbench", *sys.argv[1:]]))
    records = store.frame()
    rows = publish_summary(store, records)
    page, duels, contrasts = publish_comparison(store, records, mine.name, [other.name for other in others], site)
    output = Console(highlight=False)
    for other in others:
        against_it = [duel for duel in duels if duel.other == other.name]
        if not against_it:
            console.print(f"no verdict against {other.name}: no cell of both is complete", style="yellow", markup=False)
            continue
        output.print(verdict_table(against_it))
        if contrasts[other.name]:
            output.print(failure_table(contrasts[other.name]))
    console.print(f"records: {folder}\npage:    {page}", soft_wrap=True)
    report_identities(store, records, chosen)
    report_failures(rows)


def _one(press: str, chosen: list[Policy]) -> Policy:
    if len(chosen) != 1:
        raise KVBenchError(f"compare takes one press, and '{press}' names {len(chosen)}: name others with --against")
    return chosen[0]
