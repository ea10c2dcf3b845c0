"""Options that several commands take, each with the one help text it has."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

import typer

from datasets_gen.examples.task import NATIVE, USUAL, USUAL_TOKENS
from datasets_gen.tasks.ifeval import Placement
from datasets_gen.tasks.ruler.form import USUAL as USUAL_OF_RULER
from policies.declaration.levels import BITS, BUDGET, KINDS, RATE, RATIO, LevelKind

Press = Annotated[str, typer.Argument(help="file.py:Press, package.module:factory, or a name of ls policies.")]
Model = Annotated[str, typer.Option(help="A name of ls models, a folder, a GGUF file, or a hub name.")]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where the model runs.")]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"],
    typer.Option(metavar="NAME", help="float32, bfloat16, float16, or auto: the faster one for the model."),
]
DeviceMap = Annotated[
    Literal["auto"] | None, typer.Option(help="auto: spread the weights of a model over all GPUs of a worker.")
]
Tasks = Annotated[
    str | None,
    typer.Option(
        help="Names of tasks, ruler, or files of questions such as mine.jsonl, comma-separated. Default: all."
    ),
]
EveryTask = Annotated[
    bool, typer.Option("--every-task", help="Count tasks too that the model cannot do with the full cache.")
]
Profile = Annotated[str, typer.Option(help="How many contexts of each task: quick, or as many as the paper has.")]
Limit = Annotated[int | None, typer.Option(help="Contexts per task, instead of the profile's or the suite's.")]
Seed = Annotated[int, typer.Option(help="Seed of the examples and of random policies.")]
Mode = Annotated[
    Literal["agnostic", "aware"], typer.Option(help="Compress before (agnostic) or after the question is seen.")
]
Run = Annotated[Path, typer.Argument(help="Folder of a run, such as runs/x.", metavar="FOLDER")]
Runs = Annotated[Path, typer.Option(help="Folder that holds the runs.", metavar="FOLDER")]
Site = Annotated[
    Path | None,
    typer.Option(help="Folder of the page. Default: of the run's name, in site.", metavar="FOLDER"),
]
CellSeconds = Annotated[float, typer.Option(help="How long a press may take with one context.")]
MaxKVGB = Annotated[
    float | None, typer.Option(help="Bound on live keys and values. Default: a quarter of what is free, half on a GPU.")
]
ContextTokens = Annotated[
    str | None,
    typer.Option(
        help=f"Tokens of every context, set in prose, or {NATIVE}: each task's own length. Default: {USUAL}, which is "
        f"{USUAL_TOKENS}, and RULER's {USUAL_OF_RULER:,}; {NATIVE} in suites and for texts that are not generated.",
    ),
]
ShownTokens = Annotated[
    int | None, typer.Option("--context-tokens", help="Tokens of the context, set in prose. Default: its own length.")
]
Depth = Annotated[
    float | None, typer.Option(help="Position of the facts in the context, 0 (start) to 1 (end). Default: spread out.")
]
Tokenizer = Annotated[str | None, typer.Option(help="What counts tokens, as --model takes it. Default: reference.")]
ExampleSeed = Annotated[int, typer.Option(help="Seed of the examples.")]
ExampleSplit = Annotated[Literal["train", "test"], typer.Option(help="train or test.")]
Phrasings = Annotated[Literal["common", "held-out"], typer.Option(help="Held-out ones were kept from training.")]


def _level_help(kind: LevelKind) -> str:
    few = f", in a comparison {kind.few}" if kind.few else ""
    return f"{kind.help} Default: {kind.default}{few}." if kind.default else kind.help


Ratios = Annotated[str | None, typer.Option(help=_level_help(RATIO))]
Budgets = Annotated[str | None, typer.Option(help=_level_help(BUDGET))]
Rates = Annotated[str | None, typer.Option(help=_level_help(RATE))]
Bits = Annotated[str | None, typer.Option(help=_level_help(BITS))]
LevelOfRun = Annotated[float | None, typer.Option(help="Of a run: at which of its levels.")]
Repeats = Annotated[
    int | None, typer.Option(help="Draws of each random policy; every other runs once. Default: 1, or the suite's.")
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Rows of ifeval or gsm8k as JSONL, else from the hub; a text for prose: a file, wikitext or python."
    ),
]
Defence = Annotated[
    Placement | None,
    typer.Option(help="Where a defence stands in the system prompts of ifeval. Default: none, in a suite both."),
]
Essays = Annotated[
    Path | None,
    typer.Option(help="Text for the prose of RULER's tasks, .txt or .jsonl. Default: prose about no one."),
]
Suite = Annotated[str | None, typer.Option(help="Its tasks and policies, and a page of its own: see ls suites.")]
Policies = Annotated[
    str | None,
    typer.Option(
        help="Names and file.py:Press, comma-separated, or all; the controls run beside them. Default: default."
    ),
]
MaxNewTokens = Annotated[int | None, typer.Option(help="Maximum new tokens of an answer. Default: the task's.")]
Difficulty = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="Level of the tasks: a number, base=2,hops=1, or auto: the highest that the model masters. "
        "Default: the highest of each task.",
    ),
]
AnswerPrefix = Annotated[
    Literal["auto", "on", "off"],
    typer.Option(help="Begin each answer for the model, as in 'Ada lives in'. auto: for all but the shipped models."),
]
Dtypes = Annotated[
    str | None,
    typer.Option(help="Of --suite numerics: fp64, fp32, bf16, fp16; comma-separated. Default: all but fp64."),
]
Sampling = Annotated[
    str | None,
    typer.Option(help="Of --suite numerics: greedy, top_k, top_p; comma-separated. Default: all."),
]
Compress = Annotated[
    Literal["context", "system"] | None,
    typer.Option(help="Any context (default), or only contexts that are system prompts."),
]
RunName = Annotated[str | None, typer.Option(help="Name of the run. Default: made from its identity.")]
ExecutorName = Annotated[
    Literal["local", "ray"], typer.Option("--executor", help="Processes of this machine, or workers of a Ray cluster.")
]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster: auto or HOST:PORT. Default: one on this machine.")]
MostWorkers = Annotated[int | None, typer.Option(help="Of Ray, at most. Default: as many as there is room for.")]
CPUs = Annotated[float | None, typer.Option(help="Of each worker of Ray. Default: 1.")]
GPUs = Annotated[
    float | None, typer.Option(help="Of each worker of Ray. Default: 1 if there are any and no --device cpu.")
]


def given_levels(context: typer.Context) -> dict[str, str]:
    """Returns the text of each kind's option that was given, such as ``--ratios``, by kind."""
    texts = {kind.name: context.params[kind.plural] for kind in KINDS.values()}
    return {kind: text for kind, text in texts.items() if text is not None}


def given_options(context: typer.Context, except_for: Collection[str] = ()) -> list[str]:
    """Returns the names of the parameters that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params if name not in except_for}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
