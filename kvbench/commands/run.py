"""``python -m kvbench run``: the main job."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from kvbench.atomic import make_folder
from kvbench.catalogue import EVERYTHING, check_scope, choose_policies, missing_weights, with_references
from kvbench.commands.parameters import (
    Budgets,
    CellSeconds,
    ContextTokens,
    Data,
    Defence,
    Depth,
    Device,
    Dtype,
    Limit,
    MaxKVGB,
    Mode,
    Model,
    Phrasings,
    Profile,
    Ratios,
    Runs,
    Seed,
    Site,
    Tasks,
)
from kvbench.console import console
from kvbench.data import check_judges, with_data
from kvbench.engine.bounds import CELL_SECONDS, Patience
from kvbench.errors import KVBenchError
from kvbench.grid import Grid
from kvbench.lengths import lengthened
from kvbench.models import LoadedModel, load_model
from kvbench.options import (
    DEFAULT_MAX_KV_GB,
    cell_bound,
    check_name,
    contexts_of,
    kv_bytes,
    parse_levels,
    with_answers_of,
)
from kvbench.process import settle
from kvbench.publish import publish_site
from kvbench.report import report_failures, report_identities
from kvbench.run import execute
from kvbench.setting import Setting
from kvbench.suites import wanted
from leaderboards import telling, terminal_table


def command(
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
    ratios: Ratios = None,
    budgets: Budgets = None,
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
    out: Runs = Path("runs"),
    name: Annotated[str | None, typer.Option(help="Name of the run. Default: made from its identity.")] = None,
    site: Site = Path("site"),
    cell_seconds: CellSeconds = CELL_SECONDS,
    max_kv_gb: MaxKVGB = DEFAULT_MAX_KV_GB,
) -> None:
    """Runs tasks and policies over ratios, stores every answer, and builds the page."""
    if name is not None:
        check_name(name)
    # The model is not loaded yet; it is asked for its tokens when an example is made.
    asked = wanted(suite, tasks, policies, compress)
    named = with_data(asked.tasks, data, defence, asked.defence)
    check_judges(named, mode)
    check_scope(named, mode, asked.scope)
    named = lengthened(named, context_tokens, depth, lambda text: loaded.count_tokens(text), model)
    named = with_answers_of(named, max_new_tokens)
    counts = [(task, contexts_of(task, profile, limit)) for task in named]
    chosen = with_references(choose_policies(asked.policies, named, mode, even_if_broken=True))
    removed, kept = parse_levels(ratios, budgets)
    patience = Patience(cell_bound(cell_seconds))
    setting = Setting(chosen, removed, seed, mode, kv_bytes(max_kv_gb), patience, kept, asked.scope)
    grid = Grid(counts, setting, held_out=phrasings == "held-out")
    make_folder("--site", site)  # found out now rather than after the run
    console.print(f"loading {model}", soft_wrap=True)
    loaded = load_model(model, device, dtype)
    settle()
    grid = with_weights(grid, loaded, everything=asked.policies == EVERYTHING)
    folder = out / (name or f"{Path(model).resolve().name}-{mode}-{grid.identity(loaded).short_hash()}")
    store = execute(loaded, grid, folder, shlex.join(["python", "-m", "kvbench", *sys.argv[1:]]))
    records = store.frame()
    pages, rows = publish_site(store, records, site)
    output = Console()
    for measure in telling(rows):
        output.print(terminal_table(rows, measure))
    console.print("\n".join([f"records: {folder}", *(f"page:    {page}" for page in pages)]), soft_wrap=True)
    report_identities(store, records, grid.setting.policies)
    report_failures(rows)


def with_weights(grid: Grid, model: LoadedModel, everything: bool) -> Grid:
    """The grid without the policies whose weights are not there, which is told; of one that was named, an error."""
    missing = missing_weights(grid.setting.policies, model)
    if missing and not everything:
        raise KVBenchError(f"{next(iter(missing.values()))}: leave it out")
    for reason in missing.values():
        console.print(f"left out: {reason}", soft_wrap=True, markup=False)
    left = [policy for policy in grid.setting.policies if policy.name not in missing]
    return replace(grid, setting=grid.setting.only(left))
