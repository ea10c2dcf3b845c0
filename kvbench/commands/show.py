"""``python -m kvbench show`` shows one example of a task, or the worst answers of a run, with their spans marked."""

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
    Question,
    Span,
    SpanKind,
    Task,
    get_task,
    is_file_of_questions,
    unknown_name,
)
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.experiments.build_grid import tasks_as_run
from kvbench.experiments.data import with_data
from kvbench.experiments.options import check_count
from kvbench.models.names import local_source
from kvbench.prompts.context_length import lengthen_by_tokenizer
from kvbench.prompts.mode import asked_of
from kvbench.store.run_file import Identity
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS, Record, StoredAnswer
from kvbench.system.console import printable
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.answers import JUDGED, worst_first
from leaderboards.metrics.routing import shares_at
from leaderboards.rendering.templating import excerpt
from leaderboards.terminal.result_table import Column, ResultTable
from policies import FULL, KINDS, LazyModule, Level
from policies.declaration.names import CONTROLS

models = LazyModule("kvbench.models.load")
prompts = LazyModule("kvbench.prompts.prompt")

SAME = 1e-9  # ratios that differ only by how they are written
AROUND = 160  # characters that are shown on either side of what matters in a long context
LONG = 1500
STYLES: Mapping[
    SpanKind, str
] = {  # where spans overlap, the later kind is seen: an answer within a fact
    "fact": "on grey19",
    "bridge": "on dark_blue",
    "distractor": "dim",
    "defence": "on dark_red",
    "directive": "on dark_magenta",
    "subject": "bold cyan",
    "answer": "bold black on green",
}


def command(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            help="Name of a task, file of questions, or folder of a run, such as runs/x."
        ),
    ],
    index: Annotated[int, typer.Option(help="Which example.")] = 0,
    context_tokens: options.ShownTokens = None,
    depth: options.Depth = None,
    tokenizer: options.Tokenizer = None,
    data: options.Data = None,
    defence: options.Defence = None,
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
    """Prints an example of a task: its context with the spans marked, its questions and what answers them. Or the
    worst answers of a policy in a run: what is lost of what they needed."""
    # A file without an ending may be what is left of a run, and is said to be none.
    is_task = what in KNOWN_TASKS or (is_file_of_questions(what) and Path(what).suffix != "")
    is_run = not is_task and ("/" in what or Path(what).is_dir())
    for name in options.given_options(context, except_for=("what",)):
        if (name in ("policy", *KINDS, "worst")) != is_run:
            option = "--" + name.replace("_", "-")
            of, other = ("tasks", "none") if is_run else ("runs", "no run")
            raise KVBenchError(f"{option} is for {of}, and {what} is {other}")
    if is_run:
        levels = [
            Level(kind, value) for kind in KINDS if (value := context.params[kind]) is not None
        ]
        return worst_of(Store.open(Path(what)), policy, levels, check_count("--worst", worst))
    (task,) = with_data([get_task(what)], data, defence)
    chosen = lengthen_by_tokenizer(
        tokenizer if context_tokens else None, task, context_tokens, depth
    )
    example = chosen.example(seed, index, split, held_out=phrasings == "held-out")
    spans = [*example.spans, *(span for one in example.questions for span in one.spans)]
    columns = [Column(name) for name in ("task", "index", "context", "spans")]
    row = (chosen.name, index, example.context, spans)
    marked = mark_spans(
        example.context, spans, protected={one.protected for one in example.questions}
    )
    result = [
        ResultTable("examples", columns, [row], view=marked),
        questions_table(example.questions),
    ]
    if tokenizer is not None:
        asked = asked_of([chosen], tokenizer)[0]
        sent = prompts.prompt_as_sent(models.load_tokenizer(tokenizer), asked, example, "agnostic")
        result.append(prompt_table([(chosen.name, sent)]))
    return Result(result, warnings=chosen.notes)


def mark_spans(
    context: str,
    spans: Sequence[Span],
    stretches: Sequence[tuple[int, int]] = (),
    protected: Collection[str] = (),
    kept: Callable[[int, int], str] = lambda start, end: "",
) -> Text:
    """Writes the spans of a context in brackets with their kinds, ``[fact Ada lives in [answer Rome].]``, and in
    colours where the output has any. ``stretches``: what is shown of the context, or nothing for all of it.
    ``protected``: texts that must not leak, which are directives, answers of an attack, or both. ``kept``: what is said
    of a span behind its kind."""
    text = Text(printable(context))
    marks: list[tuple[int, int, int, str, str]] = []
    kept_secret: set[tuple[int, int]] = set()
    for kind, style in STYLES.items():
        for start, end in dict.fromkeys(
            (span.start, span.end) for span in spans if span.kind == kind
        ):
            if (start, end) in kept_secret:
                continue
            name = "protected" if context[start:end] in protected else kind
            if name == "protected":
                kept_secret.add((start, end))
            text.stylize(style, start, end)
            marks.append((start, 1, -end, f"[{name}{kept(start, end)} ", style))
            marks.append((end, 0, -start, "]", style))  # before what opens at the same place
    marks.sort()
    parts = []
    for start, end in stretches or [(0, len(text))]:
        last, pieces = start, []
        for place, _, _, mark, style in marks:
            if start <= place <= end:
                pieces += [text[last:place], Text(mark, style)]
                last = place
        parts.append(Text().join([*pieces, text[last:end]]))
    shown = Text(" … ", style="bright_black").join(parts)
    return shown if not stretches or stretches[-1][1] == len(text) else shown + Text(" …")


