"""Options that several commands take, each with the one help text it has."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from datasets_gen.examples.task import NATIVE, USUAL, USUAL_TOKENS
from datasets_gen.tasks.ruler.form import USUAL as USUAL_OF_RULER
from policies.declaration.levels import BITS, BUDGET, RATE, RATIO, LevelKind

Text = str | None
Count = int | None
Number = float | None

PRESS_HELP = "file.py:Press, package.module:factory, or a name of ls policies."
Press = Annotated[str, Argument(help=PRESS_HELP)]
Side = Annotated[str, Argument(help=f"{PRESS_HELP[:-1]}, or the folder of a run.")]
PressOrModel = Annotated[Text, Argument(help=f"{PRESS_HELP} None: the model.")]
Model = Annotated[str, Option(help="A name of ls models, a folder, a GGUF file, or a hub name.")]
MODEL_HELP = (
    "A name of ls models, a folder, a GGUF file, a hub name, or the address of a server: "
    "http://localhost:8080/v1. An address takes in brackets: name (of the model), tokenizer, "
    "prompt (raw, chat), requests (at once: 4), seconds (of an answer: 600), "
    "key (the environment variable with the key: KVBENCH_API_KEY), proxy (no)."
)
ModelOrServer = Annotated[str, Option("--model", metavar="NAME", help=MODEL_HELP)]
Device = Annotated[Literal["auto", "cpu", "cuda"], Option(help="Where the model runs.")]
DTYPE_HELP = "float32, bfloat16, float16, or auto: the faster one for the model."
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"], Option(metavar="NAME", help=DTYPE_HELP)
]
DEVICE_HELP = (
    "Where the model runs: auto, cpu or cuda. "
    "cuda(map=auto) spreads the weights over all GPUs of a worker."
)
DeviceOfRun = Annotated[str, Option("--device", metavar="NAME", help=DEVICE_HELP)]
TASKS_HELP = (
    "Names, ruler, or files such as mine.jsonl and mine.py:Task, comma-separated. Default: all. "
    "In brackets: data (rows of ifeval or gsm8k as JSONL, else from the hub; "
    "a text for prose: a file, wikitext or python), defence (of ifeval), essays (of RULER), "
    "depth (of the facts, 0 to 1), prefix (begins each answer for the model: auto, on, off, "
    "or a text for your own questions), limit (contexts of this task alone), "
    "questions (of each context at most): "
    "ifeval(data=FILE,defence=both,limit=40),all(depth=0.5)."
)
Tasks = Annotated[Text, Option(help=TASKS_HELP)]
OF_ONE_TASK = "with its options in brackets, such as prose(data=FILE)"
EveryTask = Annotated[
    bool, Option("--every-task", help="Run and count tasks too that the full cache cannot do.")
]
TOLERANCE_HELP = (
    "Points of loss against the full cache below which a level is safe. "
    "Default: 5, or those of the run."
)
Tolerance = Annotated[Number, Option(help=TOLERANCE_HELP)]
Profile = Annotated[str, Option(help="How many contexts of each task: quick, or as the paper has.")]
Limit = Annotated[Count, Option(help="Contexts per task, instead of the profile's or the suite's.")]
Seed = Annotated[int, Option(help="Seed of the examples and of random policies.")]
Mode = Annotated[
    Literal["agnostic", "aware"],
    Option(help="Compress before (agnostic) or after the question is seen."),
]
BOTH = "both"
MODES_HELP = (
    "Compress before (agnostic) or after the question is seen; "
    "both: one run each, beside one another. "
    "agnostic(compress=system) compresses only system prompts, compress=context any context."
)
Modes = Annotated[str, Option("--mode", metavar="NAME", help=MODES_HELP)]
Run = Annotated[Path, Argument(help="Folder of a run, such as runs/x.", metavar="FOLDER")]
Runs = Annotated[Path, Option(help="Folder that holds the runs.", metavar="FOLDER")]
Site = Annotated[
    Path | None,
    Option(help="Folder of the page. Default: of the run's name, in site.", metavar="FOLDER"),
]
BESIDE_HELP = "Run of another model, or of this one in the other mode: it stands beside this run."
Beside = Annotated[Path | None, Option(help=BESIDE_HELP, metavar="RUN")]
KV_HELP = "Bound on live keys and values. Default: a quarter of what is free, half on a GPU."
MaxKVGB = Annotated[Number, Option(help=KV_HELP)]
ContextTokens = Annotated[
    Text,
    Option(
        help=f"Tokens of every context, set in prose, or {NATIVE}: each task's own length. "
        f"Default: {USUAL}, which is {USUAL_TOKENS}, and RULER's {USUAL_OF_RULER:,}; "
        f"{NATIVE} in suites and for texts that are not generated.",
    ),
]
ShownTokens = Annotated[
    Count, Option("--context-tokens", help="Tokens of the context, in prose. Default: its own.")
]
Tokenizer = Annotated[
    Text, Option(help="What counts tokens, as --model takes it. Default: reference.")
]
ExampleSeed = Annotated[int, Option(help="Seed of the examples.")]
ExampleSplit = Annotated[Literal["train", "test"], Option(help="train or test.")]
Phrasings = Annotated[
    Literal["common", "held-out"], Option(help="Held-out ones were kept from training.")
]


def _level_help(kind: LevelKind) -> str:
    few = f", in a comparison {kind.few}" if kind.few else ""
    if kind.default:
        return f"{kind.help} Default: {kind.default}{few}."
    return kind.help


Ratios = Annotated[Text, Option(help=_level_help(RATIO))]
Budgets = Annotated[Text, Option(help=_level_help(BUDGET))]
Rates = Annotated[Text, Option(help=_level_help(RATE))]
Bits = Annotated[Text, Option(help=_level_help(BITS))]
LevelOfRun = Annotated[Number, Option(help="Of a run: at which of its levels.")]
Repeats = Annotated[
    Count, Option(help="Draws of each random policy; others run once. Default: 1, or the suite's.")
]
SUITE_HELP = (
    "Its tasks and policies, and a page of its own: see ls suites. "
    "numerics takes dtypes, sampling, deterministic and directions in brackets: "
    "numerics(dtypes=[fp16,bf16],sampling=greedy)."
)
Suite = Annotated[Text, Option(help=SUITE_HELP)]
POLICIES_HELP = (
    "Names and file.py:Press, comma-separated, or all; "
    "the controls run beside them. Default: default."
)
Policies = Annotated[Text, Option(help=POLICIES_HELP)]
MaxNewTokens = Annotated[
    Count, Option(help="Maximum new tokens of an answer. Default: the task's.")
]
LEVEL_HELP = (
    "A number, base=2,hops=1, or auto: the highest that the model masters. "
    "Default: the highest of each task."
)
Difficulty = Annotated[Text, Option(metavar="LEVEL", help=LEVEL_HELP)]
OBSERVE_HELP = "Of the first contexts of each task: attention, states, routes, groups, scores; comma-separated."
Observe = Annotated[Text, Option(help=OBSERVE_HELP)]
DATE_HELP = (
    "The day that a chat template tells. Default: that of a run of the model in --out, or today."
)
Date = Annotated[Text, Option(metavar="YYYY-MM-DD", help=DATE_HELP)]
RunName = Annotated[Text, Option(help="Name of the run. Default: made from its identity.")]
EXECUTOR_HELP = (
    "local: this process. ray(workers=4,cpus=1,gpus=1,address=auto): workers of a Ray cluster, "
    "all by default, one CPU and, if there are any, one GPU each; "
    "without an address Ray is started on this machine. "
    "Both take cell_seconds, how long a press may take with one context (60)."
)
Executor = Annotated[str, Option(metavar="NAME", help=EXECUTOR_HELP)]


def given_options(context: typer.Context, except_for: Collection[str] = ()) -> list[str]:
    """Returns the names of the parameters that stand on the command line."""
    names = []
    for name in context.params:
        source = context.get_parameter_source(name)
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and name not in except_for:
            names.append(name)
    return names


def given_values(context: typer.Context) -> dict[str, Any]:
    """Returns the values of the parameters that stand on the command line: the others are for the
    function of the library that the command calls."""
    return {name: context.params[name] for name in given_options(context)}
