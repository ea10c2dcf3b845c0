"""``python -m kvbench show`` shows one example of a task, or the worst answers of a run, with their
spans marked."""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from datasets_gen import (
    KNOWN_TASKS,
    Example,
    Question,
    Span,
    SpanKind,
    Task,
    is_file_of_questions,
)
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.experiments.arguments import one_task, task_with_options
from kvbench.experiments.options import check_count
from kvbench.handed.tasks import is_code
from kvbench.prompts.mode import phrase_tasks
from kvbench.publish.worst_answers import (
    ANSWER_COLUMNS,
    WorstAnswer,
    answer_rows,
    choose_level,
    first_method,
    verdict,
    worst_answers,
)
from kvbench.store.store import Store
from kvbench.store.tables import Record
from kvbench.system.console import printable
from kvbench.system.errors import KVBenchError
from leaderboards.metrics.routing import shares_at
from leaderboards.rendering.templating import excerpt
from leaderboards.terminal.result_table import Column, ResultTable
from policies import LEVEL_KINDS, LazyModule, Level

models = LazyModule("kvbench.models.load")
prompts = LazyModule("kvbench.prompts.prompt")

AROUND = 160  # characters that are shown on either side of what matters in a long context
LONG = 1500
# Where spans overlap, the later kind is seen: an answer within a fact.
STYLES: Mapping[SpanKind, str] = {
    "fact": "on grey19",
    "bridge": "on dark_blue",
    "distractor": "dim",
    "defence": "on dark_red",
    "directive": "on dark_magenta",
    "subject": "bold cyan",
    "answer": "bold black on green",
}
OPTIONS_OF_RUNS = ("policy", *LEVEL_KINDS, "worst")


def command(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            help=f"Name of a task, {options.OF_ONE_TASK}, file of questions, "
            "or folder of a run, such as runs/x."
        ),
    ],
    index: Annotated[int, typer.Option(help="Which example.")] = 0,
    context_tokens: options.ShownTokens = None,
    tokenizer: options.Tokenizer = None,
    seed: options.ExampleSeed = 0,
    split: options.ExampleSplit = "test",
    phrasings: options.Phrasings = "common",
    policy: Annotated[
        str, typer.Option(help="Of a run: whose answers; default: of its first method.")
    ] = "",
    ratio: options.LevelOfRun = None,
    budget: options.LevelOfRun = None,
    rate: options.LevelOfRun = None,
    bits: options.LevelOfRun = None,
    worst: Annotated[int, typer.Option(help="Of a run: how many answers, the worst first.")] = 5,
) -> Result:
    """Prints an example of a task: its context with the spans marked, its questions and what
    answers them. Or the worst answers of a policy in a run: what is lost of what they needed.
    Raises :class:`KVBenchError` for options of the one beside the other."""
    # A file without an ending may be what is left of a run, and is said to be none.
    name, task_options = one_task(what)
    is_file = is_file_of_questions(name) and Path(name).suffix != ""
    is_task = name in KNOWN_TASKS or is_file or is_code(name) or task_options is not None
    # A path is taken for a run also where nothing lies there: Store.open then says which run may be
    # meant.
    is_run = not is_task and ("/" in what or Path(what).is_dir())
    for parameter in options.given_options(context, except_for=("what",)):
        option = "--" + parameter.replace("_", "-")
        if is_run and parameter not in OPTIONS_OF_RUNS:
            raise KVBenchError(f"{option} is for tasks, and {what} is none")
        if not is_run and parameter in OPTIONS_OF_RUNS:
            raise KVBenchError(f"{option} is for runs, and {what} is no run")
    if is_run:
        values = {kind: context.params[kind] for kind in LEVEL_KINDS}
        levels = [Level(kind, value) for kind, value in values.items() if value is not None]
        count = check_count("--worst", worst)
        return show_worst_answers(Store.open(Path(what)), policy, levels, count)
    # Without a length the tokenizer serves the prompt below alone; who lengthens refuses it.
    chosen = task_with_options(what, tokenizer if context_tokens else None, context_tokens)
    example = chosen.example(seed, index, split, held_out=phrasings == "held-out")
    tables = [example_table(chosen, example, index), questions_table(example.questions)]
    if tokenizer is not None:
        asked_task = phrase_tasks([chosen], tokenizer)[0]
        loaded = models.load_tokenizer(tokenizer)
        sent = prompts.prompt_as_sent(loaded, asked_task, example, "agnostic")
        tables.append(prompt_table([(chosen.name, sent)]))
    return Result(tables, warnings=chosen.notes)