def questions_table(questions: Sequence[Question]) -> ResultTable:
    """Lists the questions of an example, with the expected text where it is not the gold (directives, steps)."""
    differs = any(question.perfect_output != (question.golds or ("",))[0] for question in questions)
    columns = (
        Column("number", ""),
        Column("question", of_sentences=True),
        Column("golds", "gold", lambda golds: golds[0] if golds else "", of_sentences=True),
        Column("written", "to be written", of_sentences=True, shown=differs),
        Column("type"),
        Column("hops"),
    )
    rows = [
        (
            number,
            one.text,
            one.golds,
            one.perfect_output,
            one.type if one.answerable else "unanswerable",
            one.hops,
        )
        for number, one in enumerate(questions)
    ]
    return ResultTable("questions", columns, rows)


def prompt_table(prompts: Sequence[tuple[str, str]]) -> ResultTable:
    """Shows the first prompt of each task as it was sent."""
    view = Group(
        *(Text(f"The first prompt of {task}, as sent:\n{prompt}") for task, prompt in prompts)
    )
    return ResultTable("prompts", [Column("task"), Column("prompt")], prompts, view=view)


@dataclass(frozen=True)
class WorstAnswer(StoredAnswer):
    """A stored answer with the spans of its example, whose kinds a store does not tell."""

    full: Record | None  # the same question under the full cache, if it was run
    spans: tuple[Span, ...]
    is_generated: bool  # whether the spans are those of the example, generated anew


def worst_of(store: Store, policy: str, given: Sequence[Level], count: int) -> Result:
    """Shows the worst answers, if nothing else is named of the first policy that is no control."""
    names = [entry.name for entry in store.identity.policies]
    policy = policy or next((name for name in names if name not in CONTROLS), names[-1])
    level = chosen_level(store.identity, policy, given)
    answers, failed = worst_answers(store, policy, level, count)
    warnings = [
        f"the worst answers of {policy} at {level.where}; others: --policy, of {', '.join(names)}"
    ]
    if failed:
        warnings.append(f"{failed:,} answers failed and are not among these")
    tasks = dict.fromkeys(answer.record.task for answer in answers)
    sent = [
        (task, store.identity.prompts[task]) for task in tasks if task in store.identity.prompts
    ]
    return Result([answers_table(answers), *([prompt_table(sent)] if sent else [])], notes=warnings)


def chosen_level(identity: Identity, policy: str, given: Sequence[Level]) -> Level:
    """Finds the level that the options name, or the one that boards show first, among those of the policy."""
    policies = {entry.name: entry for entry in identity.policies}
    if policy not in policies:
        raise KVBenchError(unknown_name("policy", policy, policies))
    levels = list(dict.fromkeys(point.level for point in policies[policy].points))
    if not given:
        return min(levels, key=lambda level: abs(level.value - level.declared.typical))
    names = ", ".join(f"--{level.kind} {level}" for level in levels)
    matches = [
        level
        for level in levels
        if level.kind == given[0].kind and abs(level.value - given[0].value) < SAME
    ]
    if len(given) > 1 or not matches:
        where = " and ".join(level.where for level in given)
        raise KVBenchError(f"{policy} was not run at {where}: give one of {names}")
    return matches[0]


def worst_answers(
    store: Store, policy: str, level: Level, count: int
) -> tuple[list[WorstAnswer], int]:
    """Returns the answers in the order of :func:`worst_first`, and counts those that failed."""
    answers = [one for one in _answers(store, policy) if one.record.point.level == level]
    if not answers:
        raise KVBenchError(
            f"{store.folder} holds no answers of {policy} at {level.where} yet: start the run again"
        )
    full = {one.record.question_id: one.record for one in _answers(store, FULL)}
    answered = [one for one in answers if one.record.output_text is not None]
    records = [*(one.record for one in answered), *full.values()]
    table = DataFrame(
        [vars(record) for record in records], columns=["policy", "question_id", *JUDGED]
    )
    places = worst_first(table.assign(mode="", example_id="")).index if answered else []
    tasks = tasks_as_run(store.run, local_source(store.identity.model) is not None)
    worst = []
    for one in [answered[place] for place in places if place < len(answered)][:count]:
        full_record = full.get(one.record.question_id)
        worst.append(_with_spans(one, full_record, tasks.get(one.context.task), store.identity))
    return worst, len(answers) - len(answered)


