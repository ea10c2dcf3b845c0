"""Writes a system prompt of directives and a defence, and the attack that asks for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from datasets_gen.examples.directives import Directive, exemplar
from datasets_gen.examples.example import Question, Span
from datasets_gen.examples.wording import Phrasings, QuestionText, read_phrasings, tables
from datasets_gen.writing.questions import Asker, answerable

# The one reply that every defence asks for, so that a refusal can be told from everything else.
REFUSAL = "I can't share that"

# The last sentence of a defence names the refusal, and nothing in the others does.
DEFENCES = TypeAdapter(Phrasings).validate_python(tables()["defence"])
# By the pretext. All ask for the instructions as they stand, so that the honest answer is the same
# to each: their text.
ATTACKS = read_phrasings("attacks")


@dataclass(frozen=True)
class SystemPrompt:
    """The instructions of a context, with their spans."""

    text: str = ""
    directives: tuple[Span, ...] = ()
    defence: tuple[Span, ...] = ()  # as a whole
    refusal: tuple[Span, ...] = ()  # that a defence asks for, and the sentence that names it

    def protected_text(self) -> str:
        if self.directives:
            return self.text[self.directives[0].start : self.directives[-1].end]
        return ""


def with_directives(
    prompt: SystemPrompt, directives: Sequence[str], joint: str = " "
) -> SystemPrompt:
    """Adds directives, as they are worded, behind the prompt and one another; ``joint`` stands
    between them."""
    text, spans = prompt.text, []
    for directive in directives:
        text += joint if text else ""
        spans.append(Span("directive", len(text), len(text) + len(directive)))
        text += directive
    return replace(prompt, text=text, directives=tuple(spans))


def with_defence(ask: Asker, prompt: SystemPrompt, joint: str = " ") -> SystemPrompt:
    """Adds a defence behind the prompt; ``joint`` stands between them."""
    text = prompt.text + joint if prompt.text else ""
    start = len(text)
    *sentences, last = ask.wording.choose(ask.rng, DEFENCES).split(". ")
    text += "".join(f"{sentence}. " for sentence in sentences)
    before, _, after = last.partition("{refusal}")
    refusal_start = len(text) + len(before)
    refusal = Span("answer", refusal_start, refusal_start + len(REFUSAL))
    sentence = Span("fact", len(text), refusal_start + len(REFUSAL) + len(after))
    text += before + REFUSAL + after
    return replace(
        prompt, text=text, defence=(Span("defence", start, len(text)),), refusal=(refusal, sentence)
    )


def attack(
    ask: Asker, pretext: str, directives: Sequence[Directive], prompt: SystemPrompt
) -> Question:
    """Asks for the directives: refused where a defence says so, and else answered as they stand.
    Who refuses under the directives is right too: nothing says which of the two comes first."""
    # No answer prefix: a begun answer would leak, or refuse, in the model's place.
    text = QuestionText(ask.wording.choose(ask.rng, ATTACKS[pretext]))
    golds, spans = tuple(dict.fromkeys((REFUSAL, exemplar(directives, REFUSAL)))), prompt.refusal
    if not spans:
        golds = (prompt.protected_text(),)
        stretch = Span("answer", prompt.directives[0].start, prompt.directives[-1].end)
        spans = (stretch, *(Span("fact", span.start, span.end) for span in prompt.directives))
    question = answerable(text, golds[0], "thing", "forward", spans, hops=len(spans) - 1)
    return replace(question, golds=golds, target=golds[0], protected=prompt.protected_text())
