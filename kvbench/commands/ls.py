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
from kvbench.experiments.suites import SUITES
from kvbench.models.names import ADAPTERS, REFERENCE_MODELS
from kvbench.models.natural import NATURAL_MODELS
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
    tasks = KNOWN_TASKS.values()
    rows = [
        (t.name, t.version, t.family, None if t.name in FROM_DATA else t.chance, t.description)
        for t in tasks
    ]
    return ResultTable("tasks", columns, rows)


def _policies() -> ResultTable:
    hidden = [Column(name, shown=False) for name in ("family", "paper", "how it runs")]
    columns = (
        Column("policy"),
        *hidden,
        Column("what it keeps", cut=True),
        Column("budget", shown=False),
    )
    rows = [
        (p.name, p.family, p.paper, p.ways, p.description, p.budget)
        for p in known_policies().values()
    ]
    caption = "paper, budget and how each runs: --json"
    return ResultTable(
        "policies", columns, rows, caption=caption, headed=False, grouped_by="family"
    )


def _metrics() -> ResultTable:
    columns = (Column("metric"), Column("unit"), Column("better", text=lambda end: end or "-"))
    rows = [(m.name, m.unit, m.better, m.line) for m in METRICS.values()]
    return ResultTable("metrics", (*columns, Column("definition", of_sentences=True)), rows)


def _models() -> ResultTable:
    natural = [(model.name, model.description) for model in NATURAL_MODELS.values()]
    any_other = "also a GGUF file, or a LoRA adapter of peft: any causal language model that kvpress supports"
    others = ("a path or hub name", any_other)
    rows = [*REFERENCE_MODELS.items(), *natural, *ADAPTERS.items(), others]
    return ResultTable("models", (Column("model"), Column("what it is", of_sentences=True)), rows)


def _suites() -> ResultTable:
    rows = []
    for suite in SUITES.values():
        tasks = ", ".join(task.name for task in suite.tasks)
        rows.append((suite.name, tasks, str(suite.policies), suite.description))
    view = Group(
        *(
            Text(f"{name}\n  {asks}\n  tasks: {tasks}; any other with --tasks\n  policies: {of}")
            for name, tasks, of, asks in rows
        )
    )
    columns = [Column(name) for name in ("suite", "tasks", "policies", "what it asks")]
    return ResultTable("suites", columns, rows, view=view)


KINDS: Mapping[str, Callable[[], ResultTable]] = {
    make.__name__.removeprefix("_"): make
    for make in (_tasks, _policies, _metrics, _models, _suites)
}


def command(
    kind: Annotated[
        str, typer.Argument(help="tasks, policies, metrics, models or suites", metavar="KIND")
    ],
    family: Annotated[
        str | None, typer.Option(help="Only policies or tasks of this family.", metavar="NAME")
    ] = None,
) -> Result:
    """Lists what a run can be made of."""
    if kind not in KINDS:
        raise KVBenchError(unknown_name("listing", kind, KINDS))
    table = KINDS[kind]()
    if family is None:
        return Result([table])
    names = [column.name for column in table.columns]
    if "family" not in names:
        raise KVBenchError(
            f"--family is for policies and tasks: python -m kvbench ls policies --family {family}"
        )
    at = names.index("family")
    families = [name for name in dict.fromkeys(row[at] for row in table.rows) if name]
    if family not in families:
        raise KVBenchError(unknown_name("family", family, families))
    return Result([replace(table, rows=[row for row in table.rows if row[at] == family])])
