"""Options that several commands take, each with the one help text it has."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from datasets_gen.ifeval import Placement
from kvbench.place import place_of

Press = Annotated[str, typer.Argument(help="file.py:Press, package.module:factory, or a name of ls policies.")]
Model = Annotated[str, typer.Option(help="reference, a local path, or a hub name.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
DeviceMap = Annotated[
    Literal["auto"] | None, typer.Option(help="auto: spread the weights of a model over all GPUs of a worker.")
]
Tasks = Annotated[str | None, typer.Option(help="Task names, comma-separated. Default: all.")]
Profile = Annotated[str, typer.Option(help="How many contexts of each task: quick, or as many as the paper has.")]
Limit = Annotated[int | None, typer.Option(help="Contexts per task, instead of the profile's.")]
Seed = Annotated[int, typer.Option(help="Seed of the examples and of random policies.")]
Mode = Annotated[
    Literal["agnostic", "aware"], typer.Option(help="Compress before (agnostic) or after the question is seen.")
]
Run = Annotated[Path, typer.Argument(help="Folder or URL of a run, such as runs/x.", parser=place_of, metavar="FOLDER")]
Runs = Annotated[Path, typer.Option(help="Folder or URL that holds the runs.", parser=place_of, metavar="FOLDER")]
Site = Annotated[Path, typer.Option(help="Folder of the page.")]
CellSeconds = Annotated[float, typer.Option(help="How long a press may take with one context.")]
MaxKVGB = Annotated[
    float | None, typer.Option(help="Bound on live keys and values. Default: a quarter of what is free, half on a GPU.")
]
Tag = Annotated[str, typer.Option(help="Only questions with these tags, comma-separated, such as reverse.")]
ContextTokens = Annotated[
    int | None, typer.Option(help="Tokens of every context, set in prose. Default: its own length.")
]
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
ExecutorName = Annotated[
    Literal["local", "ray"], typer.Option("--executor", help="Processes of this machine, or workers of a Ray cluster.")
]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster: auto or HOST:PORT. Default: one on this machine.")]
MostWorkers = Annotated[int | None, typer.Option(help="Of Ray, at most. Default: as many as there is room for.")]
CPUs = Annotated[float | None, typer.Option(help="Of each worker of Ray. Default: 1.")]
GPUs = Annotated[
    float | None, typer.Option(help="Of each worker of Ray. Default: 1 if there are any and no --device cpu.")
]


def given(context: typer.Context) -> list[str]:
    """The parameters that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
