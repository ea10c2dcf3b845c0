"""Options that several commands take, each with the one help text it has."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from datasets_gen.ifeval import Placement

Tag = Annotated[str, typer.Option(help="Only questions with these tags, comma-separated, such as reverse.")]
ContextTokens = Annotated[int | None, typer.Option(help="Length of the contexts of long_context.")]
Depth = Annotated[float | None, typer.Option(help="Where in them the facts stand, 0 to 1. Default: scattered.")]
Tokenizer = Annotated[
    str | None, typer.Option(help="What counts tokens: reference, a folder, or a hub name. Default: reference.")
]
ExampleSeed = Annotated[int, typer.Option(help="Seed of the examples.")]
ExampleSplit = Annotated[Literal["train", "test"], typer.Option(help="train or test.")]
Phrasings = Annotated[Literal["common", "held-out"], typer.Option(help="Held-out ones were kept from training.")]
Ratios = Annotated[str | None, typer.Option(help="0.1,0.5 or first:last:step, in [0, 1). Default: 0.1:0.9:0.1.")]
Budgets = Annotated[str | None, typer.Option(help="Instead of ratios: tokens to keep in every head, such as 64,128.")]
Data = Annotated[Path | None, typer.Option(help="Rows of ifeval, as JSONL. Default: google/IFEval from the hub.")]
Defence = Annotated[
    Placement | None,
    typer.Option(help="Where a defence stands in the system prompts of ifeval. Default: none, in a suite both."),
]
