"""``python -m kvbench ls``: what is registered."""

from collections.abc import Callable, Mapping
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from datasets_gen import FROM_DATA, TASKS, unknown_name
from kvbench.experiments.catalogue import known_policies
from kvbench.experiments.suites import SUITES
from kvbench.models.shipped import REFERENCE_MODELS
from kvbench.system.errors import KVBenchError
from leaderboards.metrics import METRICS

Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]


def _tasks() -> Rows:
    return ("task", "version", "chance F1", "what it stresses"), [
        (t.name, t.version, "-" if t.name in FROM_DATA else f"{t.chance:.1f}", t.description)
        for t in (*TASKS.values(), *FROM_DATA.values())
    ]


def _policies() -> Rows:
    rows: list[tuple[str, ...]] = [
        (p.name, p.paper, p.ways, p.description, p.budget) for p in known_policies().values()
    ]
    return ("policy", "paper", "how it runs", "what it keeps", "budget"), rows


def _metrics() -> Rows:
    return ("metric", "unit", "better", "definition"), [
        (m.name, m.unit, m.better or "-", m.line) for m in METRICS.values()
    ]


def _models() -> Rows:
    rows = list(REFERENCE_MODELS.items())
    return ("model", "what it is"), [*rows, ("a path or hub name", "any causal language model that kvpress supports")]


def _suites() -> Rows:
    return ("suite", "tasks", "policies", "what it asks"), [
        (
            suite.name,
            ", ".join([*(task.name for task in suite.tasks), *(f"{task.name} if named" for task in suite.if_named)]),
            ", ".join(suite.policies),
            suite.description,
        )
        for suite in SUITES.values()
    ]


KINDS: Mapping[str, Callable[[], Rows]] = {
    "tasks": _tasks,
    "policies": _policies,
    "metrics": _metrics,
    "models": _models,
    "suites": _suites,
}


def listing(kind: str) -> Rows:
    """Header and rows of a registry."""
    if kind not in KINDS:
        raise KVBenchError(unknown_name("listing", kind, KINDS))
    return KINDS[kind]()


def command(kind: Annotated[str, typer.Argument(help="tasks, policies, metrics, models or suites")]) -> None:
    header, rows = listing(kind)
    console = Console(highlight=False)
    if kind in ("policies", "suites"):  # too much for columns of 80 characters
        for name, beside, what, *more in rows:
            console.print(Text(f"{name:<32}{beside}", style="bold"))
            console.print(Padding(Text(f"{what}: {'; '.join(more)}"), (0, 0, 0, 2)))
        return
    table = Table(box=None, pad_edge=False)
    for number, title in enumerate(header):
        table.add_column(title, no_wrap=number == 0, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
