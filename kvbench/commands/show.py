"""``python -m kvbench show`` shows one example of a task, or the worst answers of a run, with their
spans marked."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pandas import DataFrame
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
    unknown_name,
)
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.experiments.arguments import one_task, task_with_options
from kvbench.experiments.build_grid import tasks_as_run
from kvbench.experiments.options import check_count
from kvbench.models.names import local_source
from kvbench.prompts.mode import phrase_tasks
from kvbench.store.run_file import Identity
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS, Record, StoredAnswer
from kvbench.system.console import printable
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.answers import JUDGED, worst_first
from leaderboards.metrics.routing import shares_at
from leaderboards.rendering.templating import excerpt
from leaderboards.terminal.result_table import Column, ResultTable
from policies import FULL, LEVEL_KINDS, LazyModule, Level
from policies.declaration.names import CONTROLS

models = LazyModule("kvbench.models.load")
prompts = LazyModule("kvbench.prompts.prompt")

SAME = 1e-9  # ratios that differ only by how they are written
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
    is_task = name in KNOWN_TASKS or is_file or task_options is not None
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


@dataclass(frozen=True)
class WorstAnswer(StoredAnswer):
    """A stored answer with the spans of its example, whose kinds a store does not tell."""

    full: Record | None  # the same question under the full cache, if it was run
    spans: tuple[Span, ...]
    is_generated: bool  # whether the spans are those of the example, generated anew


def show_worst_answers(store: Store, policy: str, levels: Sequence[Level], count: int) -> Result:
    """Shows the worst answers: of the first policy that is no control, if none is named."""
    names = [entry.name for entry in store.identity.policies]
    if not policy:
        policy = next((name for name in names if name not in CONTROLS), names[-1])
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


def choose_level(identity: Identity, policy: str, chosen: Sequence[Level]) -> Level:
    """Chooses the level that the options name, or the one that boards show first, among those of
    the policy; raises :class:`KVBenchError` for a policy or a level that the run does not have."""
    policies = {entry.name: entry for entry in identity.policies}
    if policy not in policies:
        raise KVBenchError(unknown_name("policy", policy, policies))
    levels = list(dict.fromkeys(point.level for point in policies[policy].points))
    if not chosen:
        return min(levels, key=lambda level: abs(level.value - level.declared.typical))
    if len(chosen) == 1:
        for level in levels:
            if level.kind == chosen[0].kind and abs(level.value - chosen[0].value) < SAME:
                return level
    names = ", ".join(f"--{level.kind} {level}" for level in levels)
    where = " and ".join(level.where for level in chosen)
    raise KVBenchError(f"{policy} was not run at {where}: give one of {names}")


def worst_answers(
    store: Store, policy: str, level: Level, count: int
) -> tuple[list[WorstAnswer], int]:
    """Returns the answers in the order of :func:`worst_first`, and counts those that failed; raises
    :class:`KVBenchError` where there are none."""
    answers: list[StoredAnswer] = []
    for answer in _answers(store, policy):
        if answer.record.point.level == level:
            answers.append(answer)
    if not answers:
        where = f"{policy} at {level.where}"
        raise KVBenchError(f"{store.folder} holds no answers of {where} yet: start the run again")
    full: dict[str, Record] = {}
    for answer in _answers(store, FULL):
        full[answer.record.question_id] = answer.record
    answered = [answer for answer in answers if answer.record.output_text is not None]
    tasks = tasks_as_run(store.run, local_source(store.identity.model) is not None)
    worst = []
    for answer in _worst_first(answered, list(full.values()))[:count]:
        task = tasks.get(answer.context.task)
        full_record = full.get(answer.record.question_id)
        worst.append(_with_spans(answer, full_record, task, store.identity))
    return worst, len(answers) - len(answered)


def _worst_first(answers: Sequence[StoredAnswer], full: Sequence[Record]) -> list[StoredAnswer]:
    """Returns answers with the worst first, judged beside those of the full cache."""
    if not answers:
        return []
    # Those of the full cache come last, so that a place below their number is one of the answers.
    records = [*(answer.record for answer in answers), *full]
    columns = ["policy", "question_id", *JUDGED]
    table = DataFrame([vars(record) for record in records], columns=columns)
    # worst_first pairs by mode and example as well; here the name of a question tells it all.
    places = worst_first(table.assign(mode="", example_id="")).index
    return [answers[place] for place in places if place < len(answers)]


def _answers(store: Store, policy: str) -> Iterator[StoredAnswer]:
    """Yields all answers of one policy, in the order of the tasks."""
    for task in store.identity.tasks:
        # The file of a policy has the same name in every chunk.
        name = store.path(RECORDS, task.name, 0, policy).name
        for path in store.record_files():
            if (path.parent.parent.name, path.name) == (task.name, name):
                yield from store.read_answers(path)


def _with_spans(
    answer: StoredAnswer, full: Record | None, task: Task | None, identity: Identity
) -> WorstAnswer:
    """Adds the spans of the example, generated anew; those of the store where that is not
    possible, which knows two kinds of them."""
    stored = (answer.record, answer.question, answer.context, full)
    generated = _generated_spans(answer, task, identity)
    if generated is not None:
        return WorstAnswer(*stored, generated, True)
    question = answer.question
    spans = [
        *_stored_spans("answer", question.answer_spans),
        *_stored_spans("fact", question.evidence_spans),
    ]
    return WorstAnswer(*stored, tuple(spans), False)


def _generated_spans(
    answer: StoredAnswer, task: Task | None, identity: Identity
) -> tuple[Span, ...] | None:
    """Generates the example of an answer anew and returns its spans; None where the task here is
    another one than in the run."""
    context = answer.context
    if task is None or task.full_version != context.task_version:
        return None
    example = task.example(identity.seed, context.example_index, held_out=identity.held_out)
    # Spans are offsets of characters: in another text they would mark other words.
    if example.context != context.context:
        return None
    for question in example.questions:
        if question.id == answer.question.question_id:
            return (*example.spans, *question.spans)
    return None


def _stored_spans(kind: SpanKind, flat: Sequence[int]) -> list[Span]:
    """Reads the spans of a store, which stand one after the other."""
    return [Span(kind, start, end) for start, end in zip(flat[::2], flat[1::2], strict=True)]


RECORD_COLUMNS = (
    *("question_id", "policy", "output_text", "f1", "em", "ger"),
    *("slot_coverage", "realised_ratio"),
)
ANSWER_COLUMNS = (*RECORD_COLUMNS, "question", "golds", "full_cache_output", "verdict")


def answers_table(answers: Sequence[WorstAnswer]) -> ResultTable:
    """Lists stored answers with what was asked, what the full cache wrote, and what was kept."""
    rows = []
    for answer in answers:
        from_record = [getattr(answer.record, name) for name in RECORD_COLUMNS]
        full_output = answer.full.output_text if answer.full else None
        question = answer.question
        judged = verdict(answer.record)
        rows.append((*from_record, question.question, question.golds, full_output, judged))
    columns = [Column(name) for name in ANSWER_COLUMNS]
    return ResultTable("answers", columns, rows, view=render_answers(answers))


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


def verdict(record: Record) -> str:
    """Says in words what the scores mean."""
    parts = []
    if record.right:
        parts.append("right")
    elif record.hallucinated:
        parts.append(f"hallucinated, {record.hallucination_kind}")
    elif record.abstained:
        parts.append("abstained")
    # Neither right nor hallucinated nor an abstention: by the definitions the output is empty.
    elif record.f1 is not None and record.leakage is None:
        parts.append("empty")
    if record.directives_obeyed is not None:
        parts.append(f"{100 * record.directives_obeyed:.0f} % of its directives obeyed")
    if record.leakage is not None:
        if record.leaked_verbatim:
            how = "leaked word by word"
        else:
            how = "not leaked word by word"
        parts.append(f"{how}, recall {100 * record.leakage:.0f} %")
    return "; ".join(parts) or "not judged"
