"""``python -m kvbench show``: one example of a task, or the worst answers of a run, with their spans in colour."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from datasets_gen import FROM_DATA, TASKS, Question, Span, get_task, parse_tags, tags_of
from kvbench.commands.parameters import (
    ContextTokens,
    Data,
    Defence,
    Depth,
    ExampleSeed,
    ExampleSplit,
    Phrasings,
    Tag,
    Tokenizer,
    given,
)
from kvbench.data import with_data
from kvbench.errors import KVBenchError
from kvbench.lengths import lengthened_by
from kvbench.options import check_count
from kvbench.place import place_of
from kvbench.store import Store
from kvbench.strips import STYLES, coloured, told
from kvbench.worst import chosen_level, decoded_in_halves, worst_answers

OF_A_RUN = ("policy", "ratio", "budget", "worst")


def command(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="Name of a task, or folder of a run, such as runs/x.")],
    index: Annotated[int, typer.Option(help="Which example.")] = 0,
    question: Annotated[int | None, typer.Option(help="Colour the evidence of one question; default: of all.")] = None,
    tag: Tag = "",
    context_tokens: ContextTokens = None,
    depth: Depth = None,
    tokenizer: Tokenizer = None,
    data: Data = None,
    defence: Defence = None,
    seed: ExampleSeed = 0,
    split: ExampleSplit = "test",
    phrasings: Phrasings = "common",
    policy: Annotated[str, typer.Option(help="Of a run: whose answers.")] = "",
    ratio: Annotated[float | None, typer.Option(help="Of a run: at which asked ratio.")] = None,
    budget: Annotated[int | None, typer.Option(help="Of a run: at which asked budget.")] = None,
    worst: Annotated[int, typer.Option(help="Of a run: how many answers, the worst first.")] = 5,
) -> None:
    """Prints an example of a task: its context with the spans coloured, its questions and what answers them. Or the
    worst answers of a policy in a run: what is lost of what they needed."""
    is_run = what not in {**TASKS, **FROM_DATA} and ("/" in what or Path(what).is_dir())
    for name in given(context):
        if name != "what" and (name in OF_A_RUN) != is_run:
            option = "--" + name.replace("_", "-")
            raise KVBenchError(
                f"{option} is for {'tasks' if is_run else 'runs'}, and {what} is {'none' if is_run else 'no run'}"
            )
    if is_run:
        show_worst(Store.open(place_of(what)), policy, ratio, budget, check_count("--worst", worst))
        return
    (named,) = with_data([get_task(what)], data, defence)
    chosen = lengthened_by(tokenizer, named, context_tokens, depth)
    example = chosen.example(seed, index, split, held_out=phrasings == "held-out")
    wanted = set(parse_tags(tag))
    asked = [(number, one) for number, one in enumerate(example.questions) if wanted <= set(tags_of(one))]
    if question is not None:
        if not 0 <= question < len(example.questions):
            raise KVBenchError(f"--question {question}: the example has questions 0 to {len(example.questions) - 1}")
        asked = [(number, one) for number, one in asked if number == question]
    if not asked:
        raise KVBenchError(f"--tag {tag}: no question that is asked for has these tags; try another --index")
    spans = [*example.spans, *(span for _, one in asked for span in one.spans)]
    console = Console(highlight=False)
    console.print(coloured(example.context, spans))
    console.print()
    console.print(legend(spans))
    console.print()
    console.print(questions_table(asked))


def show_worst(store: Store, policy: str, ratio: float | None, budget: int | None, count: int) -> None:
    asked = chosen_level(store.run.outline, policy, ratio, budget)
    answers, failed = worst_answers(store, policy, asked, count)
    output = Console(highlight=False)
    for number, answer in enumerate(answers, 1):
        output.print(told(number, answer))
    if failed:
        output.print(Text(f"{failed:,} answers failed and are not among these", style="yellow"))
    if halved := decoded_in_halves(store):
        output.print(
            Text(f"memory ended in this run: {halved:,} of its answers come from halved waves", style="yellow")
        )


def legend(spans: list[Span]) -> Text:
    kinds = {span.kind for span in spans}
    return Text("  ").join(Text(f" {kind} ", style=style) for kind, style in STYLES.items() if kind in kinds)


def questions_table(asked: list[tuple[int, Question]]) -> Table:
    """With what is to be written where that is not the gold, as under directives and with steps."""
    table = Table(box=None, pad_edge=False)
    golds = [question.golds[0] if question.golds else "" for _, question in asked]
    written = any(question.written != gold for (_, question), gold in zip(asked, golds, strict=True))
    for title in ("", "question", "gold", *(["to be written"] if written else []), "type", "hops"):
        table.add_column(title, overflow="fold")
    for (number, question), gold in zip(asked, golds, strict=True):
        kind = question.type if question.answerable else "unanswerable"
        texts = [question.text, gold, *([question.written] if written else [])]
        table.add_row(str(number), *map(Text, texts), kind, str(question.hops))
    return table
