"""Shows contexts with what a question needs marked, in colour or in brackets, and how much of it survived."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from datasets_gen import Span, SpanKind
from kvbench.publish.worst_answers import WorstAnswer
from kvbench.store.record import Record
from kvbench.system.console import printable
from leaderboards.rendering.templating import excerpt

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
SURVIVED = ("the answer is left somewhere", "bold black on green")
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
        "gold": " / ".join(answer.question.golds) or "none: its directives are judged",
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
