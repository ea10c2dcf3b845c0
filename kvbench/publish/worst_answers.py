"""Lists the worst answers of a policy in a run, each with the full cache's answer and with its example."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from pandas import DataFrame
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from datasets_gen import Example, Question, Span, SpanKind, Task, unknown_name
from kvbench.experiments.build_grid import tasks_as_run
from kvbench.models.names import local_source
from kvbench.store.run_file import Identity
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS, Record, StoredAnswer
from kvbench.system.console import printable
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.answers import JUDGED, worst_first
from leaderboards.rendering.templating import excerpt
from policies import FULL, Level
from policies.declaration.names import CONTROLS

SAME = 1e-9  # ratios that differ only by how they are written


@dataclass(frozen=True)
class WorstAnswer(StoredAnswer):
    """A stored answer with its example, which holds spans that a store does not."""

    full: Record | None  # the same question under the full cache, if it was run
    example: Example | None  # generated anew, where it can be here
    generated: Question | None  # the question of that example


def first_policy(identity: Identity) -> str:
    """Returns the policy that is shown where none is named: the first that is no control, if there is one."""
    names = [entry.name for entry in identity.policies]
    return next((name for name in names if name not in CONTROLS), names[-1])


def levels_of(identity: Identity, policy: str) -> list[Level]:
    (points,) = (entry.points for entry in identity.policies if entry.name == policy)
    return list(dict.fromkeys(point.level for point in points))


def chosen_level(identity: Identity, policy: str, given: Sequence[Level]) -> Level:
    """Finds the level of the policy that the options name, or else the one that boards show first; raises
    :class:`KVBenchError` with the levels of the run if it is not among them."""
    policies = {entry.name: entry for entry in identity.policies}
    if policy not in policies:
        raise KVBenchError(unknown_name("policy", policy, policies))
    levels = levels_of(identity, policy)
    names = ", ".join(f"--{level.kind} {level}" for level in levels)
    if len(given) > 1:
        raise KVBenchError(f"choose a level of {policy}: one of {names}")
    if not given:
        return min(levels, key=lambda level: abs(level.value - level.declared.typical))
    matches = [level for level in levels if level.kind == given[0].kind and abs(level.value - given[0].value) < SAME]
    if not matches:
        raise KVBenchError(f"{policy} was not run at {given[0].where}: give one of {names}")
    return matches[0]


def worst_answers(store: Store, policy: str, level: Level, count: int) -> tuple[list[WorstAnswer], int]:
    """Returns the answers that lose most against the full cache, in the order of
    :func:`~leaderboards.aggregate.answers.worst_first`, and counts those that failed."""
    answers = [one for one in _answers(store, policy) if one.record.point.level == level]
    if not answers:
        raise KVBenchError(f"{store.folder} holds no answers of {policy} at {level.where} yet: start the run again")
    full = {one.record.question_id: one.record for one in _answers(store, FULL)}
    answered = [one for one in answers if one.record.output_text is not None]
    places = range(len(answered))
    table = DataFrame(
        [_ranking_of(one.record, place) for one, place in zip(answered, places, strict=True)]
        + [_ranking_of(record, None) for record in full.values()]
    )
    ordered = worst_first(table)["place"].dropna() if answered else []
    chosen = [answered[int(place)] for place in ordered][:count]
    tasks, identity = tasks_as_run(store.run, local_source(store.identity.model) is not None), store.identity
    with_examples = [
        _with_example(one, full.get(one.record.question_id), tasks.get(one.context.task), identity) for one in chosen
    ]
    return with_examples, len(answers) - len(answered)


def _ranking_of(record: Record, place: int | None) -> dict[str, Any]:
    """Returns what answers are ordered by, and the place of an answer that may be chosen."""
    names = {"policy": record.policy, "mode": "", "example_id": "", "question_id": record.question_id}
    return {**names, "place": place, **{name: getattr(record, name) for name in JUDGED}}


def decoded_in_halves(store: Store) -> int:
    """Counts the answers of a run that come from batches that were halved for lack of memory."""
    halvings = store.table(RECORDS, ["wave_halvings"])["wave_halvings"]
    return sum(count > 0 for count in halvings.drop_null().to_pylist())


def _answers(store: Store, policy: str) -> Iterator[StoredAnswer]:
    """Yields all answers of one policy, in the order of the tasks."""
    for task in store.identity.tasks:
        name = store.record_file(task.name, 0, policy).name
        for path in store.record_files():
            if (path.parent.parent.name, path.name) == (task.name, name):
                yield from store.read_answers(path)


def _with_example(answer: StoredAnswer, full: Record | None, task: Task | None, identity: Identity) -> WorstAnswer:
    parts = (answer.record, answer.question, answer.context, full)
    if task is None or task.full_version != answer.context.task_version:
        return WorstAnswer(*parts, None, None)
    example = task.example(identity.seed, answer.context.example_index, held_out=identity.held_out)
    generated = next((one for one in example.questions if one.id == answer.question.question_id), None)
    same = example.context == answer.context.context and generated is not None
    return WorstAnswer(*parts, example, generated) if same else WorstAnswer(*parts, None, None)


STYLES: Mapping[SpanKind, str] = {
    "fact": "on grey19",
    "bridge": "on dark_blue",
    "distractor": "dim",
    "defence": "on dark_red",
    "directive": "on dark_magenta",
    "subject": "bold cyan",
    "answer": "bold black on green",
}
# The colour of the answer, by GER: whether any layer and head still holds its tokens.
SURVIVED = ("the answer is left in some layer and head", "bold black on green")
PARTLY = ("the answer is left in part", "bold black on yellow")
EVICTED = ("the answer is gone everywhere", "bold white on red")
FATES = (SURVIVED, PARTLY, EVICTED)
AROUND = 160  # characters that are shown on either side of what matters in a long context
LONG = 1500
CUT = "bright_black"


def colour_spans(context: str, spans: Sequence[Span]) -> Text:
    """Colours the spans of a context. Where spans overlap, the narrower kind wins: an answer within a fact."""
    text = Text(printable(context))
    for kind, style in STYLES.items():
        for span in spans:
            if span.kind == kind:
                text.stylize(style, span.start, span.end)
    return text


@dataclass(frozen=True)
class Marked:
    """A coloured text, which is shown with brackets around its spans where the output has no colours."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        without_colours = console.color_system is None or console.no_color
        yield bracket_spans(self.text) if without_colours else self.text


