"""``python -m kvbench show``: one example, with its spans in colour."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from datasets_gen import Example, Question, Span, SpanKind, get_task, parse_tags, tags_of
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
)
from kvbench.data import with_data
from kvbench.errors import KVBenchError
from kvbench.lengths import lengthened_by

STYLES: dict[SpanKind, str] = {
    "fact": "on grey19",
    "bridge": "on dark_blue",
    "distractor": "dim",
    "defence": "on dark_red",
    "directive": "on dark_magenta",
    "subject": "bold cyan",
    "answer": "bold black on green",
}


def command(
    task: Annotated[str, typer.Argument(help="Name of the task.")],
    index: Annotated[int, typer.Option(help="Which example.")] = 0,
    question: Annotated[int | None, typer.Option(help="Colour the evidence of one question; default: of all.")] = None,
    tag: Tag = "",
    context_tokens: ContextTokens = None,
    depth: Depth = None,
    tokenizer: Tokenizer = None,
    data: Data = None,
    defence: Defence = "none",
    seed: ExampleSeed = 0,
    split: ExampleSplit = "test",
    phrasings: Phrasings = "common",
) -> None:
    """Prints an example of a task: its context with the spans coloured, its questions and what answers them."""
    (named,) = with_data([get_task(task)], data, defence)
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
    console.print(coloured(example, spans))
    console.print()
    console.print(legend(spans))
    console.print()
    console.print(questions_table(asked))


def coloured(example: Example, spans: list[Span]) -> Text:
    """The context; where spans overlap, the narrower kind is seen: an answer within a fact."""
    text = Text(example.context)
    for kind, style in STYLES.items():
        for span in spans:
            if span.kind == kind:
                text.stylize(style, span.start, span.end)
    return text


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
