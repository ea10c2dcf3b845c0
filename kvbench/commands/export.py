"""``python -m kvbench export`` writes a task as a Hugging Face dataset that anybody can load."""

import shlex
from pathlib import Path
from typing import Annotated, get_args

import typer
from datasets import disable_progress_bars
from pydantic import TypeAdapter, ValidationError

from datasets_gen import Split, get_task, is_file_of_questions
from datasets_gen.export import DatasetSplit, dataset_card, to_dataset
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.experiments.data import with_data
from kvbench.experiments.options import contexts_of
from kvbench.prompts.context_length import lengthen_by_tokenizer
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.files import write_atomically, write_text_atomically
from leaderboards.terminal.result_table import Column, ResultTable

_SPLIT = TypeAdapter(DatasetSplit)


def command(
    task: Annotated[str, typer.Option(help="Name of the task, or a file of questions.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the dataset. Default: datasets/TASK.")] = None,
    profile: options.Profile = "quick",
    limit: options.Limit = None,
    context_tokens: options.ShownTokens = None,
    depth: options.Depth = None,
    tokenizer: options.Tokenizer = None,
    data: options.Data = None,
    defence: options.Defence = None,
    seed: options.ExampleSeed = 0,
    split: options.ExampleSplit = "test",
    phrasings: options.Phrasings = "common",
) -> Result:
    """Writes a task as a folder that ``datasets.load_dataset`` reads: questions, contexts, spans and golds."""
    disable_progress_bars()  # datasets would write one to a file too
    (task_with_data,) = with_data([get_task(task)], data, defence)
    chosen = lengthen_by_tokenizer(tokenizer, task_with_data, context_tokens, depth)
    contexts = contexts_of(chosen, profile, limit)
    folder = out or Path("datasets") / chosen.name
    existing = _splits_in(folder)
    path = folder / "data" / f"{split}.parquet"
    for file in (folder / "README.md", path):
        if not existing and file.exists():
            raise KVBenchError(f"{file} is there and was not written by export: give another --out")
    for before in existing:
        if (before.task, before.version) != (chosen.name, chosen.full_version):
            raise KVBenchError(f"{folder} holds {before.task} {before.version} already: give another --out")
    others = [before for before in existing if before.split != split]
    examples = list(chosen.generate(seed, contexts, split, phrasings == "held-out"))
    questions = sum(len(example.questions) for example in examples)
    given = _options(
        seed=seed,
        limit=contexts,
        phrasings=phrasings,
        context_tokens=context_tokens,
        depth=depth,
        tokenizer=tokenizer,
        data=data,
        defence=defence,
    )
    exported = DatasetSplit(
        *(chosen.name, chosen.full_version, split, seed, phrasings, contexts, questions, given),
        source=shlex.quote(task) if is_file_of_questions(task) else "",
    )
    dataset = to_dataset(chosen, examples)
    write_atomically(path, lambda partial: dataset.to_parquet(partial))
    write_text_atomically(path.with_suffix(".json"), _SPLIT.dump_json(exported, indent=1).decode())
    write_text_atomically(folder / "README.md", dataset_card(chosen, [*others, exported]))
    columns = [Column(name) for name in ("task", "version", "split", "contexts", "questions")]
    return Result(
        [ResultTable("exported", columns, [(chosen.name, chosen.full_version, split, contexts, questions)])],
        files={"dataset": path},
    )


def _options(**options: object) -> str:
    """Returns the options that were given, as on the command line."""
    given = {f"--{name.replace('_', '-')}": str(value) for name, value in options.items() if value is not None}
    return shlex.join(word for option in given.items() for word in option)


def _splits_in(folder: Path) -> list[DatasetSplit]:
    """Returns the splits that a folder holds already."""
    splits = []
    for name in get_args(Split):
        path = folder / "data" / f"{name}.json"
        if path.exists():
            try:
                splits.append(_SPLIT.validate_json(path.read_bytes()))
            except ValidationError as error:
                raise KVBenchError(f"{path} is damaged ({first_line(error)}): export to another folder") from error
    return splits