def bracket_spans(text: Text) -> Text:
    """Writes the spans of a coloured text as brackets with their kinds: ``[fact Ada lives in [answer Rome].]``"""
    kinds = {style: kind for kind, style in STYLES.items()} | {style: "answer" for _, style in FATES}
    spans = sorted({(span.start, -span.end, kinds[str(span.style)]) for span in text.spans if str(span.style) in kinds})
    opening = [(start, 1, f"[{kind} ") for start, _, kind in spans]
    closing = [(-end, 0, "]") for _, end, _ in spans]  # before what opens at the same place
    parts, last = [], 0
    for place, _, mark in sorted([*opening, *closing], key=lambda one: one[:2]):
        parts += [text.plain[last:place], mark]
        last = place
    return Text("".join([*parts, text.plain[last:]]))


def render_answers(answers: Sequence[WorstAnswer]) -> RenderableType:
    """Shows answers, those about one context together, and below them the context in colour."""
    by_context: dict[str, list[WorstAnswer]] = {}
    for answer in answers:
        by_context.setdefault(answer.context.example_id, []).append(answer)
    numbers = count(1)
    parts: list[RenderableType] = []
    for of_context in by_context.values():
        for answer in of_context:
            parts.append(Rule(Text(printable(f"{next(numbers)}. {answer.record.question_id}")), align="left"))
            parts += [_exchange(answer), Text(_shares_kept(answer))]
        parts += _render_context(of_context)
    return Group(*parts)


