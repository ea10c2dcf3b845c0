"""``python -m kvbench compare``: is this press better than the others, and where?"""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from datasets_gen import TASKS
from kvbench.catalogue import choose_policies, missing_weights, with_controls
from kvbench.console import console
from kvbench.errors import KVBenchError
from kvbench.models import load_model
from kvbench.options import DEFAULT_MAX_KV_GB, choose, contexts_of, kv_bytes, parse_ratios
from kvbench.process import settle
from kvbench.publish import publish_site
from kvbench.run import Grid, execute
from kvbench.setting import Setting
from leaderboards import LeaderboardError
from leaderboards.paired import Difference, Duel, duels

STYLES = {"better": "green", "worse": "red", "tied": "dim"}
SOME_RATIOS = "0.25,0.5,0.75,0.9"


def command(
    press: Annotated[str, typer.Argument(help="file.py:Press, package.module:factory, or a name of ls policies.")],
    against: Annotated[str, typer.Option(help="Names of policies, comma-separated.")] = "snapkv,expected_attention",
    tasks: Annotated[str | None, typer.Option(help="Task names, comma-separated. Default: all.")] = None,
    ratios: Annotated[str, typer.Option(help="0.1,0.5 or first:last:step, in [0, 1).")] = SOME_RATIOS,
    profile: Annotated[str, typer.Option(help="How many contexts of each task: quick or paper.")] = "quick",
    limit: Annotated[int | None, typer.Option(help="Contexts per task, instead of the profile's.")] = None,
    model: Annotated[str, typer.Option(help="reference, a local path, or a hub name.")] = "reference",
    seed: Annotated[int, typer.Option(help="Seed of the examples and of random policies.")] = 0,
    mode: Annotated[Literal["agnostic", "aware"], typer.Option(help="As in run.")] = "agnostic",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    out: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("runs"),
    site: Annotated[Path, typer.Option(help="Folder of the page.")] = Path("site"),
    max_kv_gb: Annotated[float, typer.Option(help="Bound on live keys and values.")] = DEFAULT_MAX_KV_GB,
) -> None:
    """Runs what is missing of a press and of those it is compared with, and tells where it is better, worse or tied."""
    named = choose("task", tasks, TASKS)
    mine, others = choose_policies(press, named, mode), choose_policies(against, named, mode)
    if len(mine) != 1:
        raise KVBenchError(f"compare takes one press, not {len(mine)}: name the others with --against")
    others = [policy for policy in others if policy.name != mine[0].name]
    if not others:
        raise KVBenchError(f"--against {against}: name a policy other than {mine[0].name}")
    setting = Setting(with_controls([*others, *mine]), parse_ratios(ratios), seed, mode, kv_bytes(max_kv_gb))
    grid = Grid([(task, contexts_of(task, profile, limit)) for task in named], setting)
    console.print(f"loading {model}", soft_wrap=True)
    loaded = load_model(model, device, dtype)
    settle()
    if missing := missing_weights(setting.policies, loaded):
        raise KVBenchError(next(iter(missing.values())))
    folder = out / f"compare-{Path(model).resolve().name}-{mode}-{grid.identity(loaded).short_hash()}"
    store = execute(loaded, grid, folder, " ".join(["python -m kvbench", *sys.argv[1:]]))
    page, _ = publish_site(store, site)
    try:
        found = duels(store.frame(), mine[0].name, [policy.name for policy in others], seed)
    except LeaderboardError as error:
        raise KVBenchError(str(error)) from error
    Console(highlight=False).print(verdicts(mine[0].name, found))
    console.print(f"records: {folder}\npage:    {page}", soft_wrap=True)


def verdicts(name: str, found: list[Duel]) -> Table:
    """One row for each policy, task and ratio. p is McNemar's, corrected (Holm) over all rows."""
    table = Table(title=f"{name}: F1 and hallucination rate, percent, paired, 95 %", box=None, pad_edge=False)
    for title in ("against", "task", "ratio", "F1", "hallucination", "p", ""):
        table.add_column(title, overflow="fold", justify="left" if title in ("against", "task", "") else "right")
    for duel in found:
        table.add_row(
            duel.other,
            duel.task,
            f"{duel.ratio:g}",
            _written(duel.f1, 1),
            _written(duel.hallucination, 100),
            f"{duel.p:.2g}",
            Text(duel.verdict, STYLES[duel.verdict]),
        )
    return table


def _written(difference: Difference, factor: float) -> str:
    if difference.low is None or difference.high is None:
        return f"{factor * difference.mean:+.0f}"
    return f"{factor * difference.mean:+.0f} [{factor * difference.low:+.0f}, {factor * difference.high:+.0f}]"
