"""Finds where a context tells of somebody without the name, and which name is meant there."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from datasets_gen import Example
from datasets_gen.examples.example import Question, Span
from kvbench.prompts.prompt import encode, tokens_of


def referents(
    tokenizer: PreTrainedTokenizerBase, example: Example, offsets: Sequence[tuple[int, int]], shift: int
) -> dict[int, int]:
    """Maps places of a context to the first token of the name that is meant there.

    The places are the last token of each sentence that states an answer and leaves the name to another sentence, and
    the value itself where it stands at the end. ``offsets`` of the tokens, ``shift``: where the context starts in them.
    """
    names_at: dict[int, int] = {}
    for question in example.questions:
        name, value, fact = _parts(question)
        if not (name and value and fact) or fact.start <= name.start < fact.end:
            continue
        token = encode(tokenizer, f" {example.context[name.start : name.end]}")[0]
        ends = [Span("fact", fact.end - 1, fact.end)]
        if value.end == fact.end - 1:
            ends.append(Span("answer", value.end - 1, value.end))
        names_at |= dict.fromkeys(tokens_of(ends, offsets, shift), token)
    return names_at


def _parts(question: Question) -> tuple[Span | None, Span | None, Span | None]:
    """Returns the name, the value and the sentence that states the answer, where one sentence states it of one name."""
    spans = {kind: [span for span in question.spans if span.kind == kind] for kind in ("answer", "subject", "fact")}
    if question.bridges or question.type != "standard" or any(len(of_kind) != 1 for of_kind in spans.values()):
        return None, None, None
    (answer,), (subject,), (fact,) = spans.values()
    return (answer, subject, fact) if question.direction == "reverse" else (subject, answer, fact)