def example_table(task: Task, example: Example, index: int) -> ResultTable:
    """Shows the context of an example with its spans marked."""
    spans = list(example.spans)
    for question in example.questions:
        spans += question.spans
    protected = {question.protected for question in example.questions}
    marked = mark_spans(example.context, spans, protected=protected)
    columns = [Column(name) for name in ("task", "index", "context", "spans")]
    row = (task.name, index, example.context, spans)
    return ResultTable("examples", columns, [row], view=marked)


@dataclass(frozen=True, order=True)
class _Mark:
    """A bracket that is written into a context. Marks are ordered by where they stand, what ends
    before what begins, and what is long outside of what is short."""

    place: int  # the character before which it stands
    begins: bool
    other_end: int  # of the span, negative
    text: str
    style: str


def mark_spans(
    context: str,
    spans: Sequence[Span],
    stretches: Sequence[tuple[int, int]] = (),
    protected: Collection[str] = (),
    kept: Callable[[int, int], str] = lambda start, end: "",
) -> Text:
    """Writes the spans of a context in brackets with their kinds, ``[fact Ada lives in [answer
    Rome].]``, and in colours where the output has any.

    ``stretches``: the characters of the context that are shown, first and behind the last; all if
    there are none. ``protected``: texts that must not leak, which are directives, answers of an
    attack, or both. ``kept``: what is said of a span behind its kind."""
    text = Text(printable(context))
    marks: list[_Mark] = []
    kept_secret: set[tuple[int, int]] = set()
    for kind, style in STYLES.items():
        places = dict.fromkeys((span.start, span.end) for span in spans if span.kind == kind)
        for start, end in places:
            if (start, end) in kept_secret:
                continue
            name: str = kind
            if context[start:end] in protected:
                name = "protected"
                kept_secret.add((start, end))
            text.stylize(style, start, end)
            marks.append(_Mark(start, True, -end, f"[{name}{kept(start, end)} ", style))
            marks.append(_Mark(end, False, -start, "]", style))
    marks.sort()
    stretches = stretches or [(0, len(text))]
    shown = [_marked_stretch(text, first, last, marks) for first, last in stretches]
    joined = Text(" … ", style="bright_black").join(shown)
    is_cut = stretches[-1][1] != len(text)
    return joined + Text(" …") if is_cut else joined


def _marked_stretch(text: Text, first: int, last: int, marks: Sequence[_Mark]) -> Text:
    """Writes the marks of a stretch of a context between its characters."""
    pieces = []
    written = first
    for mark in marks:
        if first <= mark.place <= last:
            pieces += [text[written : mark.place], Text(mark.text, mark.style)]
            written = mark.place
    return Text().join([*pieces, text[written:last]])


def questions_table(questions: Sequence[Question]) -> ResultTable:
    """Lists the questions of an example, with the expected text where it is not the gold
    (directives, steps)."""
    differs = False
    rows = []
    for number, question in enumerate(questions):
        gold = question.golds[0] if question.golds else ""
        differs = differs or question.perfect_output != gold
        kind = question.type if question.answerable else "unanswerable"
        written = question.perfect_output
        rows.append((number, question.text, question.golds, written, kind, question.hops))
    columns = (
        Column("number", ""),
        Column("question", of_sentences=True),
        Column("golds", "gold", lambda golds: golds[0] if golds else "", of_sentences=True),
        Column("written", "to be written", of_sentences=True, shown=differs),
        Column("type"),
        Column("hops"),
    )
    return ResultTable("questions", columns, rows)


def prompt_table(prompts: Sequence[tuple[str, str]]) -> ResultTable:
    """Shows the first prompt of each task as it was sent."""
    texts = []
    for task, prompt in prompts:
        texts.append(Text(f"The first prompt of {task}, as sent:\n{prompt}"))
    columns = [Column("task"), Column("prompt")]
    return ResultTable("prompts", columns, prompts, view=Group(*texts))


