"""``python -m kvbench ls`` lists what is registered."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from datasets_gen import FROM_DATA, KNOWN_TASKS, unknown_name
from kvbench.cli.result import Result
from kvbench.experiments.catalogue import known_policies
from kvbench.models.names import ADAPTERS, REFERENCE_MODELS
from kvbench.models.natural import NATURAL_MODELS
from kvbench.studies.registry import SUITES
from kvbench.system.errors import KVBenchError
from leaderboards.metrics import METRICS
from leaderboards.terminal.result_table import Column, ResultTable


def _tasks() -> ResultTable:
    columns = (
        Column("task"),
        Column("version"),
        Column("family", text=lambda family: family or "-"),
        Column("chance, percent", text=lambda chance: "-" if chance is None else f"{chance:.1f}"),
        Column("what it stresses", of_sentences=True),
    )
    rows = []
    for task in KNOWN_TASKS.values():
        chance = None if task.name in FROM_DATA else task.chance
        rows.append((task.name, task.version, task.family, chance, task.description))
    return ResultTable("tasks", columns, rows)


def _policies() -> ResultTable:
    columns = (
        Column("policy"),
        Column("family", shown=False),
        Column("paper", shown=False),
        Column("how it runs", shown=False),
        Column("what it keeps", cut=True),
        Column("budget", shown=False),
    )
    rows = []
    for policy in known_policies().values():
        way = (policy.name, policy.family, policy.paper, policy.ways)
        rows.append((*way, policy.description, policy.budget))
    caption = "paper, budget and how each runs: --json"
    return ResultTable(
        "policies", columns, rows, caption=caption, headed=False, grouped_by="family"
    )


def _metrics() -> ResultTable:
    columns = (Column("metric"), Column("unit"), Column("better", text=lambda end: end or "-"))
    rows = []
    for metric in METRICS.values():
        rows.append((metric.name, metric.unit, metric.better, metric.line))
    return ResultTable("metrics", (*columns, Column("definition", of_sentences=True)), rows)


def _models() -> ResultTable:
    natural = []
    for model in NATURAL_MODELS.values():
        natural.append((model.name, model.description))
    files = "also a GGUF file, or a LoRA adapter of peft"
    others = ("a path or hub name", f"{files}: any causal language model that kvpress supports")
    rows = [*REFERENCE_MODELS.items(), *natural, *ADAPTERS.items(), others]
    return ResultTable("models", (Column("model"), Column("what it is", of_sentences=True)), rows)


def _suites() -> ResultTable:
    rows, texts = [], []
    for suite in SUITES.values():
        tasks = ", ".join(task.name for task in suite.tasks)
        policies = str(suite.policies)
        rows.append((suite.name, tasks, policies, suite.description))
        lines = [
            suite.name,
            f"  {suite.description}",
            f"  tasks: {tasks}; any other with --tasks",
            f"  policies: {policies}",
        ]
        if arguments := suite.arguments.model_fields:
            lines.append(f"  in brackets: {', '.join(arguments)}")
        texts.append(Text("\n".join(lines)))
    columns = [Column(name) for name in ("suite", "tasks", "policies", "what it asks")]
    return ResultTable("suites", columns, rows, view=Group(*texts))


LISTINGS: Mapping[str, Callable[[], ResultTable]] = {
    "tasks": _tasks,
    "policies": _policies,
    "metrics": _metrics,
    "models": _models,
    "suites": _suites,
}


def command(
    kind: Annotated[
        str, typer.Argument(help="tasks, policies, metrics, models or suites", metavar="KIND")
    ],
    family: Annotated[
        str | None, typer.Option(help="Only policies or tasks of this family.", metavar="NAME")
    ] = None,
) -> Result:
    """Lists what a run can be made of. Raises :class:`KVBenchError` for a listing or a family that
    there is not."""
    if kind not in LISTINGS:
        raise KVBenchError(unknown_name("listing", kind, LISTINGS))
    table = LISTINGS[kind]()
    if family is None:
        return Result([table])
    names = [column.name for column in table.columns]
    if "family" not in names:
        example = f"python -m kvbench ls policies --family {family}"
        raise KVBenchError(f"--family is for policies and tasks: {example}")
    place = names.index("family")
    families = dict.fromkeys(row[place] for row in table.rows if row[place])
    if family not in families:
        raise KVBenchError(unknown_name("family", family, list(families)))
    rows = [row for row in table.rows if row[place] == family]
    return Result([replace(table, rows=rows)])