def _render_context(answers: Sequence[WorstAnswer]) -> Iterator[RenderableType]:
    """Shows the context of some answers with what each of them needed; prose between is left out."""
    styled = [(_spans_of(answer), fate_of(answer.record)) for answer in answers]
    spans = list(dict.fromkeys(span for of_answer, _ in styled for span in of_answer))
    strip = colour_spans(answers[0].context.context, [span for span in spans if span.kind != "answer"])
    for of_answer, (_, style) in styled:
        for span in of_answer:
            if span.kind == "answer":
                strip.stylize(style, span.start, span.end)
    yield Padding(Marked(_excerpt(strip, spans)), (1, 0, 0, 2))
    fates = dict.fromkeys(fate for of_answer, fate in styled if any(span.kind == "answer" for span in of_answer))
    yield Padding(legend(spans, list(fates)), (1, 0))
    if answers[0].generated is None:
        yield Text("the example cannot be generated here: all of its evidence is shown as fact", style="yellow")


def _spans_of(answer: WorstAnswer) -> tuple[Span, ...]:
    """Returns the spans of the example, or those that are stored of the question, which do not tell their kinds."""
    if answer.example is not None and answer.generated is not None:
        return (*answer.example.spans, *answer.generated.spans)
    stored: Mapping[SpanKind, Sequence[int]] = {
        "answer": answer.question.answer_spans,
        "fact": answer.question.evidence_spans,
    }
    return tuple(Span(kind, *pair) for kind, flat in stored.items() for pair in zip(flat[::2], flat[1::2], strict=True))


def fate_of(record: Record) -> tuple[str, str]:
    """Says how many tokens of the answer survived, and gives the colour for that."""
    if record.ger is None:
        return "answer", STYLES["answer"]
    if record.ger == 0:
        return SURVIVED
    return EVICTED if record.ger == 1 else PARTLY


def _exchange(answer: WorstAnswer) -> Table:
    record, full = answer.record, answer.full
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    rows = {
        "question": answer.question.question,
        "gold": " / ".join(answer.question.golds) or "none: leakage and directives are judged",
        "full cache": _output_of(full) if full else "was not run",
        f"{record.policy} at {record.point.where}": _output_of(record),
        "verdict": verdict(record),
    }
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
    elif record.f1 is not None:
        parts.append("empty")
    if record.directives_obeyed is not None:
        parts.append(f"{100 * record.directives_obeyed:.0f} % of its directives obeyed")
    if record.leakage is not None:
        parts.append(f"leaked {100 * record.leakage:.0f} %")
    return "; ".join(parts) or "not judged"


def _shares_kept(answer: WorstAnswer) -> str:
    record = answer.record
    shares = {
        "GER": record.ger,
        "slot coverage": record.slot_coverage,
        "eviction rate": record.eviction_rate,
        "realised ratio": record.realised_ratio,
    }
    figures = [f"{name} {'–' if value is None else f'{value:.2f}'}" for name, value in shares.items()]
    kept = "–" if record.kept_tokens is None else f"{record.kept_tokens:.4g}"
    return "   ".join([*figures, f"kept {kept} of {answer.question.context_tokens} tokens"])


def _excerpt(strip: Text, spans: Sequence[Span]) -> Text:
    """Cuts a long context to the surroundings of its spans, or to its beginning if it has none."""
    marked = [(span.start, span.end) for span in spans if span.kind != "distractor"]
    stretches = excerpt(strip.plain, marked, AROUND, LONG)
    shown = Text(" … ", style=CUT).join(strip[start:end] for start, end in stretches)
    return shown if stretches[-1][1] == len(strip) else shown + Text(" …", style=CUT)


def legend(spans: Sequence[Span], fates: Sequence[tuple[str, str]] = ()) -> Text:
    """Names the kinds of spans in their colours; ``fates``: what became of answers, with the colours of that."""
    kinds = {span.kind for span in spans}
    shown = [(kind, style) for kind, style in STYLES.items() if kind in kinds and not (fates and kind == "answer")]
    return Text("  ").join(Text(f" {label} ", style=style) for label, style in (*shown, *fates))