def show_worst_answers(store: Store, policy: str, levels: Sequence[Level], count: int) -> Result:
    """Shows the worst answers: of the first policy that is no control, if none is named."""
    names = [entry.name for entry in store.identity.policies]
    policy = policy or first_method(store.identity)
    level = choose_level(store.identity, policy, levels)
    answers, failed = worst_answers(store, policy, level, count)
    others = f"others: --policy, of {', '.join(names)}"
    notes = [f"the worst answers of {policy} at {level.where}; {others}"]
    if failed:
        notes.append(f"{failed:,} answers failed and are not among these")
    tables = [answers_table(answers)]
    stored_prompts = store.identity.prompts
    tasks = dict.fromkeys(answer.record.task for answer in answers)
    sent: list[tuple[str, str]] = []
    for task in tasks:
        if task in stored_prompts:
            sent.append((task, stored_prompts[task]))
    if sent:
        tables.append(prompt_table(sent))
    return Result(tables, notes=notes)


def answers_table(answers: Sequence[WorstAnswer]) -> ResultTable:
    """Lists stored answers with what was asked, what the full cache wrote, and what was kept."""
    columns = [Column(name) for name in ANSWER_COLUMNS]
    return ResultTable("answers", columns, answer_rows(answers), view=render_answers(answers))


def render_answers(answers: Sequence[WorstAnswer]) -> RenderableType:
    """Shows answers about one context together, and below them the context around what they
    needed."""
    by_context: dict[str, list[WorstAnswer]] = {}
    for answer in answers:
        by_context.setdefault(answer.context.example_id, []).append(answer)
    parts: list[RenderableType] = []
    numbers = itertools.count(1)
    for group in by_context.values():
        for answer in group:
            heading = Text(printable(f"{next(numbers)}. {answer.record.question_id}"))
            parts += [Rule(heading, align="left"), _exchange(answer)]
        parts += [Text(), _marked_context(group), Text()]
        if not group[0].is_generated:
            reason = "the example cannot be generated here: all of its evidence is shown as fact"
            parts.append(Text(reason, "yellow"))
    return Group(*parts)


def _marked_context(answers: Sequence[WorstAnswer]) -> Text:
    """Marks the spans of some answers in the context that they are about; a long context is cut to
    what stands around them."""
    first = answers[0]
    spans: list[Span] = []
    for answer in answers:
        spans += answer.spans
    needed = [span for span in dict.fromkeys(spans) if span.kind != "distractor"]
    context = first.context.context
    stretches = excerpt(context, [(span.start, span.end) for span in needed], AROUND, LONG)
    protected = {answer.question.protected for answer in answers}
    # In agnostic mode these questions read one branch, so that one record tells for all of them. In
    # aware mode each has its own, and the share of the first is shown.
    return mark_spans(context, spans, stretches, protected, partial(_share_kept, first))


def _share_kept(answer: WorstAnswer, start: int, end: int) -> str:
    """Says how much of a span the cache kept, over its tokens and all layers and heads."""
    if answer.record.token_kept is None:
        return ""
    shares = shares_at(answer.context.token_ends, answer.record.token_kept, start, end)
    return f", {shares.mean():.0%} kept:" if len(shares) else ""


def _exchange(answer: WorstAnswer) -> Table:
    """Shows a question, what was written, and how much of the cache was kept."""
    record, full, question = answer.record, answer.full, answer.question
    kept = "–" if record.kept_tokens is None else f"{record.kept_tokens:.4g}"
    rows = {
        "question": question.question,
        "gold": " / ".join(question.golds) or "none: leakage and directives are judged",
        "full cache": _output(full) if full else "was not run",
        f"{record.policy} at {record.point.where}": _output(record),
        "verdict": verdict(record),
        "kept": f"{kept} of {question.context_tokens} tokens",
        "": _shares(record),
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(Text(printable(name)), Text(printable(text)))
    return table


def _shares(record: Record) -> str:
    """Writes what was kept of the evidence and evicted of the cache, as shares."""
    shares = {
        "GER": record.ger,
        "slot coverage": record.slot_coverage,
        "eviction rate": record.eviction_rate,
        "realised ratio": record.realised_ratio,
    }
    texts = []
    for name, share in shares.items():
        number = "–" if share is None else f"{share:.2f}"
        texts.append(f"{name} {number}")
    return ", ".join(texts)


def _output(record: Record) -> str:
    score = "" if record.f1 is None else f"  (F1 {record.f1:.0f})"
    return f"{record.output_text or '(nothing)'}{score}"
