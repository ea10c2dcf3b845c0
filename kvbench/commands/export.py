"""``python -m kvbench export``: a task as a Hugging Face dataset that anybody can load."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from datasets import disable_progress_bars

from datasets_gen import get_task
from datasets_gen.card import dataset_card
from datasets_gen.export import to_dataset
from kvbench.atomic import write_atomically, write_text_atomically
from kvbench.console import console
from kvbench.lengths import count_by, lengthened
from kvbench.options import contexts_of


def command(
    task: Annotated[str, typer.Option(help="Name of the task.")],
    out: Annotated[Path, typer.Option(help="Folder of the dataset: data/SPLIT.parquet and a card.")] = Path("datasets"),
    profile: Annotated[str, typer.Option(help="How many contexts: quick, or as many as the paper has.")] = "quick",
    limit: Annotated[int | None, typer.Option(help="Contexts, instead of the profile's.")] = None,
    context_tokens: Annotated[int | None, typer.Option(help="Length of the contexts of long_context.")] = None,
    depth: Annotated[
        float | None, typer.Option(help="Where in them the facts stand, 0 to 1. Default: scattered.")
    ] = None,
    tokenizer: Annotated[
        str, typer.Option(help="What counts tokens: reference, a folder, or a hub name.")
    ] = "reference",
    seed: Annotated[int, typer.Option(help="Seed of the examples.")] = 0,
    split: Annotated[Literal["train", "test"], typer.Option(help="train or test.")] = "test",
    phrasings: Annotated[
        Literal["common", "held-out"], typer.Option(help="Held-out ones were kept from training.")
    ] = "common",
) -> None:
    """Writes a task as a folder that ``datasets.load_dataset`` reads: questions, contexts, spans and golds."""
    disable_progress_bars()  # datasets would write one to a file too
    (chosen,) = lengthened([get_task(task)], context_tokens, depth, count_by(tokenizer))
    contexts = contexts_of(chosen, profile, limit)
    dataset = to_dataset(chosen, seed, contexts, split, phrasings == "held-out")
    path = out / "data" / f"{split}.parquet"
    write_atomically(path, lambda partial: dataset.to_parquet(partial))
    card = dataset_card(chosen, seed, split, contexts, len(dataset), phrasings)
    write_text_atomically(out / "README.md", card)
    console.print(f"{len(dataset):,} questions in {path}", soft_wrap=True)
