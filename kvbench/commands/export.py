"""``python -m kvbench export``: a task as a dataset that anybody can load."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from datasets import disable_progress_bars

from datasets_gen import get_task
from datasets_gen.export import to_dataset
from kvbench.atomic import write_atomically
from kvbench.console import console
from kvbench.options import DEFAULT_CONTEXTS, check_count


def command(
    task: Annotated[str, typer.Option(help="Name of the task.")],
    out: Annotated[Path, typer.Option(help="Folder that TASK-SPLIT.parquet is written to.")] = Path("datasets"),
    limit: Annotated[int, typer.Option(help="Contexts.")] = DEFAULT_CONTEXTS,
    seed: Annotated[int, typer.Option(help="Seed of the examples.")] = 0,
    split: Annotated[Literal["train", "test"], typer.Option(help="train or test.")] = "test",
) -> None:
    """Writes a task as a parquet file of questions with their contexts, spans and golds."""
    disable_progress_bars()  # datasets would write one to a file too
    dataset = to_dataset(get_task(task), seed, check_count("--limit", limit), split)
    path = out / f"{task}-{split}.parquet"
    write_atomically(path, lambda partial: dataset.to_parquet(partial))
    console.print(f"{len(dataset):,} questions in {path}", soft_wrap=True)
