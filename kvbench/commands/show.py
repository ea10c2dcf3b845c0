"""``python -m kvbench show``: one example of a task, or the worst answers of a run, with their spans in colour."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from datasets_gen import FROM_DATA, TASKS, Question, get_task, parse_tags, tags_of
from kvbench.cli import parameters as options
from kvbench.experiments.data import with_data
from kvbench.experiments.options import check_count
from kvbench.prompts.context_length import lengthen_by_tokenizer
from kvbench.publish.coloured_context import coloured, legend, render_answer
from kvbench.publish.worst_answers import chosen_level, decoded_in_halves, worst_answers
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from kvbench.system.places import place_of
from policies import KINDS, Level


def command(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="Name of a task, or folder of a run, such as runs/x.")],
    index: Annotated[int, typer.Option(help="Which example.")] = 0,
    question: Annotated[int | None, typer.Option(help="Colour the evidence of one question; default: of all.")] = None,
    tag: options.Tag = "",
    context_tokens: options.ContextTokens = None,
    depth: options.Depth = None,
    tokenizer: options.Tokenizer = None,
    data: options.Data = None,
    defence: options.Defence = None,
    seed: options.ExampleSeed = 0,
    split: options.ExampleSplit = "test",
    phrasings: options.Phrasings = "common",
    policy: Annotated[str, typer.Option(help="Of a run: whose answers.")] = "",
    level: options.GivenLevel = options.NONE_GIVEN,
    worst: Annotated[int, typer.Option(help="Of a run: how many answers, the worst first.")] = 5,
) -> None:
    """Prints an example of a task: its context with the spans coloured, its questions and what answers them. Or the
    worst answers of a policy in a run: what is lost of what they needed."""
    is_run = what not in {**TASKS, **FROM_DATA} and ("/" in what or Path(what).is_dir())
    for name in options.given(context):
        if name != "what" and (name in ("policy", *KINDS, "worst")) != is_run:
            option = "--" + name.replace("_", "-")
            raise KVBenchError(
                f"{option} is for {'tasks' if is_run else 'runs'}, and {what} is {'none' if is_run else 'no run'}"
            )
    if is_run:
        show_worst(
            Store.open(place_of(what)), policy, [Level(*one) for one in level.items()], check_count("--worst", worst)
        )
        return
    (task,) = with_data([get_task(what)], data, defence)
    chosen = lengthen_by_tokenizer(tokenizer, task, context_tokens, depth)
    example = chosen.example(seed, index, split, held_out=phrasings == "held-out")
    tags = set(parse_tags(tag))
    shown = [(number, one) for number, one in enumerate(example.questions) if tags <= set(tags_of(one))]
    if question is not None:
        if not 0 <= question < len(example.questions):
            raise KVBenchError(f"--question {question}: the example has questions 0 to {len(example.questions) - 1}")
        shown = [(number, one) for number, one in shown if number == question]
    if not shown:
        raise KVBenchError(f"--tag {tag}: no question that is asked for has these tags; try another --index")
    spans = [*example.spans, *(span for _, one in shown for span in one.spans)]
    console = Console(highlight=False)
    console.print(coloured(example.context, spans))
    console.print()
    console.print(legend(spans))
    console.print()
    console.print(questions_table(shown))


def show_worst(store: Store, policy: str, given: Sequence[Level], count: int) -> None:
    level = chosen_level(store.identity, policy, given)
    answers, failed = worst_answers(store, policy, level, count)
    output = Console(highlight=False)
    for number, answer in enumerate(answers, 1):
        output.print(render_answer(number, answer))
    if failed:
        output.print(Text(f"{failed:,} answers failed and are not among these", style="yellow"))
    if halved := decoded_in_halves(store):
        output.print(
            Text(f"memory ended in this run: {halved:,} of its answers come from halved waves", style="yellow")
        )


def questions_table(numbered: list[tuple[int, Question]]) -> Table:
    """Lists the questions of an example, with the expected text where it is not the gold (directives, steps)."""
    table = Table(box=None, pad_edge=False)
    golds = [question.golds[0] if question.golds else "" for _, question in numbered]
    differs = any(question.written != gold for (_, question), gold in zip(numbered, golds, strict=True))
    for title in ("", "question", "gold", *(["to be written"] if differs else []), "type", "hops"):
        table.add_column(title, overflow="fold")
    for (number, question), gold in zip(numbered, golds, strict=True):
        kind = question.type if question.answerable else "unanswerable"
        texts = [question.text, gold, *([question.written] if differs else [])]
        table.add_row(str(number), *map(Text, texts), kind, str(question.hops))
    return table
