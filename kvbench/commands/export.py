"""``python -m kvbench export`` writes a task as a Hugging Face dataset that anybody can load."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from datasets import disable_progress_bars

from datasets_gen.export import dataset_card, to_dataset
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.experiments.arguments import task_with_options
from kvbench.experiments.options import count_contexts
from kvbench.system.errors import KVBenchError
from kvbench.system.files import write_atomically, write_text_atomically
from leaderboards.terminal.result_table import Column, ResultTable

TASK_HELP = f"Name of the task, {options.OF_ONE_TASK}, or a file of questions."


def command(
    context: typer.Context,
    task: Annotated[str, typer.Option(help=TASK_HELP)],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the dataset. Default: datasets/TASK.")
    ] = None,
    profile: options.Profile = "quick",
    limit: options.Limit = None,
    context_tokens: options.ShownTokens = None,
    tokenizer: options.Tokenizer = None,
    seed: options.ExampleSeed = 0,
    split: options.ExampleSplit = "test",
    phrasings: options.Phrasings = "common",
) -> Result:
    """Writes a task as a folder that ``datasets.load_dataset`` reads: questions, contexts, spans
    and golds. Raises :class:`KVBenchError` where a file is there already."""
    disable_progress_bars()  # datasets would write one to a file too
    chosen = task_with_options(task, tokenizer, context_tokens)
    contexts = count_contexts(chosen, profile, limit)
    folder = out or Path("datasets") / chosen.name
    card, path = folder / "README.md", folder / "data" / f"{split}.parquet"
    # Before examples are made, which may take long for long contexts.
    for file in (card, path):
        if file.exists():
            raise KVBenchError(f"{file} is there already: give another --out")
    examples = list(chosen.generate(seed, contexts, split, phrasings == "held-out"))
    words = ["python", "-m", "kvbench", "export"]
    # Defaults are written too, so that the command makes the same data set if they change.
    for name, value in context.params.items():
        if name != "out" and value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    dataset = to_dataset(chosen, examples)
    write_atomically(path, lambda partial: dataset.to_parquet(partial))
    write_text_atomically(card, dataset_card(chosen, split, shlex.join(words)))
    columns = [Column(name) for name in ("task", "version", "split", "contexts", "questions")]
    row = (chosen.name, chosen.full_version, split, contexts, len(dataset))
    return Result([ResultTable("exported", columns, [row])], files={"dataset": path})