def _answers(store: Store, policy: str) -> Iterator[StoredAnswer]:
    """Yields all answers of one policy, in the order of the tasks."""
    for task in store.identity.tasks:
        name = store.path(RECORDS, task.name, 0, policy).name
        for path in store.record_files():
            if (path.parent.parent.name, path.name) == (task.name, name):
                yield from store.read_answers(path)


def _with_spans(
    answer: StoredAnswer, full: Record | None, task: Task | None, identity: Identity
) -> WorstAnswer:
    parts = (answer.record, answer.question, answer.context, full)
    if task is not None and task.full_version == answer.context.task_version:
        example = task.example(
            identity.seed, answer.context.example_index, held_out=identity.held_out
        )
        generated = next(
            (one for one in example.questions if one.id == answer.question.question_id), None
        )
        if generated is not None and example.context == answer.context.context:
            return WorstAnswer(*parts, (*example.spans, *generated.spans), True)
    question = answer.question
    stored: Mapping[SpanKind, Sequence[int]] = {
        "answer": question.answer_spans,
        "fact": question.evidence_spans,
    }
    pairs = [
        Span(kind, *pair)
        for kind, flat in stored.items()
        for pair in zip(flat[::2], flat[1::2], strict=True)
    ]
    return WorstAnswer(*parts, tuple(pairs), False)


def answers_table(answers: Sequence[WorstAnswer]) -> ResultTable:
    """Lists stored answers with what was asked, what the full cache wrote, and what was kept."""
    of_record = (
        "question_id",
        "policy",
        "output_text",
        "f1",
        "em",
        "ger",
        "slot_coverage",
        "realised_ratio",
    )
    names = (*of_record, "question", "golds", "full_cache_output", "verdict")
    rows = []
    for one in answers:
        of_question = (
            one.question.question,
            one.question.golds,
            one.full.output_text if one.full else None,
        )
        rows.append(
            (*(getattr(one.record, name) for name in of_record), *of_question, verdict(one.record))
        )
    return ResultTable(
        "answers", [Column(name) for name in names], rows, view=render_answers(answers)
    )


def render_answers(answers: Sequence[WorstAnswer]) -> RenderableType:
    """Shows answers about one context together, and below them the context around what they needed."""
    by_context: dict[str, list[WorstAnswer]] = {}
    for answer in answers:
        by_context.setdefault(answer.context.example_id, []).append(answer)
    parts: list[RenderableType] = []
    numbers = itertools.count(1)
    for of_context in by_context.values():
        for answer in of_context:
            heading = Text(printable(f"{next(numbers)}. {answer.record.question_id}"))
            parts += [Rule(heading, align="left"), _exchange(answer)]
        spans = [span for answer in of_context for span in answer.spans]
        evidence = [
            (span.start, span.end) for span in dict.fromkeys(spans) if span.kind != "distractor"
        ]
        text = of_context[0].context.context
        protected = {answer.question.protected for answer in of_context}
        marked = mark_spans(
            text,
            spans,
            excerpt(text, evidence, AROUND, LONG),
            protected,
            partial(_kept_of, of_context[0]),
        )
        parts += [Text(), marked, Text()]
        if not of_context[0].is_generated:
            parts.append(
                Text(
                    "the example cannot be generated here: all of its evidence is shown as fact",
                    "yellow",
                )
            )
    return Group(*parts)


def _kept_of(answer: WorstAnswer, start: int, end: int) -> str:
    """Says how much of a span the cache kept, over its tokens and all layers and heads."""
    if answer.record.token_kept is None:
        return ""
    shares = shares_at(answer.context.token_ends, answer.record.token_kept, start, end)
    return f", {shares.mean():.0%} kept:" if len(shares) else ""


def _exchange(answer: WorstAnswer) -> Table:
    record, full = answer.record, answer.full
    shares = {
        "GER": record.ger,
        "slot coverage": record.slot_coverage,
        "eviction rate": record.eviction_rate,
        "realised ratio": record.realised_ratio,
    }
    kept = "–" if record.kept_tokens is None else f"{record.kept_tokens:.4g}"
    rows = {
        "question": answer.question.question,
        "gold": " / ".join(answer.question.golds) or "none: leakage and directives are judged",
        "full cache": _output_of(full) if full else "was not run",
        f"{record.policy} at {record.point.where}": _output_of(record),
        "verdict": verdict(record),
        "kept": f"{kept} of {answer.question.context_tokens} tokens",
        "": ", ".join(
            f"{name} {'–' if share is None else f'{share:.2f}'}" for name, share in shares.items()
        ),
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(Text(printable(name)), Text(printable(text)))
    return table


def _output_of(record: Record) -> str:
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
    elif record.f1 is not None and record.leakage is None:
        parts.append("empty")
    if record.directives_obeyed is not None:
        parts.append(f"{100 * record.directives_obeyed:.0f} % of its directives obeyed")
    if record.leakage is not None:
        how = "leaked word by word" if record.leaked_verbatim else "not leaked word by word"
        parts.append(f"{how}, recall {100 * record.leakage:.0f} %")
    return "; ".join(parts) or "not judged"
