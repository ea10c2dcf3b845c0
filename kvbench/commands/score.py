"""``python -m kvbench score``: the stored outputs, scored again without a model."""

from pathlib import Path
from typing import Annotated

import typer

from kvbench.console import console
from kvbench.publish import publish_summary
from kvbench.score import rescore
from kvbench.store import Store


def command(run: Annotated[Path, typer.Argument(help="Folder of a run, such as runs/x.")]) -> None:
    store = Store.open(run)
    total, changed = rescore(store)
    publish_summary(store, store.frame())
    console.print(f"{total:,} records scored, {changed:,} changed; summary in {run / 'summary.json'}", soft_wrap=True)
